//! Finds the runtime that holds a container. It may not be the runtime that creates containers now: a
//! package may have installed runc on a host of crun, or the list of runtimes was changed.
//! Touches: the folders in which runc and crun keep their containers (reads).

use crate::wrapper::arguments::RuntimeCall;
use gpuslice_host::engine::runtimes;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// A runtime and the file that it keeps for each of its containers.
struct Kind {
    name: &'static str,
    file: &'static str,
}

const KINDS: [Kind; 2] = [
    Kind {
        name: "runc",
        file: "state.json",
    },
    Kind {
        name: "crun",
        file: "status",
    },
];

/// The runtime that holds this call's container, if it is another one than `found`, the first of the
/// runtimes that exists. `names`: the runtimes to try in turn; `executable`: this program.
pub(super) fn of(
    call: &RuntimeCall,
    executable: &Path,
    found: &Path,
    names: &[String],
) -> Option<PathBuf> {
    // The folder of a runtime of another name is not known. No runtime holds a container that is yet to
    // be created.
    let own = KINDS.iter().find(|kind| kind.is(found))?;
    if call.bundle.is_some() || own.holds_one(call) {
        return None;
    }
    let other = KINDS
        .iter()
        .find(|kind| kind.name != own.name && kind.holds_one(call))?;
    let listed = names.iter().filter(|name| other.is(Path::new(name)));
    let usual = other.name.to_owned();
    let all: Vec<String> = listed.cloned().chain([usual]).collect();
    runtimes::find(executable, &all).ok()
}

impl Kind {
    fn is(&self, program: &Path) -> bool {
        program.file_name() == Some(OsStr::new(self.name))
    }

    /// Whether the runtime holds a container that this call may name. The arguments of an option that is
    /// newer than gpuslice cannot be told from the container's id.
    fn holds_one(&self, call: &RuntimeCall) -> bool {
        let usual = || Path::new("/run").join(self.name);
        let folder = call.root.clone().unwrap_or_else(usual);
        let mut words = call.passed_on.iter();
        words.any(|word| {
            let is_name = Path::new(word).file_name() == Some(word);
            is_name && folder.join(word).join(self.file).is_file()
        })
    }
}

#[cfg(test)]
#[path = "holder_tests.rs"]
mod tests;
