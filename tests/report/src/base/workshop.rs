//! The folder of a report: the compiled programs and drivers, slices, and room for a peer's files.
//! Touches: a C compiler; the folder, which goes with the report.

use super::{child, place};
use anyhow::{Context, Result};
use gpuslice_config::ledger::{Ledger, Open};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What the slices of a report limit: half of what the drivers report.
pub(crate) const LIMIT: u64 = 1 << 39;

/// The folder, once it has been made.
#[derive(Clone)]
pub(crate) struct Workshop {
    folder: PathBuf,
}

impl Workshop {
    /// Compiles all programs into a folder.
    pub(crate) fn make(folder: &Path) -> Result<Workshop> {
        let workshop = Workshop::of(folder);
        let drivers = workshop.drivers();
        std::fs::create_dir_all(&drivers).with_context(|| drivers.display().to_string())?;
        let own = place::source().join("tests/report/c");
        let benches = place::source().join("tests/bench/c");
        for (source, library, define) in [
            (own.join("driver.c"), "libcuda.so.1", "-DCUDA"),
            (own.join("nvml.c"), "libnvidia-ml.so.1", "-DNVML"),
            (benches.join("vulkan.c"), "libGLX_nvidia.so.0", "-DSTUB"),
            (
                benches.join("stub_opencl.c"),
                "libnvidia-opencl.so.1",
                "-DOPENCL",
            ),
        ] {
            let soname = format!("-Wl,-soname,{library}");
            // A driver that calls itself through the loader would call the preload.
            let words = ["-shared", "-fPIC", "-Wl,-Bsymbolic", &soname, define];
            compile(&source, &drivers.join(library), &words)?;
        }
        for program in ["calls", "start", "launch", "files"] {
            let source = own.join(format!("{program}.c"));
            compile(&source, &workshop.program(program), &["-pthread", "-ldl"])?;
        }
        let driver = drivers.join("libcuda.so.1");
        let linked = [OsStr::new("-ldl"), driver.as_os_str()];
        compile(&own.join("linked.c"), &workshop.program("linked"), &linked)?;
        let empty = folder.join("empty.c");
        std::fs::write(&empty, "").context("an empty source")?;
        let words = ["-shared", "-nostdlib", "-Wl,-z,noseparate-code"];
        compile(&empty, &workshop.empty(), &words)?;
        Ok(workshop)
    }

    /// The workshop that `make` has filled.
    pub(crate) fn of(folder: &Path) -> Workshop {
        Workshop {
            folder: folder.to_owned(),
        }
    }

    /// The folder of the drivers that answer at once.
    pub(crate) fn drivers(&self) -> PathBuf {
        self.folder.join("drivers")
    }

    /// A compiled program.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A library with nothing in it: the floor of any preload.
    pub(crate) fn empty(&self) -> PathBuf {
        self.folder.join("empty.so")
    }

    /// A new folder for one use.
    pub(crate) fn fresh(&self, name: &str) -> Result<PathBuf> {
        let folder = tempfile::Builder::new()
            .prefix(&format!("{name}-"))
            .tempdir_in(&self.folder)
            .context("a folder of a section")?;
        // The report removes the folder that it is in.
        Ok(folder.keep())
    }

    /// Writes a slice file with a ledger of its own. `keys`: further keys, each with a comma before.
    pub(crate) fn slice(&self, name: &str, keys: &str) -> Result<PathBuf> {
        let folder = self.fresh(name)?;
        let (file, ledger) = (folder.join("slice.json"), folder.join("ledger"));
        let path = CString::new(ledger.as_os_str().as_bytes()).context("a path")?;
        let how = Open::Create {
            mode: 0o600,
            devices: 1,
        };
        let made = Ledger::open(&path, how);
        anyhow::ensure!(
            made.is_ok(),
            "the ledger {} cannot be made",
            ledger.display()
        );
        let text = format!(
            r#"{{"version":1,"name":"report","ledger":"{}"{keys}}}"#,
            ledger.display()
        );
        std::fs::write(&file, text).with_context(|| file.display().to_string())?;
        Ok(file)
    }
}

/// Compiles a C file.
pub(crate) fn compile(source: &Path, to: &Path, words: &[impl AsRef<OsStr>]) -> Result<()> {
    let mut command = Command::new("cc");
    command
        .args([
            "-O2",
            "-Wall",
            "-Wextra",
            "-Wno-parentheses",
            "-Werror",
            "-o",
        ])
        .args([to, source])
        .args(words);
    let done = child::output(&mut command, Duration::from_secs(300));
    done.map(drop)
        .with_context(|| format!("cc does not compile {}", source.display()))
}
