//! What one query costs: the simulated driver bare, behind the shim without a slice, and in one.
//! Touches: the built shim and simulated driver, loaded into this process, the shim twice (a copy
//! of the file is a library of its own, so both states are measured in one run).
#![expect(
    clippy::expect_used,
    reason = "a bench that cannot start says why and stops"
)]

use criterion::Criterion;
use gpuslice_bench::{Variant, compare, target};
use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::unix::process::CommandExt;
use std::path::Path;

type MemGetInfo = unsafe extern "C" fn(*mut usize, *mut usize) -> c_int;
type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

fn open(path: &Path) -> Library {
    // SAFETY: the libraries are our own builds; none has a constructor.
    unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_LOCAL) }.expect("the library loads")
}

/// The function `name`, as a function pointer of type `F`.
fn function<F: Copy>(library: &Library, name: &CStr) -> F {
    // SAFETY: every caller names the vendor's type of the function it asks for.
    *unsafe { library.get::<F>(name.to_bytes_with_nul()) }.expect("the function is there")
}

fn ask(mem_get_info: MemGetInfo) -> usize {
    let (mut free, mut total) = (0usize, 0usize);
    // SAFETY: both pointers are to live words.
    let code = unsafe { mem_get_info(&raw mut free, &raw mut total) };
    assert_eq!(code, 0, "cuMemGetInfo_v2 failed");
    total
}

fn resolve(dlsym: Dlsym, handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: the handle is of a library that stays open, the name ends with NUL.
    let found = unsafe { dlsym(handle, name.as_ptr()) };
    assert!(!found.is_null());
    found
}

/// `cuMemGetInfo_v2` as programs find it.
fn by_dlsym(dlsym: Dlsym, handle: *mut c_void) -> MemGetInfo {
    let found = resolve(dlsym, handle, c"cuMemGetInfo_v2");
    // SAFETY: the vendor's type of this function.
    unsafe { std::mem::transmute::<*mut c_void, MemGetInfo>(found) }
}

/// Starts this program again with the simulated card and a slice in its environment.
fn again() -> std::io::Error {
    let folder = tempfile::tempdir().expect("a temporary folder").keep();
    let slice = folder.join("slice.json");
    std::fs::write(&slice, r#"{"version":1,"memory":8589934592}"#).expect("the slice is written");
    let this = std::env::current_exe().expect("this program has a path");
    std::process::Command::new(this)
        .args(std::env::args_os().skip(1))
        .env("LD_LIBRARY_PATH", target().join("sim"))
        .env("GPUSLICE_SIM", "rtx3090")
        .env("GPUSLICE_SIM_STATE", &folder)
        .env("GPUSLICE_BENCH_SLICE", &slice)
        .exec()
}

fn main() {
    let Some(slice) = std::env::var_os("GPUSLICE_BENCH_SLICE") else {
        panic!("cannot start again: {}", again());
    };
    let folder = Path::new(&slice)
        .parent()
        .expect("the slice is in a folder");
    let copy = folder.join("libgpuslice-in-a-slice.so");
    let shim_path = target().join("release/libgpuslice.so");
    std::fs::copy(&shim_path, &copy).expect("the shim is copied");

    let driver = open(Path::new("libcuda.so.1"));
    let init: unsafe extern "C" fn(u32) -> c_int = function(&driver, c"cuInit");
    let retain: unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int =
        function(&driver, c"cuDevicePrimaryCtxRetain");
    let set: unsafe extern "C" fn(*mut c_void) -> c_int = function(&driver, c"cuCtxSetCurrent");
    let mut context = std::ptr::null_mut();
    // SAFETY: the driver's own contract: initialise, retain, make current.
    assert_eq!(unsafe { init(0) }, 0);
    // SAFETY: as above; the out-pointer is live.
    assert_eq!(unsafe { retain(&raw mut context, 0) }, 0);
    // SAFETY: as above; the context was just retained.
    assert_eq!(unsafe { set(context) }, 0);

    let handle = driver.into_raw();
    let libc = open(Path::new("libc.so.6"));
    let real_dlsym: Dlsym = function(&libc, c"dlsym");
    let bare = by_dlsym(real_dlsym, handle);
    let without_slice = open(&shim_path);
    let shim_dlsym: Dlsym = function(&without_slice, c"dlsym");
    let identity = by_dlsym(shim_dlsym, handle);
    let linked_identity: MemGetInfo = function(&without_slice, c"cuMemGetInfo_v2");
    assert_eq!(ask(identity), ask(bare), "without a slice nothing changes");
    #[expect(clippy::disallowed_methods, reason = "this program has one thread yet")]
    // SAFETY: one thread.
    unsafe {
        std::env::set_var("GPUSLICE_CONFIG", &slice);
    }
    let in_slice = open(&copy);
    let sliced = by_dlsym(function(&in_slice, c"dlsym"), handle);
    let linked: MemGetInfo = function(&in_slice, c"cuMemGetInfo_v2");
    assert_eq!(ask(sliced), 8 << 30, "the slice is shown");
    assert_eq!(ask(linked), 8 << 30, "by a direct call too");

    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("cuMemGetInfo_v2");
    for (name, call) in [("bare", bare), ("no slice", identity), ("slice", sliced)] {
        group.bench_function(name, |bencher| bencher.iter(|| ask(call)));
    }
    group.finish();

    compare(
        "cuMemGetInfo_v2 (budget: 30 ns added)",
        400,
        2000,
        &mut [
            Variant::new("driver", || _ = ask(bare)),
            Variant::new("shim without a slice", || _ = ask(identity)),
            Variant::new("shim in a slice", || _ = ask(sliced)),
            Variant::new("direct call, driver in a local scope, no slice", || {
                _ = ask(linked_identity)
            }),
            Variant::new("direct call, driver in a local scope, slice", || {
                _ = ask(linked)
            }),
        ],
    );
    compare(
        "dlsym of a name that is none of ours",
        200,
        2000,
        &mut [
            Variant::new("libc", || _ = resolve(real_dlsym, handle, c"cuInit")),
            Variant::new("shim", || _ = resolve(shim_dlsym, handle, c"cuInit")),
        ],
    );
    compare(
        "dlsym of cuMemGetInfo_v2",
        200,
        2000,
        &mut [
            Variant::new("libc", || {
                _ = resolve(real_dlsym, handle, c"cuMemGetInfo_v2")
            }),
            Variant::new("shim", || {
                _ = resolve(shim_dlsym, handle, c"cuMemGetInfo_v2")
            }),
        ],
    );
    std::fs::remove_dir_all(folder).expect("the temporary folder goes");
}
