//! The paths of gpuslice on a host.
//! Touches: its arguments, and the path of this program. Only the operator's own arguments can name
//! another root.

use std::path::{Path, PathBuf};

/// The folder in which a container sees its slice.
pub const MOUNT: &str = ".gpuslice";

/// The file in which the container's loader finds the library.
pub const PRELOAD: &str = "etc/ld.so.preload";

/// The host's folders and files.
#[derive(Clone, Debug)]
pub struct HostPaths {
    root: PathBuf,
    /// The folder below the root with this program's `bin` and `lib`.
    prefix: PathBuf,
}

/// Where packages install.
const PREFIX: &str = "usr";

impl Default for HostPaths {
    /// The paths of this host.
    fn default() -> HostPaths {
        match std::env::current_exe() {
            Ok(program) => HostPaths::beside("/", &program),
            Err(_) => HostPaths::below("/"),
        }
    }
}

/// The prefix, without the leading `/`, of a program that is installed in `PREFIX/bin`.
fn prefix_of(program: &Path) -> Option<PathBuf> {
    let bin = program.parent().filter(|bin| bin.ends_with("bin"))?;
    let prefix = bin.parent()?.strip_prefix("/").ok()?;
    (!prefix.as_os_str().is_empty()).then(|| prefix.to_path_buf())
}

impl HostPaths {
    /// Puts everything below another root, for tests.
    pub fn below(root: impl Into<PathBuf>) -> HostPaths {
        HostPaths {
            root: root.into(),
            prefix: PathBuf::from(PREFIX),
        }
    }

    /// The paths of a host on which this program is installed, below another root. A host with a
    /// read-only /usr has gpuslice in another folder, so the files beside the program are used.
    #[must_use]
    pub fn beside(root: impl Into<PathBuf>, program: &Path) -> HostPaths {
        HostPaths {
            root: root.into(),
            prefix: prefix_of(program).unwrap_or_else(|| PathBuf::from(PREFIX)),
        }
    }

    /// The folder that keeps the state of slices until the next boot.
    #[must_use]
    pub fn run(&self) -> PathBuf {
        self.root.join("run/gpuslice")
    }

