//! Slices by name: `run --slice`, `plan` and `env` with a slices file, and the unit of a slice.
//! Touches: children on simulated machines; folders of its own; /etc in a mount namespace.

mod env;
mod env_list;
mod names;
mod places;
mod plan;
mod unit;

use crate::support::{Home, Installation, told};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;
use tempfile::TempDir;

static HERE: LazyLock<Installation> = LazyLock::new(|| Installation::new("slices-file"));

/// A simulated machine that commands share, and a slices file.
struct Place {
    home: Home,
    state: TempDir,
    folder: TempDir,
    sim: &'static str,
}

impl Place {
    fn new(sim: &'static str, slices: &str) -> Place {
        let place = Place {
            home: Home::new(),
            state: tempfile::tempdir_in("/dev/shm").unwrap(),
            folder: tempfile::tempdir().unwrap(),
            sim,
        };
        fs::write(place.file(), slices).unwrap();
        place
    }

    /// The slices file.
    fn file(&self) -> PathBuf {
        self.folder.path().join("slices.toml")
    }

    /// The option that names it.
    fn file_option(&self) -> String {
        format!("--file={}", self.file().display())
    }

    /// Lets a command run on this machine, without slices files of the user who runs the tests.
    fn on<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        self.home
            .of(command)
            .env("GPUSLICE_SIM_STATE", self.state.path())
            .env("HOME", self.folder.path())
            .env_remove("XDG_CONFIG_HOME")
    }

    /// A command of gpuslice.
    fn gpuslice(&self, words: &[&str]) -> Command {
        let mut command = HERE.gpuslice();
        self.on(&mut command).args(words);
        command
    }

    /// `gpuslice run --slice NAME` on this machine, with more options, and a command if any.
    fn run(&self, name: &str, more: &[&str]) -> Command {
        let sim = format!("--sim={}", self.sim);
        let mut command = self.gpuslice(&["run", &sim, &self.file_option(), "--slice", name]);
        command.args(more);
        command
    }

    /// `gpuslice plan` of the file.
    fn plan(&self, more: &[&str]) -> (String, String, i32) {
        let file = self.file().display().to_string();
        let mut command = self.gpuslice(&["plan", "--sim", self.sim, &file]);
        told(command.args(more))
    }

    /// What slices run, by `gpuslice status`: name and pid.
    fn slices(&self) -> Vec<(String, u64)> {
        let (out, err, _) = told(&mut self.gpuslice(&["status", "--json"]));
        let status: serde_json::Value =
            serde_json::from_str(&out).unwrap_or_else(|_| panic!("{err}"));
        let slices = status["slices"].as_array().unwrap().iter();
        let slices = slices.map(|slice| {
            let name = slice["name"].as_str().unwrap().to_owned();
            (name, slice["pid"].as_u64().unwrap())
        });
        slices.collect()
    }

    /// Whether nothing is left of any slice.
    fn is_empty(&self) -> bool {
        let runtime = self.home.runtime.path();
        let files = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten();
        let private = files(runtime.to_owned())
            .any(|entry| entry.file_name().to_string_lossy().starts_with("gpuslice-"));
        let links = files(runtime.join("gpuslice")).any(|entry| entry.path().is_symlink());
        let tenants = files(self.state.path().join("tenants")).count();
        !private && !links && tenants == 0
    }
}

/// Prints the total in MiB, and what becomes of an allocation of 4 MiB more than is free and of one
/// that fits.
const PROBE: &str = r#"
import ctypes as c
cuda, by = c.CDLL("libcuda.so.1"), c.byref
context, free, total, memory = c.c_void_p(), c.c_size_t(), c.c_size_t(), c.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(by(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0 and cuda.cuMemGetInfo_v2(by(free), by(total)) == 0
take = lambda more: cuda.cuMemAlloc_v2(by(memory), c.c_size_t(free.value + more))
print(total.value >> 20, take(4 << 20), take(-(64 << 20)))
"#;
