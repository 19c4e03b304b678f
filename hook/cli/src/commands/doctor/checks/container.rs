//! Checks what the hook has put into a container, and why a container has no slice.
//! Touches: files of the container, by reading them; the configuration of its bundle.

use super::Case;
use crate::base::text::{escaped_path, printable};
use crate::commands::doctor::codes::Code;
use crate::commands::doctor::finding::Finding;
use crate::driver::preload::LIBRARY;
use gpuslice_host::base::paths::PRELOAD;
use gpuslice_host::base::read;
use serde_json::Value;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The bytes that are read of a bundle's configuration.
const CAP: usize = 64 << 20;

/// The bytes that are read of ld.so's list.
const LIST: usize = 64 << 10;

/// The facts about a container that a record or a bundle gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct ContainerSeen {
    /// Its id.
    pub(in super::super) id: String,
    /// Its display name.
    pub(in super::super) name: String,
    /// Its first process.
    pub(in super::super) pid: Option<u32>,
    /// The reason in its record why it runs without its slice.
    pub(in super::super) no_slice: Option<String>,
    /// Whether the record has a budget, so that a slice was made.
    pub(in super::super) has_budget: bool,
    /// Whether there is a record.
    pub(in super::super) is_recorded: bool,
    /// Its bundle, if it is known.
    pub(in super::super) bundle: Option<PathBuf>,
}

impl ContainerSeen {
    /// Returns the reason why the container has no slice.
    pub(in super::super) fn fault(&self) -> Option<Finding> {
        let name = printable(&self.name);
        if let Some(why) = &self.no_slice {
            let why = printable(why);
            let sentence = format!("container {name} started without its slice: {why}");
            let code = match self.has_budget {
                true => Code::NotInjectable,
                false => Code::StartedWithoutSlice,
            };
            return Some(Finding::new(code, sentence));
        }
        if self.is_recorded {
            return None;
        }
        self.by_configuration(&name)
    }

    /// Returns the reason that config.json of the bundle gives.
    fn by_configuration(&self, name: &str) -> Option<Finding> {
        let file = self.bundle.as_ref()?.join("config.json");
        let text = read::file(&file, CAP).ok()?;
        let config: Value = serde_json::from_slice(&text).ok()?;
        let shown = escaped_path(&file);
        let annotations = config.get("annotations").and_then(Value::as_object);
        let asks = annotations.is_some_and(|all| all.keys().any(|key| asks_for_memory(key)));
        if !asks {
            return Some(Finding::new(
                Code::AnnotationMissing,
                format!(
                    "the configuration of container {name} has no annotation gpuslice.io/memory \
                     ({shown}), so none reached its runtime"
                ),
            ));
        }
        let has_hook = config
            .get("hooks")
            .is_some_and(|hooks| hooks.to_string().contains("gpuslice-hook"));
        let why = match has_hook {
            true => "names the hook, but no record of its slice exists",
            false => "has the annotation, but no hook of gpuslice",
        };
        Some(Finding::new(
            Code::HookNotRun,
            format!("the configuration of container {name} {why} ({shown})"),
        ))
    }
}

/// Checks whether an annotation asks for a slice: `gpuslice.io/memory`, `gpuslice.io/memory.0`,
/// `gpuslice.io/container.NAME.memory`.
fn asks_for_memory(key: &str) -> bool {
    let key = key.strip_prefix("gpuslice.io/");
    key.is_some_and(|key| key.split('.').any(|part| part == "memory"))
}

/// Returns the library's path in the container: beside the mounted slice file.
pub(super) fn library(case: &Case<'_>) -> PathBuf {
    case.slice.file.with_file_name(LIBRARY)
}

/// Returns a sentence about a container's /etc/ld.so.preload that does not name the library.
pub(super) fn preload_file(case: &Case<'_>) -> Option<String> {
    let (process, file) = (case.process, Path::new("/").join(PRELOAD));
    let library = library(case);
    let list = process.root.read(&file, process.creds, LIST);
    let shown = escaped_path(&file);
    let who = case.who();
    let Ok(list) = list else {
        return Some(format!("{shown} does not exist in the container of {who}"));
    };
    let separates = |byte: &u8| byte.is_ascii_whitespace() || *byte == b':';
    let lines = list.split(|byte| *byte == b'\n');
    let uncommented = lines.filter_map(|line| line.split(|byte| *byte == b'#').next());
    let mut names = uncommented.flat_map(|line| line.split(separates));
    let is_named = names.any(|name| name == library.as_os_str().as_bytes());
    (!is_named).then(|| {
        format!(
            "{shown} in the container of {who} does not name {}",
            escaped_path(&library)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_annotation_of_a_size_asks_for_a_slice() {
        for (key, asks) in [
            ("gpuslice.io/memory", true),
            ("gpuslice.io/memory.0", true),
            ("gpuslice.io/container.server.memory", true),
            ("gpuslice.io/total", false),
            ("example.com/memory", false),
        ] {
            assert_eq!(asks_for_memory(key), asks, "{key}");
        }
    }
}
