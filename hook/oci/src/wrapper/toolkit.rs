//! The runtimes that nvidia-container-runtime names below gpuslice-runtime.
//! Touches: the toolkit's config.toml, and the two variables that say where it is.
//! Law: a file in which others than root may write names no runtime.

use crate::place::Places;
use crate::read;
use serde::Deserialize;
use std::env;
use std::path::{Path, PathBuf};

/// Where the toolkit's file is, below a folder of configuration.
const FILE: &str = "nvidia-container-runtime/config.toml";

/// Where the GPU operator's toolkit has it, below the root.
pub const OPERATOR: &str = "usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml";

/// How much is read; the toolkit's own has 2 KiB.
const CAP: usize = 1 << 20;

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Config {
    nvidia_container_runtime: Runtime,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Runtime {
    runtimes: Vec<String>,
}

/// The file that this process's environment names, as the toolkit reads it, else the one below /etc.
#[must_use]
pub fn file(places: &Places) -> PathBuf {
    let named = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    let own = named("NVIDIA_CTK_CONFIG_FILE_PATH").map(PathBuf::from);
    let config = named("XDG_CONFIG_HOME").map(|folder| Path::new(&folder).join(FILE));
    own.or(config.filter(|file| file.exists()))
        .unwrap_or_else(|| places.root().join("etc").join(FILE))
}

/// The runtimes of a file beside gpuslice-runtime; empty where the file does not name it.
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
    let config: Config = toml::from_str(text).unwrap_or_default();
    let all = config.nvidia_container_runtime.runtimes;
    let (ours, others): (Vec<String>, Vec<String>) = all
        .into_iter()
        .partition(|name| super::is_called(Some(name.as_ref())));
    match ours.is_empty() {
        true => Vec::new(),
        false => others,
    }
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
        assert_eq!(list("1"), Vec::<String>::new());
    }
}
