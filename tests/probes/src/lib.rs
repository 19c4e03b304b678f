//! Compiles the C programs of this folder against the simulated driver and runs them.
//! Touches: the C compiler, `probes/` in the build output, child processes.

#[path = "../../containers/src/patience.rs"]
pub mod patience;

use gpuslice_config::ledger::{Ledger, Open};
use gpuslice_suite::place;
use gpuslice_suite::run::{Machine, Run};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// The routes by which a program can reach a function.
pub const ROUTES: [&str; 3] = ["plt", "dlsym", "procaddress"];

/// Lets one compiler run at a time, so that two tests that want the same program do not both write
/// it.
static COMPILING: Mutex<()> = Mutex::new(());

/// The libraries to which a program is linked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Linked {
    /// The driver, NVML and the runtime of this major version.
    All(u32),
    /// Nothing: the program opens the libraries that it needs.
    Nothing,
    /// A library, linked to the driver alone.
    DriverPlugin,
    /// A library, linked to the runtime of this major version alone.
    RuntimePlugin(u32),
    /// A library, linked to nothing.
    Interposer,
}

/// The file name of a runtime.
#[must_use]
pub fn runtime(major: u32) -> String {
    match major {
        11 => "libcudart.so.11.0".into(),
        _ => format!("libcudart.so.{major}"),
    }
}

/// Compiles `c/<source>.c`, and returns the path of the result.
///
/// # Panics
/// When the compiler is missing or complains of anything.
#[must_use]
pub fn compile(source: &str, linked: Linked) -> PathBuf {
    let _one = COMPILING.lock().unwrap_or_else(PoisonError::into_inner);
    let (library, major, libraries) = match linked {
        Linked::All(major) => (
            false,
            major,
            vec![
                "libcuda.so.1".into(),
                "libnvidia-ml.so.1".into(),
                runtime(major),
            ],
        ),
        Linked::Nothing => (false, 12, vec![]),
        Linked::DriverPlugin => (true, 0, vec!["libcuda.so.1".into()]),
        Linked::RuntimePlugin(major) => (true, major, vec![runtime(major)]),
        Linked::Interposer => (true, 0, vec![]),
    };
    let folder = place::target().join("probes");
    std::fs::create_dir_all(&folder)
        .unwrap_or_else(|error| panic!("cannot make {}: {error}", folder.display()));
    let end = if library { ".so" } else { "" };
    let place_of = folder.join(format!("{source}-{major}{end}"));
    let unfinished = folder.join(format!("unfinished.{}", std::process::id()));
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]);
    command.arg(format!("-DMAJOR={major}"));
    command.arg(format!("-DCUDART=\"{}\"", runtime(major)));
    if library {
        command.args(["-shared", "-fPIC"]);
    }
    if matches!(linked, Linked::RuntimePlugin(_)) {
        command.arg("-DPLUGIN_RUNTIME");
    }
    command.arg("-o").arg(&unfinished);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("c/{source}.c")));
    command.arg("-L").arg(place::sim());
    command.args(libraries.iter().map(|library| format!("-l:{library}")));
    command.args([
        "-ldl",
        "-pthread",
        "-Wl,--unresolved-symbols=ignore-in-shared-libs",
    ]);
    let output = patience::output_within(&mut command, patience::LIMIT)
        .unwrap_or_else(|error| panic!("cannot run cc ({error}): install gcc"));
    assert!(
        output.status.success(),
        "cc does not compile {source}.c: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    std::fs::rename(&unfinished, &place_of)
        .unwrap_or_else(|error| panic!("cannot keep {source}: {error}"));
    place_of
}

/// A simulated machine, with or without a slice.
pub struct Bench {
    machine: Machine,
    slice: Option<PathBuf>,
    ledger: Option<tempfile::TempDir>,
}

impl Bench {
    /// A machine without a slice.
    #[must_use]
    pub fn bare(scenario: &str) -> Bench {
        Bench {
            machine: Machine::new(scenario),
            slice: None,
            ledger: None,
        }
    }

    /// A machine with a slice file of these keys, written as JSON without the braces. The version
    /// and the path of the host's live meminfo are added.
    ///
    /// # Panics
    /// When the file cannot be written.
    #[must_use]
    pub fn sliced(scenario: &str, keys: &str) -> Bench {
        let machine = Machine::new(scenario);
        let file = machine.folder().join("slice.json");
        let mut text = String::from("{\"version\":1,");
        let meminfo = machine.state().join("meminfo");
        let _ = write!(text, "\"meminfo\":\"{}\",{keys}}}", meminfo.display());
        std::fs::write(&file, text)
            .unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
        Bench {
            machine,
            slice: Some(file),
            ledger: None,
        }
    }

    /// Like [`Bench::sliced`], with a ledger in which the slice's processes are counted.
    ///
    /// # Panics
    /// When a file cannot be written.
    #[must_use]
    pub fn counted(scenario: &str, keys: &str) -> Bench {
        // On tmpfs, where locks outlive their descriptors.
        let folder = tempfile::tempdir_in("/dev/shm")
            .unwrap_or_else(|error| panic!("cannot make a folder: {error}"));
        let ledger = folder.path().join("ledger");
        let path =
            std::ffi::CString::new(ledger.as_os_str().as_encoded_bytes()).unwrap_or_default();
        let (mode, devices) = (0o600, 1);
        let made = Ledger::open(&path, Open::Create { mode, devices });
        made.unwrap_or_else(|error| panic!("{}: {error}", ledger.display()));
        let keys = format!("\"ledger\":\"{}\",{keys}", ledger.display());
        Bench {
            ledger: Some(folder),
            ..Bench::sliced(scenario, &keys)
        }
    }

    /// A program on this machine, without the shim.
    #[must_use]
    pub fn run(&self, program: &Path) -> Run {
        let run = self.machine.place(Run::new(program));
        match &self.slice {
            Some(slice) => run.slice(slice),
            None => run,
        }
    }

    /// A neighbour on this machine, outside the slice.
    #[must_use]
    pub fn bare_run(&self, program: &Path) -> Run {
        self.machine.place(Run::new(program))
    }

    /// The output of a probe by this route, under the shim. A warning in the shim's log is a
    /// failure.
    #[must_use]
    pub fn probe(&self, source: &str, major: u32, route: &str) -> String {
        let program = compile(source, Linked::All(major));
        said(self.run(&program).arg(route).with_shim())
    }

    /// The ledger in which the slice's processes are counted.
    ///
    /// # Panics
    /// When the machine has no ledger.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        use std::os::unix::ffi::OsStrExt;
        let folder = self.ledger.as_ref().map(tempfile::TempDir::path);
        let path = folder
            .map(|folder| folder.join("ledger"))
            .unwrap_or_default();
        let path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
        Ledger::open(&path, Open::Existing).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A folder for whatever else the test writes.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.machine.folder()
    }
}

/// The output of a program that has succeeded and complained of nothing. A warning in the shim's log
/// is a failure, except that the slice has no ledger: these need none.
#[must_use]
pub fn said(run: Run) -> String {
    let mut answer = run.env("GPUSLICE_LOG", "warn").answer();
    let (_, complaints): (Vec<&str>, Vec<&str>) = answer
        .stderr
        .lines()
        .partition(|line| line.contains("the slice file names no ledger: "));
    answer.stderr = complaints.join("\n");
    answer.clean()
}
