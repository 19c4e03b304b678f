//! Checks whether an image can load the library: by its libc, its machine and its libc's age.
//! Touches: files below the image's root, which may be anything.

use crate::inject::root::ContainerRoot;
use gpuslice_host::base::elf::{Elf, Machine};
use std::fmt;
use std::fs::File;

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

/// Returns whether a container's first program is known to be static. Returns false for a script.
#[must_use]
pub(crate) fn is_static(image: &ContainerRoot, program: Option<&str>) -> bool {
    let Some(program) = program else { return false };
    let file = match program.strip_prefix('/') {
        Some(path) => image.regular(path).ok(),
        None => PROGRAMS
            .iter()
            .find_map(|folder| image.regular(&format!("{folder}/{program}")).ok()),
    };
    let is_static = |file: &File| Elf::read(file).map(|elf| !elf.has_loader());
    file.as_ref().and_then(is_static).unwrap_or(false)
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
