//! Checks, before a program is executed, whether the preload library will be loaded into it.
//! Touches: the first bytes of the program's file and of its interpreters.
//!
//! A program is looked up as `execvp` does, and a script's interpreter as the kernel does. The
//! check reads only a few bytes; a program that they do not identify is not reported.

use crate::driver::preload::MACHINE;
use gpuslice_host::base::elf::Elf;
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{AccessFlags, access, getgid, getuid};
use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Reasons why the library is not loaded into a program.
#[derive(Debug)]
pub(crate) enum Reason {
    /// The program is statically linked, so no loader runs.
    Static,
    /// The program has privileges of its own (set-user-ID, set-group-ID, file capabilities), for
    /// which the loader ignores preloads.
    Privileged(&'static str),
    /// The program is 32-bit, the library is not.
    ThirtyTwoBit,
    /// The program is built for another machine than the library.
    Machine,
    /// The loader of another C library starts the program.
    Loader(PathBuf),
    /// The file may be executed but not read, so its kind is unknown.
    Unreadable(io::Error),
}

/// A program that the slice does not limit.
#[derive(Debug, thiserror::Error)]
#[error("{program} {reason}", program = self.program.display(), reason = self.reason)]
pub(crate) struct Unreached {
    /// The program's file: that of the command, or of the interpreter of its script.
    pub program: PathBuf,
    pub reason: Reason,
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ALONE: &str = ", so libgpuslice.so is not loaded into it and the slice does not \
                             limit it; dynamic programs that it starts are limited";
        const WITH_ALL: &str = ", so libgpuslice.so is not loaded into it and the slice limits \
                                neither it nor what it starts";
        match self {
            Reason::Static => write!(out, "is statically linked{ALONE}"),
            Reason::Privileged(how) => write!(out, "{how}{WITH_ALL}"),
            Reason::ThirtyTwoBit => write!(out, "is a 32-bit program{ALONE}"),
            Reason::Machine => write!(out, "is built for another kind of processor{ALONE}"),
            Reason::Loader(loader) => {
                write!(
                    out,
                    "is loaded by {}, not by glibc{ALONE}",
                    loader.display()
                )
            }
            Reason::Unreadable(error) => write!(
                out,
                "cannot be read ({error}), so it is unknown whether libgpuslice.so is loaded into it"
            ),
        }
    }
}

/// The most levels of scripts interpreted by scripts that the kernel follows.
const DEPTH: usize = 5;

/// The most bytes of a script's first line that the kernel reads.
const LINE: u64 = 256;

/// Checks the program that `execvp` would start, and the interpreters that start it.
///
/// # Errors
/// When the library will not be loaded into one of them. A command that is not found is no error.
pub(crate) fn look(command: &OsStr) -> Result<(), Unreached> {
    let mut next = find(command);
    for _ in 0..DEPTH {
        let Some(program) = next else { return Ok(()) };
        let looked = look_at(&program);
        next = looked.map_err(|reason| Unreached { program, reason })?;
    }
    Ok(())
}

/// Programs that start a command as another user.
const USER_CHANGERS: [&str; 11] = [
    "capsh",
    "chpst",
    "chroot",
    "gosu",
    "runuser",
    "s6-setuidgid",
    "setpriv",
    "setuidgid",
    "start-stop-daemon",
    "su",
    "su-exec",
];

/// Returns the first program named in a command that starts programs as another user. Also searches
/// the text of a shell script in the command's arguments, but not a script in a file.
#[must_use]
pub(crate) fn user_changer(command: &[OsString]) -> Option<&'static str> {
    let words = command.iter().flat_map(|word| {
        let bytes = word.as_bytes();
        bytes.split(|byte| byte.is_ascii_whitespace() || b";&|()".contains(byte))
    });
    let mut names = words.filter_map(|word| word.rsplit(|byte| *byte == b'/').next());
    names.find_map(|name| {
        let mut known = USER_CHANGERS.into_iter();
        known.find(|known| known.as_bytes() == name)
    })
}

/// Checks that `execvp` finds the command and may execute it.
///
/// # Errors
/// The error number with which `execvp` would fail.
pub(crate) fn check(command: &OsStr) -> Result<(), Errno> {
    if find(command).is_some() {
        return Ok(());
    }
    let exists = |path: &PathBuf| path.exists();
    match command.as_bytes().contains(&b'/') {
        true => match fs::metadata(command) {
            Ok(_) => Err(Errno::EACCES),
            Err(error) => Err(Errno::from_raw(
                error.raw_os_error().unwrap_or(libc::ENOENT),
            )),
        },
        false if !command.is_empty() && candidates(command).any(|path| exists(&path)) => {
            Err(Errno::EACCES)
        }
        false => Err(Errno::ENOENT),
    }
}

/// Returns the files that a command without a slash may name, in the order of PATH.
fn candidates(command: &OsStr) -> impl Iterator<Item = PathBuf> {
    let path = env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let folders: Vec<PathBuf> = env::split_paths(&path).collect();
    folders.into_iter().map(move |folder| folder.join(command))
}

/// Returns the file that `execvp` starts.
pub(super) fn find(command: &OsStr) -> Option<PathBuf> {
    let executable = |path: &PathBuf| path.is_file() && access(path, AccessFlags::X_OK).is_ok();
    if command.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(command)).filter(executable);
    }
    candidates(command)
        .find(executable)
        .filter(|_| !command.is_empty())
}

