//! Containers of a runtime that is no longer the first.
//! Touches: folders of its own.

use super::*;
use crate::wrapper::arguments;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// A folder of containers, and a crun.
struct Host {
    folder: tempfile::TempDir,
}

impl Host {
    fn new() -> Host {
        let host = Host {
            folder: tempfile::tempdir().unwrap(),
        };
        let crun = host.crun();
        fs::write(&crun, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&crun, fs::Permissions::from_mode(0o755)).unwrap();
        host
    }

    fn crun(&self) -> PathBuf {
        self.folder.path().join("crun")
    }

    fn has(&self, id: &str, file: &str) {
        let folder = self.folder.path().join("state").join(id);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(file), "{}").unwrap();
    }

    fn holder(&self, found: &str, words: &[&str]) -> Option<PathBuf> {
        let root = self.folder.path().join("state");
        let own = ["--root", root.to_str().unwrap()];
        let words = own.iter().chain(words).map(Into::into);
        let call = arguments::read(words);
        let crun = self.crun().display().to_string();
        let own = self.folder.path().join("gpuslice-runtime");
        of(&call, &own, Path::new(found), &["runc".to_owned(), crun])
    }
}

#[test]
fn a_container_of_crun_stays_with_crun_after_runc_is_installed() {
    let host = Host::new();
    host.has("old", "status");
    for words in [
        &["kill", "old", "9"][..],
        &["exec", "--process", "/tmp/process.json", "old"],
        &["delete", "--force", "old"],
        &["--unknown", "value", "state", "old"],
    ] {
        assert_eq!(
            host.holder("/usr/bin/runc", words),
            Some(host.crun()),
            "{words:?}"
        );
    }
    // crun was found first, a new container is created, or nothing is known of the runtime.
    assert_eq!(host.holder("/usr/bin/crun", &["kill", "old"]), None);
    assert_eq!(host.holder("/usr/bin/runc", &["create", "old"]), None);
    assert_eq!(host.holder("/opt/nvidia-runtime", &["kill", "old"]), None);
}

#[test]
fn a_container_of_the_first_runtime_or_of_none_stays_there() {
    let host = Host::new();
    assert_eq!(host.holder("/usr/bin/runc", &["kill", "gone"]), None);
    // The runtime is gpuslice-runtime under another name.
    host.has("linked", "status");
    fs::hard_link(host.crun(), host.folder.path().join("gpuslice-runtime")).unwrap();
    let holder = host.holder("/usr/bin/runc", &["kill", "linked"]);
    assert_ne!(holder, Some(host.crun()));
    // No word with a slash is an id.
    host.has("elsewhere", "status");
    for word in ["./elsewhere", "../state/elsewhere", "", "."] {
        assert_eq!(host.holder("/usr/bin/runc", &["kill", word]), None);
    }
    host.has("new", "state.json");
    assert_eq!(host.holder("/usr/bin/runc", &["kill", "new"]), None);
}
