//! Programs and drivers in C, to be measured.
//! Touches: a C compiler.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// Compiles a file of `c/`.
///
/// # Panics
/// When it does not compile.
pub fn compile(source: &str, to: &Path, words: &[impl AsRef<OsStr>]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c").join(source);
    let mut command = Command::new("cc");
    command.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"]);
    let done = command.args([to, &source]).args(words).status();
    assert!(
        done.is_ok_and(|status| status.success()),
        "cc does not compile {}",
        source.display()
    );
}