    /// The lock file, which lets only one hook at a time change [`HostPaths::run`].
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.run().join("lock")
    }

    /// The list of this machine's GPUs, as `gpuslice devices --write` writes it.
    #[must_use]
    pub fn devices(&self) -> PathBuf {
        self.run().join("devices.json")
    }

    /// The folder with one file for each slice.
    #[must_use]
    pub fn slices(&self) -> PathBuf {
        self.run().join("slices")
    }

    /// The file of one slice.
    #[must_use]
    pub fn slice(&self, slice: &str) -> PathBuf {
        self.slices().join(format!("{slice}.json"))
    }

    /// The folder with one folder for each container.
    #[must_use]
    pub fn containers(&self) -> PathBuf {
        self.run().join("containers")
    }

    /// The folder that a container sees as `/.gpuslice`.
    #[must_use]
    pub fn container_root(&self, id: &str) -> PathBuf {
        self.containers().join(id).join("root")
    }

    /// The folder that a container without its slice sees as `/.gpuslice`.
    #[must_use]
    pub fn container_reason(&self, id: &str) -> PathBuf {
        self.containers().join(id).join("no-slice")
    }

    /// The folder with one mount for each slice.
    #[must_use]
    pub fn ledgers(&self) -> PathBuf {
        self.run().join("ledgers")
    }

    /// The mount with the ledger of a slice.
    #[must_use]
    pub fn ledger(&self, slice: &str) -> PathBuf {
        self.ledgers().join(slice)
    }

    /// The ledger of a slice.
    #[must_use]
    pub fn ledger_file(&self, slice: &str) -> PathBuf {
        self.ledger(slice).join("ledger")
    }

    /// The file on which the processes of a slice hold their locks, where its ledger is sealed.
    #[must_use]
    pub fn locks_file(&self, slice: &str) -> PathBuf {
        self.ledger(slice).join("locks")
    }

    /// The mount with the promises of every slice of unified memory.
    #[must_use]
    pub fn promises(&self) -> PathBuf {
        self.run().join("promises")
    }

    /// The folder with one meminfo page for each slice that has one.
    #[must_use]
    pub fn pages(&self) -> PathBuf {
        self.run().join("meminfo")
    }

    /// The meminfo page of a slice.
    #[must_use]
    pub fn page(&self, slice: &str) -> PathBuf {
        self.pages().join(slice)
    }

    /// The lock of the process that writes the meminfo pages.
    #[must_use]
    pub fn pages_lock(&self) -> PathBuf {
        self.run().join("meminfo.lock")
    }

    /// The operator's policy: below the prefix if a file is there, otherwise in /etc. A link that leads
    /// nowhere is a file: whoever has set it up has a policy, which then cannot be read.
    #[must_use]
    pub fn policy(&self) -> PathBuf {
        const POLICY: &str = "etc/gpuslice/config.toml";
        let beside = self.root.join(&self.prefix).join(POLICY);
        let is_absent = |error: std::io::Error| {
            use std::io::ErrorKind::{NotADirectory, NotFound};
            matches!(error.kind(), NotFound | NotADirectory)
        };
        let found = beside.symlink_metadata();
        match self.prefix == Path::new(PREFIX) || found.is_err_and(is_absent) {
            true => self.root.join(POLICY),
            false => beside,
        }
    }

    /// The library, unless the policy names another.
    #[must_use]
    pub fn library(&self) -> PathBuf {
        self.root
            .join(&self.prefix)
            .join("lib/gpuslice/libgpuslice.so")
    }

    /// The command, unless the policy names another.
    #[must_use]
    pub fn command(&self) -> PathBuf {
        self.root.join(&self.prefix).join("bin/gpuslice")
    }

    /// The host's live memory counters. Under another root, the path is below that root only if the
    /// file exists there.
    #[must_use]
    pub fn meminfo(&self) -> PathBuf {
        let own = self.root.join("proc/meminfo");
        match self.root == Path::new("/") || own.exists() {
            true => own,
            false => PathBuf::from("/proc/meminfo"),
        }
    }

    /// The socket of journald or syslogd.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.root.join("dev/log")
    }

    /// The socket of journald's own protocol.
    #[must_use]
    pub fn journal(&self) -> PathBuf {
        self.root.join("run/systemd/journal/socket")
    }

    /// The folder with the events of root's runs and of containers, and the history of runs.
    #[must_use]
    pub fn events(&self) -> PathBuf {
        self.root.join("var/log/gpuslice")
    }

    /// The root itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_in_another_folder_uses_the_files_beside_it() {
        for (program, prefix) in [
            ("/usr/bin/gpuslice-hook", Some("usr")),
            ("/opt/gpuslice/bin/gpuslice-hook", Some("opt/gpuslice")),
            ("/bin/gpuslice-hook", None),
            ("/src/target/release/gpuslice-hook", None),
        ] {
            let found = prefix_of(Path::new(program));
            assert_eq!(found, prefix.map(PathBuf::from), "{program}");
        }
    }

    #[test]
    fn the_policy_beside_the_program_comes_before_the_one_in_etc() {
        let root = tempfile::tempdir().unwrap();
        let hook = Path::new("/opt/gpuslice/bin/gpuslice-hook");
        let paths = HostPaths::beside(root.path(), hook);
        let at = |path: &str| root.path().join(path);
        assert_eq!(
            paths.library(),
            at("opt/gpuslice/lib/gpuslice/libgpuslice.so")
        );
        assert_eq!(paths.command(), at("opt/gpuslice/bin/gpuslice"));
        assert_eq!(paths.policy(), at("etc/gpuslice/config.toml"));
        let beside = at("opt/gpuslice/etc/gpuslice/config.toml");
        std::fs::create_dir_all(beside.parent().unwrap()).unwrap();
        std::fs::write(&beside, "").unwrap();
        assert_eq!(paths.policy(), beside);
        std::fs::remove_file(&beside).unwrap();
        std::os::unix::fs::symlink("/nowhere/config.toml", &beside).unwrap();
        assert_eq!(paths.policy(), beside);
        let packaged = HostPaths::below(root.path());
        assert_eq!(packaged.policy(), at("etc/gpuslice/config.toml"));
        assert_eq!(packaged.library(), at("usr/lib/gpuslice/libgpuslice.so"));
    }
}
