//! Files in the page cache, and processes that have them mapped.
//! Touches: cargo's folder for test files, the page cache.

use crate::support::{start, told};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

pub(crate) const MIB: usize = 1 << 20;

/// Makes a folder on a device, because /tmp may be in memory.
pub(crate) fn folder() -> TempDir {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // Some tests let other users read the folder.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

pub(crate) fn gpuslice() -> Command {
    Command::new(env!("CARGO_BIN_EXE_gpuslice"))
}

/// The content of a file: neighbouring bytes differ.
pub(crate) fn content(size: usize) -> Vec<u8> {
    (0u8..251).cycle().take(size).collect()
}

/// Writes a file and leaves its pages dirty.
pub(crate) fn dirty(path: &Path, size: usize) {
    File::create(path)
        .unwrap()
        .write_all(&content(size))
        .unwrap();
}

/// Writes a file that is completely cached and completely on the device.
pub(crate) fn cached(path: &Path, size: usize) {
    dirty(path, size);
    File::open(path).unwrap().sync_all().unwrap();
    let mut all = Vec::new();
    File::open(path).unwrap().read_to_end(&mut all).unwrap();
}

/// Runs a verb with `--json`. Returns its report and its exit status.
pub(crate) fn json(command: &mut Command) -> (Value, i32) {
    let (out, err, status) = told(command.arg("--json"));
    assert_eq!(err, "");
    (serde_json::from_str(&out).unwrap(), status)
}

pub(crate) fn drop_cache(paths: &[&Path], options: &[&str]) -> (Value, i32) {
    json(gpuslice().arg("drop-cache").args(paths).args(options))
}

pub(crate) fn residency(paths: &[&Path]) -> (Value, i32) {
    json(gpuslice().arg("residency").args(paths))
}

pub(crate) fn resident(path: &Path) -> u64 {
    let (said, status) = residency(&[path]);
    assert_eq!(status, 0);
    said["before"].as_u64().unwrap()
}

/// The only file of a report.
pub(crate) fn only(report: &Value) -> &Value {
    let files = report["files"].as_array().unwrap();
    assert_eq!(files.len(), 1, "{report}");
    &files[0]
}

pub(crate) fn names(report: &Value) -> Vec<String> {
    let name = |file: &Value| {
        let path = PathBuf::from(file["path"].as_str().unwrap());
        path.file_name().unwrap().to_str().unwrap().to_owned()
    };
    let files = report["files"].as_array().unwrap();
    let mut names: Vec<String> = files.iter().map(name).collect();
    names.sort();
    names
}

/// Starts a Python script, and waits for the line that it prints when it is ready.
pub(crate) fn python(script: &str, arguments: &[&Path]) -> Child {
    let mut command = Command::new("python3");
    command.args(["-c", script]).args(arguments);
    let (child, said) = start(command.stdin(Stdio::piped()));
    assert_eq!(said, "ready");
    child
}

pub(crate) const MAPS: &str = "
import mmap, sys
file = open(sys.argv[1], 'r+b')
held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
before = sum(held[::4096])
print('ready', flush=True)
sys.stdin.read()
sys.exit(sum(held[::4096]) != before)";

/// Ends a process by closing its standard input.
pub(crate) fn end(mut child: Child) {
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}
