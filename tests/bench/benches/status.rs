//! What `gpuslice status` costs with 256 processes in 64 slices. Budget: 20 ms.
//! Touches: the built gpuslice, shim and simulated driver; 64 runs in folders of their own.
#![expect(
    clippy::expect_used,
    reason = "a bench that cannot start says why and stops"
)]

use gpuslice_bench::{Variant, compare, target};
use std::ffi::{c_int, c_uint, c_void};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// What a process of a slice is told by its first argument.
const HOLD: &str = "hold";
const SLICES: usize = 64;
const PROCESSES: usize = 4;

/// A process of a slice: takes memory of the GPU, says so, and holds it until its input ends.
fn hold() {
    type Init = unsafe extern "C" fn(c_uint) -> c_int;
    type Create = unsafe extern "C" fn(*mut *mut c_void, c_uint, c_int) -> c_int;
    type Allocate = unsafe extern "C" fn(*mut u64, usize) -> c_int;
    // SAFETY: the simulated driver has no constructor that could do harm.
    let driver = unsafe { libloading::Library::new("libcuda.so.1") }.expect("a driver");
    // SAFETY: these are CUDA's functions, with their types.
    let init = unsafe { driver.get::<Init>(b"cuInit") }.expect("cuInit");
    // SAFETY: as above.
    let create = unsafe { driver.get::<Create>(b"cuCtxCreate_v2") }.expect("cuCtxCreate_v2");
    // SAFETY: as above.
    let allocate = unsafe { driver.get::<Allocate>(b"cuMemAlloc_v2") }.expect("cuMemAlloc_v2");
    let (mut context, mut place) = (std::ptr::null_mut(), 0);
    // SAFETY: takes no pointers.
    assert_eq!(unsafe { init(0) }, 0);
    // SAFETY: `context` outlives the call.
    assert_eq!(unsafe { create(&raw mut context, 0, 0) }, 0);
    // SAFETY: `place` outlives the call.
    assert_eq!(unsafe { allocate(&raw mut place, 2 << 20) }, 0);
    std::io::stdout()
        .write_all(b"holds\n")
        .expect("the parent reads");
    let _ = std::io::stdin().read(&mut [0]);
}

/// Starts a slice with its processes, and waits until all of them hold memory.
fn slice(gpuslice: &Path, place: &Path, number: usize) -> Child {
    let this = std::env::current_exe().expect("this program has a path");
    let script = format!("for one in $(seq {PROCESSES}); do \"$0\" {HOLD} <&3 & done 3<&0; wait");
    let mut command = Command::new(gpuslice);
    command
        .args(["run", "--sim=2xh200", "--memory=4GiB", "--overcommit"])
        .arg(format!("--name=worker-{number}"))
        .args(["--", "sh", "-c", &script])
        .arg(this)
        .env("XDG_RUNTIME_DIR", place)
        .env("XDG_STATE_HOME", place)
        .env("GPUSLICE_SIM_STATE", place.join("machine"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().expect("gpuslice starts");
    let out = BufReader::new(child.stdout.take().expect("a pipe was asked for"));
    let said = out.lines().take(PROCESSES).filter(Result::is_ok).count();
    assert_eq!(said, PROCESSES, "all processes hold memory");
    child
}

fn status(gpuslice: &Path, place: &Path, options: &[&str]) -> String {
    let output = Command::new(gpuslice)
        .arg("status")
        .args(options)
        .env("XDG_RUNTIME_DIR", place)
        .output()
        .expect("gpuslice starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("a text")
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some(HOLD) {
        return hold();
    }
    let gpuslice = target().join("release/gpuslice");
    let place = tempfile::tempdir_in("/dev/shm").expect("a folder on tmpfs");
    let place = place.path();
    let slices: Vec<Child> = (0..SLICES)
        .map(|number| slice(&gpuslice, place, number))
        .collect();
    let json = status(&gpuslice, place, &["--json"]);
    let counted = json.matches("\"driver_used\": 5").count();
    assert!(counted >= SLICES * PROCESSES, "{counted} of them: {json}");
    compare(
        &format!(
            "gpuslice status, {PROCESSES} processes in each of {SLICES} slices (budget: 20 ms)"
        ),
        40,
        1,
        &mut [
            Variant::new("a program that does nothing", || {
                _ = Command::new("true").status();
            }),
            Variant::new("gpuslice --version", || {
                _ = Command::new(&gpuslice).arg("--version").output();
            }),
            Variant::new("gpuslice status", || _ = status(&gpuslice, place, &[])),
            Variant::new("gpuslice status --json", || {
                _ = status(&gpuslice, place, &["--json"]);
            }),
        ],
    );
    for mut slice in slices {
        drop(slice.stdin.take());
        _ = slice.wait();
    }
}
