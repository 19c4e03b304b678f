//! The runtimes that nvidia-container-runtime names below gpuslice-runtime.
//! Touches: the toolkit's config.toml, and the two variables that say where it is.
//! Law: a file that users other than root may write is ignored.

use crate::base::paths::HostPaths;
use crate::base::read;
use crate::base::toml_list;
use crate::engine::runtimes;
use std::env;
use std::path::{Path, PathBuf};

/// The path of the toolkit's file below a configuration folder.
const FILE: &str = "nvidia-container-runtime/config.toml";

/// The path of the GPU operator's toolkit file, below the root.
pub const OPERATOR: &str = "usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml";

/// The header of its TOML table.
const TABLE: &str = "[nvidia-container-runtime]";

/// The bytes that are read; the toolkit's own file has 2 KiB.
const CAP: usize = 1 << 20;

/// The file that this process's environment names, as the toolkit reads it, or else the file below
/// /etc.
#[must_use]
pub fn file(paths: &HostPaths) -> PathBuf {
    let named = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    let own = named("NVIDIA_CTK_CONFIG_FILE_PATH").map(PathBuf::from);
    let config = named("XDG_CONFIG_HOME").map(|folder| Path::new(&folder).join(FILE));
    own.or(config.filter(|file| file.exists()))
        .unwrap_or_else(|| paths.root().join("etc").join(FILE))
}

/// The runtimes that a file lists beside gpuslice-runtime; empty if the file does not list it.
#[must_use]
pub fn runtimes(file: &Path) -> Vec<String> {
    let text = read::open_unless_absent(file).and_then(|file| {
        read::only_roots(&file)?;
        read::whole(file, CAP)
    });
    text.ok()
        .and_then(|text| String::from_utf8(text).ok())
        .map_or_else(Vec::new, |text| below_ours(&text))
}

fn below_ours(text: &str) -> Vec<String> {
    let all = listed(text);
    let is_ours = |name: &String| runtimes::is_wrapper(Some(name.as_ref()));
    match all.iter().any(is_ours) {
        true => all.into_iter().filter(|name| !is_ours(name)).collect(),
        false => Vec::new(),
    }
}

/// The texts of `runtimes` in the table `nvidia-container-runtime`.
fn listed(text: &str) -> Vec<String> {
    let mut lines = text.lines().map(str::trim);
    if !lines.any(|line| line.split('#').next().map(str::trim) == Some(TABLE)) {
        return Vec::new();
    }
    toml_list::texts(
        &mut lines.take_while(|line| !line.starts_with('[')),
        "runtimes",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_below_ours_is_taken_where_ours_is_in_it() {
        let list = |runtimes: &str| {
            below_ours(&format!(
                "disable-require = false\n[nvidia-container-runtime]\nmode = \"auto\"\nruntimes = {runtimes}\n"
            ))
        };
        assert_eq!(
            list(r#"["/usr/bin/gpuslice-runtime", "crun", "runc"]"#),
            ["crun", "runc"]
        );
        assert_eq!(list(r#"["crun", "runc"]"#), Vec::<String>::new());
        let long =
            "[ # ours\n  '/usr/bin/gpuslice-runtime',\n  # \"youki\",\n  \"/k3s/runc\", # ]\n]";
        assert_eq!(list(long), ["/k3s/runc"]);
        for other in [
            "1",
            "[",
            "[\"gpuslice-runtime\"",
            "[\"gpuslice-runtime",
            "[\n[x]\n]",
        ] {
            assert_eq!(list(other), Vec::<String>::new(), "{other}");
        }
        let elsewhere = "[nvidia-container-cli]\nruntimes = [\"gpuslice-runtime\", \"crun\"]\n";
        assert_eq!(below_ours(elsewhere), Vec::<String>::new());
    }
}
