//! Finds the one reason why a process of a slice has not loaded the library.
//! Touches: the program's file, by reading it.

use super::{Case, container};
use crate::base::text::escaped_path;
use crate::commands::doctor::codes::Code;
use crate::commands::doctor::finding::Finding;
use crate::commands::doctor::membership::Origin;
use crate::commands::doctor::process::root::For;
use crate::driver::preload::{self, LIBRARY};
use crate::launch::program::{self, Reason};
use gpuslice_config::words::paths;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Returns the reason, the most fundamental first: a program that cannot load the library, then an
/// environment that does not name it, then a file that cannot be loaded.
pub(super) fn cause(case: &Case<'_>) -> Finding {
    by_program(case)
        .or_else(|| by_list(case))
        .unwrap_or_else(|| {
            let who = case.who();
            Finding::new(
                Code::LibraryNotLoaded,
                format!("ld.so has not loaded libgpuslice.so into {who}, although it was told to"),
            )
        })
}

/// Checks the program's file.
fn by_program(case: &Case<'_>) -> Option<Finding> {
    let process = case.process;
    let file = process.program().ok()?;
    let finding = |code, what: &str| Some(Finding::new(code, sentence(case, what)));
    match program::loader(&file, &process.executable) {
        Err(Reason::Static) => finding(
            Code::StaticProgram,
            "is statically linked, so no ld.so loads libgpuslice.so into it",
        ),
        Err(Reason::ThirtyTwoBit) => finding(
            Code::NarrowProgram,
            "is a 32-bit program, and libgpuslice.so is a 64-bit library",
        ),
        Err(Reason::Machine) => finding(
            Code::OtherProcessor,
            "is built for another kind of processor than libgpuslice.so",
        ),
        _ if process.is_secure => finding(
            Code::Privileged,
            "gained privileges when it was started (set-user-ID, set-group-ID or file \
             capabilities), so ld.so ignored LD_PRELOAD",
        ),
        _ => other_libc(case),
    }
}

/// Checks that the program is loaded by glibc's ld.so. The loader of musl may load the library, but
/// neither the library nor NVIDIA's driver works beside musl.
pub(super) fn other_libc(case: &Case<'_>) -> Option<Finding> {
    let process = case.process;
    let loader = program::loader(&process.program().ok()?, &process.executable);
    let what = match loader {
        Ok(Some(loader)) if !is_glibc(case, &loader) => format!(
            "is loaded by {}, not by glibc's ld.so, and libgpuslice.so works beside glibc only",
            loader.display()
        ),
        _ if is_musl(&process.executable) => {
            "is the loader of musl, and libgpuslice.so works beside glibc only".to_owned()
        }
        _ => return None,
    };
    Some(Finding::new(Code::OtherLibc, sentence(case, &what)))
}

fn sentence(case: &Case<'_>, what: &str) -> String {
    let program = escaped_path(&case.process.executable);
    format!("{program}, which {} executes, {what}", case.who())
}

fn is_musl(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default();
    name.as_bytes().starts_with(b"ld-musl") || name == "libc.musl-x86_64.so.1"
}

/// Checks that a loader is glibc's, by its name and by the name of the file that it leads to.
fn is_glibc(case: &Case<'_>, loader: &Path) -> bool {
    let real = case.process.root.resolved(loader);
    program::is_loader(loader) && !real.is_some_and(|real| is_musl(&real))
}

/// Checks the list of libraries that ld.so was given: the environment, or a container's file.
fn by_list(case: &Case<'_>) -> Option<Finding> {
    if case.is_mounted() {
        if let Some(edited) = container::preload_file(case) {
            return Some(Finding::new(Code::PreloadFileEdited, edited));
        }
        let library = container::library(case);
        return unloadable(case, &library);
    }
    let environment = &case.process.environment;
    if environment.is_overwritten() {
        return None;
    }
    let listed = environment.get(preload::VARIABLE.as_bytes());
    let listed = listed.unwrap_or_default().as_bytes();
    let mut names = listed.split(|byte| matches!(byte, b' ' | b':'));
    let named = names.find(|name| name.ends_with(LIBRARY.as_bytes()));
    let Some(named) = named else {
        return Some(lost(case));
    };
    let library = PathBuf::from(std::ffi::OsStr::from_bytes(named));
    unloadable(case, &library)
}

/// Reports a library that LD_PRELOAD does not name any more.
fn lost(case: &Case<'_>) -> Finding {
    let who = case.who();
    let environment = &case.process.environment;
    let has_config = environment.path(paths::CONFIG.to_bytes()).is_some();
    let slice = case.slice.name();
    match (&case.slice.origin, has_config) {
        (_, true) => Finding::new(
            Code::PreloadLost,
            format!(
                "LD_PRELOAD of {who} does not name libgpuslice.so, although GPUSLICE_CONFIG names \
                 the slice{}",
                preloading(case)
            ),
        ),
        (Origin::Ancestor { pid, name }, false) => Finding::new(
            Code::EnvironmentEmptied,
            format!(
                "{who} was started without the variables of slice {slice}; process {pid} ({}), \
                 its ancestor, still has them",
                crate::base::text::printable(name)
            ),
        ),
        (Origin::Printed, false) => Finding::new(
            Code::EnvironmentEmptied,
            format!(
                "{who} runs without the variables of slice {slice}, which gpuslice env has printed: \
                 it was started before they were set, or a program in between has emptied its \
                 environment"
            ),
        )
        .with_fix(format!(
            "set the variables and start it again: eval \"$(gpuslice env {slice})\""
        )),
        _ => Finding::new(
            Code::EnvironmentEmptied,
            format!(
                "gpuslice run started {who} for slice {slice}, and a program in between (env -i, \
                 sudo, su -) has emptied its environment"
            ),
        ),
    }
}

/// Returns the end of a sentence that names the ancestor with the right LD_PRELOAD.
fn preloading(case: &Case<'_>) -> String {
    case.slice
        .preloading
        .as_ref()
        .map_or(String::new(), |(pid, name)| {
            let name = crate::base::text::printable(name);
            format!("; process {pid} ({name}), its ancestor, still names it")
        })
}

/// Reports a library that ld.so was told to load, and could not.
fn unloadable(case: &Case<'_>, library: &Path) -> Option<Finding> {
    let (process, who) = (case.process, case.who());
    let shown = escaped_path(library);
    let opened = process.root.file(library, process.creds, For::Reading);
    match opened.err()?.kind() {
        ErrorKind::NotFound if process.is_elsewhere && library.exists() => Some(Finding::new(
            Code::MountNamespace,
            format!("{who} is in another mount namespace, in which {shown} does not exist"),
        )),
        ErrorKind::NotFound => Some(Finding::new(
            Code::LibraryMissing,
            format!("{shown}, which {who} was told to load, does not exist"),
        )),
        ErrorKind::PermissionDenied => Some(Finding::new(
            Code::OtherUser,
            format!(
                "{who} runs as user {}, who may not read {shown}",
                process.creds.shown()
            ),
        )),
        _ => None,
    }
}
