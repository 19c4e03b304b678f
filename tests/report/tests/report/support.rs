//! Runs the report with its output in a folder of the test.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A report that is to be made.
pub(crate) struct Report {
    pub(crate) folder: TempDir,
    command: Command,
}

/// What it has written.
pub(crate) struct Written {
    pub(crate) json: Value,
    pub(crate) text: String,
    pub(crate) page: String,
}

impl Report {
    /// A quick report of these sections.
    pub(crate) fn of(sections: &str) -> Report {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuslice-report"));
        command
            .env_remove("LD_PRELOAD")
            .env_remove("PEER")
            .env_remove("PEER_ENV")
            .env("REPORT", "quick")
            .env("REPORT_SECTIONS", sections)
            .env("REPORT_OUTPUT", folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        Report { folder, command }
    }

    /// Sets a variable of its environment.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Report {
        self.command.env(name, value);
        self
    }

    /// Compiles a preload, and makes it the peer.
    pub(crate) fn peer(self, source: &str) -> Report {
        let (file, library) = (self.path("peer.c"), self.path("libpeer.so"));
        fs::write(&file, source).unwrap();
        let compiled = Command::new("cc")
            .args(["-O2", "-shared", "-fPIC", "-o"])
            .args([&library, &file])
            .status()
            .unwrap();
        assert!(compiled.success());
        self.env("PEER", library)
    }

    /// A file of the test.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts it.
    pub(crate) fn start(&mut self) -> Child {
        self.command.spawn().unwrap()
    }

    /// Makes the report, and reads it.
    pub(crate) fn written(&mut self) -> Written {
        let child = self.start();
        let id = child.id();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert_eq!(
            folders_of(id),
            Vec::<PathBuf>::new(),
            "temporary folders stay"
        );
        let read = |name: &str| fs::read_to_string(self.path(name)).unwrap();
        Written {
            json: serde_json::from_str(&read("report.json")).unwrap(),
            text: read("report.txt"),
            page: read("report.html"),
        }
    }
}

/// The temporary folders of a report, by its process id.
pub(crate) fn folders_of(id: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir("/dev/shm")
        .or_else(|_| fs::read_dir("/tmp"))
        .unwrap();
    let name = format!("gpuslice-report-{id}-");
    let is_its = |path: &PathBuf| {
        path.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with(&name)
    };
    entries
        .map(|entry| entry.unwrap().path())
        .filter(is_its)
        .collect()
}

/// The processes whose command line names a folder.
pub(crate) fn processes_in(folder: &Path) -> Vec<String> {
    let folder = folder.to_string_lossy().into_owned();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .map(|words| String::from_utf8_lossy(&words).into_owned())
        .filter(|words| words.contains(&folder))
        .collect()
}
