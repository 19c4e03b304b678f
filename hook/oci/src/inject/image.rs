//! Checks whether an image can load the library: by its libc, its machine and its libc's age.
//! Touches: files below the image's root, which may be anything.

use crate::inject::root::{self, ContainerRoot};
use gpuslice_host::base::elf::{Elf, Machine};
use gpuslice_host::base::read;
use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

/// The library's requirements on a libc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    machine: Machine,
    names: Vec<Vec<u8>>,
    versions: Vec<Vec<u8>>,
}

/// Why the library is not injected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unsuited {
    /// The image has only musl.
    Musl,
    /// The image has no dynamic loader: static programs, or nothing at all.
    NoLoader,
    /// The image has a loader, but no libc where distributions put it.
    NoLibc,
    /// The image is for another machine type.
    Machine,
    /// The libc lacks something that the library needs.
    Old(String),
}

impl fmt::Display for Unsuited {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsuited::Musl => {
                out.write_str("its image has musl, whose loader reads no /etc/ld.so.preload")
            }
            Unsuited::NoLoader => {
                out.write_str("its image has no dynamic loader (static programs cannot be reached)")
            }
            Unsuited::NoLibc => out.write_str("its image has no glibc in the usual folders"),
            Unsuited::Machine => out.write_str("its image is for another architecture"),
            Unsuited::Old(name) => write!(out, "its image's glibc is too old: it has no {name}"),
        }
    }
}

/// The paths of glibc's loader on the machines that we are built for, as programs name them.
const LOADERS: [&str; 2] = ["lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1"];

/// The paths of musl's loader on the same machines.
const MUSL: [&str; 2] = ["lib/ld-musl-x86_64.so.1", "lib/ld-musl-aarch64.so.1"];

/// The paths at which distributions put libc.so.6.
const LIBC: [&str; 8] = [
    "lib/x86_64-linux-gnu/libc.so.6",
    "lib/aarch64-linux-gnu/libc.so.6",
    "lib64/libc.so.6",
    "usr/lib/x86_64-linux-gnu/libc.so.6",
    "usr/lib/aarch64-linux-gnu/libc.so.6",
    "usr/lib64/libc.so.6",
    "usr/lib/libc.so.6",
    "lib/libc.so.6",
];

/// The folders of programs that are named without a path.
const PROGRAMS: [&str; 6] = [
    "usr/local/sbin",
    "usr/local/bin",
    "usr/sbin",
    "usr/bin",
    "sbin",
    "bin",
];

/// The list as the loader of glibc names it. Nixpkgs changes this name in its loader.
const LIST: &[u8] = b"/etc/ld.so.preload";

/// The longest loader that is searched for that name. Those of distributions have 1 MiB at most.
const LOADER: usize = 4 << 20;

/// Returns why the library does not reach a container's first program. Returns `None` for a script,
/// and in doubt.
#[must_use]
pub(crate) fn unreached(image: &ContainerRoot, program: Option<&str>) -> Option<&'static str> {
    let program = program?;
    let file = match program.strip_prefix('/') {
        Some(path) => image.regular(path).ok(),
        None => PROGRAMS
            .iter()
            .find_map(|folder| image.regular(&format!("{folder}/{program}")).ok()),
    }?;
    let elf = Elf::read(&file)?;
    if !elf.has_loader() {
        return Some(
            "its first program is static, so the slice limits only the dynamic programs that it \
             starts",
        );
    }
    let loader = String::from_utf8(elf.interpreter()?).ok()?;
    let loader = image.stands_at(loader.strip_prefix('/')?).ok()?;
    let is_loader = |known: OwnedFd| root::same(known.as_fd(), loader.as_fd()).unwrap_or(false);
    if LOADERS
        .iter()
        .any(|known| image.stands_at(known).is_ok_and(is_loader))
    {
        return None;
    }
    // It may be a copy.
    let text = read::whole(root::reopen(loader.as_fd()).ok()?, LOADER).ok()?;
    let reads_list = text.windows(LIST.len()).any(|found| found == LIST);
    (!reads_list).then_some(
        "its first program has a loader that reads no /etc/ld.so.preload, so the slice limits only \
         programs that the image's loader starts",
    )
}

impl Needs {
    /// Reads the requirements of a library. Returns `None` if the file is not a library.
    #[must_use]
    pub(crate) fn of(library: &File) -> Option<Needs> {
        let elf = Elf::read(library)?;
        Some(Needs {
            machine: elf.machine(),
            names: elf.undefined()?,
            versions: elf.needed_versions()?,
        })
    }

    /// Checks the image against the requirements. Returns the reason if it does not meet them.
    #[must_use]
    pub(crate) fn met_by(&self, image: &ContainerRoot) -> Option<Unsuited> {
        let loader = |names: &[&str]| names.iter().any(|name| image.has(name));
        if !loader(&LOADERS) {
            return Some(if loader(&MUSL) {
                Unsuited::Musl
            } else {
                Unsuited::NoLoader
            });
        }
        let mut found = Unsuited::NoLibc;
        for place in LIBC {
            let Ok(file) = image.regular(place) else {
                continue;
            };
            let Some(libc) = Elf::read(&file) else {
                continue;
            };
            match self.lacking(&libc) {
                None => return None,
                Some(unsuited) => found = unsuited,
            }
        }
        Some(found)
    }

    fn lacking(&self, libc: &Elf<'_>) -> Option<Unsuited> {
        if libc.machine() != self.machine {
            return Some(Unsuited::Machine);
        }
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let versions = match self.versions.is_empty() {
            true => Vec::new(),
            false => libc.defined_versions().unwrap_or_default(),
        };
        let version = self
            .versions
            .iter()
            .find(|version| !versions.contains(version));
        let name = || self.names.iter().find(|name| !libc.defines(name));
        let lacking = version.or_else(name)?;
        Some(Unsuited::Old(text(lacking)))
    }
}
