//! Configures NVIDIA's container toolkit on this host: its configuration file, and the runtimes
//! below it.
//! Touches: that file; containerd's (reads).

use super::change::{self, Change, Files};
use super::containerd_host::NVIDIA_CTK;
use super::toml_file::parse;
use super::{Changes, Configure, below, containerd, containerd_host, imports, nvidia};
use anyhow::{Context, bail};
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::engine::toolkit;
use gpuslice_host::machine::dialects::Dialects;
use gpuslice_host::machine::policy;
use std::env;
use std::path::{Path, PathBuf};
use toml_edit::DocumentMut;

/// The toolkit's own configuration file.
const CONFIG: &str = "/etc/nvidia-container-runtime/config.toml";

/// Plans the changes.
pub(super) fn plan(wanted: &Configure) -> anyhow::Result<Changes> {
    let path = config(wanted)?;
    let old = change::read(&path)?;
    let wrapper = wanted.wrapper()?;
    let wrong = || format!("cannot change {}", path.display());
    let change = if wanted.remove {
        let new = old.as_deref().map(|text| nvidia::remove(text, &wrapper));
        let new = new.transpose().with_context(wrong)?.unwrap_or_default();
        let again = |text: Option<&str>| {
            if text.is_some_and(|text| nvidia::has(text, &wrapper)) {
                return None;
            }
            let added = nvidia::add(text, &wrapper).ok()?;
            nvidia::remove(&added, &wrapper).ok()
        };
        Change::back(&path, old, new, again)
    } else {
        below::agrees(
            &wrapper,
            &nvidia::runtimes(old.as_deref()).with_context(wrong)?,
        )?;
        let new = nvidia::add(old.as_deref(), &wrapper).with_context(wrong)?;
        Change::edit(&path, old, new)
    };
    Ok(Changes {
        changes: vec![change],
        notes: Vec::new(),
        next: "nothing to restart; containers that run stay as they are".to_owned(),
    })
}

/// Returns the file that the toolkit reads. If the toolkit may read another file, no file is
/// created, because a file that the toolkit does not read has no effect.
fn config(wanted: &Configure) -> anyhow::Result<PathBuf> {
    if wanted.config.is_some() {
        return wanted.config(CONFIG);
    }
    let named = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    if let Some(file) = named("NVIDIA_CTK_CONFIG_FILE_PATH") {
        return Ok(PathBuf::from(file));
    }
    let folder = named("XDG_CONFIG_HOME").map(PathBuf::from);
    let of_folder = folder.map(|folder| folder.join("nvidia-container-runtime/config.toml"));
    let operators = Path::new("/").join(toolkit::OPERATOR);
    one_of([of_folder, Some(CONFIG.into()), Some(operators)])
}

fn one_of(files: impl IntoIterator<Item = Option<PathBuf>>) -> anyhow::Result<PathBuf> {
    let all: Vec<PathBuf> = files.into_iter().flatten().collect();
    let names = |files: &[PathBuf]| {
        let names = files.iter().map(|file| file.display().to_string());
        names.collect::<Vec<String>>().join(" or ")
    };
    let mut found: Vec<PathBuf> = all.iter().filter(|file| file.exists()).cloned().collect();
    match (found.pop(), found.is_empty()) {
        (Some(file), true) => Ok(file),
        (Some(file), false) => {
            found.push(file);
            bail!(
                "the toolkit may read {}: name its file by --config",
                names(&found)
            )
        }
        (None, _) => bail!(
            "there is no {}: name the file that the toolkit reads by --config (a new one at \
             {CONFIG} is read where the toolkit is installed by a package)",
            names(&all)
        ),
    }
}

/// Reports the runtime that gpuslice-runtime executes, and the handlers of containerd that pass no
/// annotations on.
pub(super) fn result(wanted: &Configure, files: Files<'_>) -> anyhow::Result<Vec<String>> {
    let path = config(wanted)?;
    let text = files.read(&path)?;
    let wrapper = wanted.wrapper()?;
    let has = text
        .as_deref()
        .is_some_and(|text| nvidia::has(text, &wrapper));
    if wanted.remove || !has {
        return Ok(Vec::new());
    }
    let below = below::agrees(&wrapper, &nvidia::runtimes(text.as_deref())?)?;
    let mut lines = vec![format!(
        "a container of nvidia-container-runtime with annotation gpuslice.io/memory gets a slice; {} runs it",
        below.display()
    )];
    if path.ends_with(".config/nvidia-container-runtime/config.toml") {
        lines.push(format!(
            "the GPU operator writes {} anew at each start: set NVIDIA_CONTAINER_RUNTIME_RUNTIMES={wrapper},runc,crun \
             in its toolkit.env",
            path.display()
        ));
    }
    let dialects = policy::read(&HostPaths::default())?.dialects;
    let containerd = Path::new(containerd_host::CONFIG);
    lines.extend(deaf_handlers(containerd, dialects));
    Ok(lines)
}

/// Returns the handlers of NVIDIA's runtime that do not pass on the annotations of slices, with the lines
/// to add for them.
pub(super) fn deaf_handlers(path: &Path, dialects: Dialects) -> Vec<String> {
    let text = change::read(path).ok().flatten();
    let Some(main) = parse(text.as_deref()).ok().filter(|_| text.is_some()) else {
        return Vec::new();
    };
    let imported = imports::of(path, text.as_deref());
    let files: Vec<(PathBuf, DocumentMut)> = std::iter::once((path.to_owned(), main))
        .chain(imported.into_iter().map(|file| (file.path, file.document)))
        .collect();
    let [pod, container] = containerd::KEYS;
    let needed = format!("{:?}", containerd::needed(dialects));
    let mut lines = Vec::new();
    for (file, document) in &files {
        for handler in containerd::handlers_of(document) {
            let lacking = handler.lacks(dialects);
            if !handler.is_nvidia() || lacking.is_empty() {
                continue;
            }
            lines.push(format!(
                "no pod of containerd's handler {} gets a slice by {}: {} does not pass these annotations on; \
                 add {pod} = {needed} and {container} = {needed} to handler runc in {}, then run {NVIDIA_CTK} \
                 (which copies them) and systemctl restart containerd",
                handler.name,
                lacking.join(", "),
                file.display(),
                path.display()
            ));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_that_is_not_there_or_might_be_another_is_asked_for() {
        let place = tempfile::tempdir().unwrap();
        let (one, other) = (place.path().join("one"), place.path().join("other"));
        let files = || [Some(one.clone()), None, Some(other.clone())];
        let said = |files| format!("{:#}", one_of(files).unwrap_err());
        assert!(said(files()).contains("name the file that the toolkit reads by --config"));
        fs::write(&other, "").unwrap();
        assert_eq!(one_of(files()).unwrap(), other);
        fs::write(&one, "").unwrap();
        let said = said(files());
        assert!(
            said.contains(&format!("{} or {}", one.display(), other.display())),
            "{said}"
        );
    }
}
