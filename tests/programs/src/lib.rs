//! Writes the programs that tests start.
//! Touches: the given files; a child for each.
//! Law: this process never has such a file open for writing. A child that another thread starts at that
//! moment would inherit the descriptor, and the kernel starts no program that is open for writing
//! (ETXTBSY).

#![expect(
    clippy::expect_used,
    reason = "a test that cannot write its program fails"
)]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a program or a script, which every user may execute.
///
/// # Panics
/// When it cannot be written.
pub fn write_program(path: &Path, contents: impl AsRef<[u8]>) {
    let mut writer = Command::new("sh");
    writer.args(["-c", "cat >\"$0\" && chmod 755 \"$0\""]);
    let mut writer = writer
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("sh starts");
    let mut pipe = writer.stdin.take().expect("a pipe");
    pipe.write_all(contents.as_ref()).expect("the contents");
    drop(pipe);
    let ended = writer.wait().expect("its end");
    assert!(ended.success(), "{}: {ended}", path.display());
}

/// Copies a program, with its mode.
///
/// # Panics
/// When it cannot be copied.
pub fn copy_program(from: &Path, to: &Path) {
    let mut copy = Command::new("cp");
    let ended = copy.args([from, to]).status().expect("cp starts");
    assert!(ended.success(), "{}: {ended}", to.display());
}