/// Checks one file. Returns the interpreter if the file is a script.
fn look_at(program: &Path) -> Result<Option<PathBuf>, Reason> {
    let file = File::open(program).map_err(Reason::Unreadable)?;
    let mut start = Vec::new();
    let read = (&file).take(LINE).read_to_end(&mut start);
    read.map_err(Reason::Unreadable)?;
    if let Some(line) = start.strip_prefix(b"#!") {
        return Ok(interpreter(line));
    }
    // For a file that is neither a script nor ELF, only the kernel knows the handler that starts
    // it.
    if !start.starts_with(b"\x7fELF") {
        return Ok(None);
    }
    privileges(program)?;
    loader(&file, program)?.map_or(Ok(()), glibc).map(|()| None)
}

/// Checks whether an ELF program could load the library. Returns its loader; None for a loader
/// itself, and for a file that is not known well enough.
///
/// # Errors
/// When the library will not be loaded into it, whatever its loader is.
pub(crate) fn loader(file: &File, program: &Path) -> Result<Option<PathBuf>, Reason> {
    let mut start = [0; 5];
    match file.read_at(&mut start, 0).map(|_| start) {
        Ok([0x7f, b'E', b'L', b'F', 1]) => return Err(Reason::ThirtyTwoBit),
        Ok([0x7f, b'E', b'L', b'F', 2]) => {}
        _ => return Ok(None),
    }
    let Some(elf) = Elf::read(file) else {
        return Ok(None);
    };
    if elf.machine() != MACHINE {
        return Err(Reason::Machine);
    }
    match elf.interpreter() {
        Some(loader) => Ok(Some(PathBuf::from(OsString::from_vec(loader)))),
        // A loader may be started directly, with the program as its argument; it has no
        // interpreter.
        None if is_loader(program) => Ok(None),
        None => Err(Reason::Static),
    }
}

/// Checks whether a file is called as glibc's loader is.
pub(crate) fn is_loader(program: &Path) -> bool {
    is_called(program, "ld-linux")
}

/// Returns the program that a script's first line names; for `env`, the program that `env` looks
/// up.
fn interpreter(line: &[u8]) -> Option<PathBuf> {
    let line = line.split(|byte| *byte == b'\n').next()?;
    let mut words = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    let program = PathBuf::from(OsStr::from_bytes(words.next()?));
    if program.file_name() != Some(OsStr::new("env")) {
        return find(program.as_os_str());
    }
    let command = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='));
    find(OsStr::from_bytes(command?))
}

fn is_called(path: &Path, start: &str) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.as_bytes().starts_with(start.as_bytes())
}

/// Checks that the loader is glibc's. Distributions without glibc may provide its loader's name as
/// a link to their own loader.
fn glibc(loader: PathBuf) -> Result<(), Reason> {
    let real = fs::canonicalize(&loader).unwrap_or_else(|_| loader.clone());
    match is_loader(&loader) && !is_called(&real, "ld-musl") {
        true => Ok(()),
        false => Err(Reason::Loader(loader)),
    }
}

/// Checks that the program does not gain privileges that its caller does not have.
fn privileges(program: &Path) -> Result<(), Reason> {
    const SETUID: u32 = 0o4000;
    // Without the group's execute permission, the set-group-ID bit has another meaning.
    const SETGID: u32 = 0o2010;
    let Ok(facts) = fs::metadata(program) else {
        return Ok(());
    };
    let how = if facts.mode() & SETUID != 0 && facts.uid() != getuid().as_raw() {
        "is a set-user-ID program"
    } else if facts.mode() & SETGID == SETGID && facts.gid() != getgid().as_raw() {
        "is a set-group-ID program"
    } else if !getuid().is_root() && has_capabilities(program) {
        "has file capabilities"
    } else {
        return Ok(());
    };
    let ignored = prctl::get_no_new_privs().unwrap_or(false)
        || statvfs(program).is_ok_and(|found| found.flags().contains(FsFlags::ST_NOSUID));
    match ignored {
        true => Ok(()),
        false => Err(Reason::Privileged(how)),
    }
}

fn has_capabilities(program: &Path) -> bool {
    let Ok(path) = CString::new(program.as_os_str().as_bytes()) else {
        return false;
    };
    let (name, nothing) = (c"security.capability", std::ptr::null_mut());
    // SAFETY: both names are C strings that outlive the call, and the call writes nothing: the
    // buffer size is 0.
    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), nothing, 0) > 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn script(folder: &Path, name: &str, line: &str) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, line).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn programs_of_every_day_are_not_complained_about() {
        for program in [
            "sh",
            "/bin/true",
            "python3",
            "no-such-command",
            "/etc/passwd",
            "/",
        ] {
            assert!(look(OsStr::new(program)).is_ok(), "{program}");
        }
        let folder = tempfile::tempdir().unwrap();
        for (name, line) in [
            ("env", "#!/usr/bin/env python3\n"),
            ("split", "#!/usr/bin/env -S A=1 python3 -u\n"),
            ("plain", "#! /bin/sh -e"),
            ("nothing", "#!\n"),
            ("text", "hello\n"),
            ("empty", ""),
        ] {
            let path = script(folder.path(), name, line);
            assert!(look(path.as_os_str()).is_ok(), "{line}");
        }
        let endless = script(folder.path(), "endless", "");
        fs::write(&endless, format!("#!{}\n", endless.display())).unwrap();
        assert!(look(endless.as_os_str()).is_ok());
    }

    #[test]
    fn a_loader_that_is_named_like_another_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("ld-musl-x86_64.so.1"), "").unwrap();
        std::os::unix::fs::symlink("ld-musl-x86_64.so.1", path("ld-linux-x86-64.so.2")).unwrap();
        assert!(glibc(path("ld-linux-x86-64.so.2")).is_err());
        assert!(glibc(path("ld-linux-aarch64.so.1")).is_ok());
        assert!(glibc(path("ld-uClibc.so.1")).is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_first_line_is_followed_or_not_without_a_panic(
            line in proptest::collection::vec(proptest::num::u8::ANY, 0..300),
        ) {
            let _ = interpreter(&line);
        }
    }
}
