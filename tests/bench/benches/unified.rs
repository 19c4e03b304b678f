//! What a query costs on unified memory: while a reading of the host is young, and when the host is
//! read for it; from the simulator's file, from the kernel, and with the promises of neighbours.
//! Touches: the built shim and simulated driver, loaded into this process once for each slice (a
//! copy of the file is a library of its own).
#![expect(
    clippy::expect_used,
    reason = "a bench that cannot start says why and stops"
)]
#![expect(clippy::print_stdout, reason = "the result of a bench is its output")]

use gpuslice_bench::{Variant, compare, target};
use gpuslice_config::ledger::{Ledger, Open};
use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

type MemGetInfo = unsafe extern "C" fn(*mut usize, *mut usize) -> c_int;
type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

const FOLDER: &str = "GPUSLICE_BENCH_FOLDER";
/// So much that the host, be it this one, has more.
const BUDGET: u64 = 4 << 30;

fn open(path: &Path) -> Library {
    // SAFETY: the libraries are our own builds; none has a constructor.
    unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_LOCAL) }.expect("the library loads")
}

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

/// Starts this program again on a simulated GB10.
fn again() -> std::io::Error {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder").keep();
    let this = std::env::current_exe().expect("this program has a path");
    std::process::Command::new(this)
        .args(std::env::args_os().skip(1))
        .env("LD_LIBRARY_PATH", target().join("sim"))
        .env("GPUSLICE_SIM", "gb10")
        .env("GPUSLICE_SIM_STATE", &folder)
        .env(FOLDER, &folder)
        .exec()
}

/// A slice of the machine, in a copy of the library.
struct Slice {
    name: &'static str,
    mem_get_info: MemGetInfo,
}

fn slice(folder: &Path, handle: *mut c_void, name: &'static str, keys: &str) -> Slice {
    let place = |what: &str| folder.join(format!("{}.{what}", name.replace([' ', ','], "-")));
    let (copy, file, ledger) = (place("so"), place("json"), place("ledger"));
    std::fs::copy(target().join("release/libgpuslice.so"), &copy).expect("the shim is copied");
    let path = std::ffi::CString::new(ledger.as_os_str().as_encoded_bytes()).expect("a path");
    let (mode, devices) = (0o600, 1);
    Ledger::open(&path, Open::Create { mode, devices }).expect("the ledger is made");
    let uuid = "GPU-b10aaaaa-4444-4555-8666-777788880000";
    let text = format!(
        r#"{{"version":1,"ledger":"{}","devices":[{{"uuid":"{uuid}","memory":{BUDGET},"integrated":true}}],{keys}}}"#,
        ledger.display()
    );
    std::fs::write(&file, text).expect("the slice is written");
    #[expect(clippy::disallowed_methods, reason = "this program has one thread yet")]
    // SAFETY: one thread.
    unsafe {
        std::env::set_var("GPUSLICE_CONFIG", &file);
    }
    let library = open(&copy);
    let dlsym: Dlsym = function(&library, c"dlsym");
    // SAFETY: the handle is of a library that stays open, the name ends with NUL.
    let found = unsafe { dlsym(handle, c"cuMemGetInfo_v2".as_ptr()) };
    assert!(!found.is_null());
    // SAFETY: the vendor's type of this function.
    let mem_get_info = unsafe { std::mem::transmute::<*mut c_void, MemGetInfo>(found) };
    // The slice is read here, with its own environment.
    ask(mem_get_info);
    std::mem::forget(library);
    Slice { name, mem_get_info }
}

/// How long something takes that is done a millisecond after the last time: the best tenth, and
/// the median.
fn alone(name: &str, work: impl Fn()) {
    let mut times: Vec<Duration> = (0..2000)
        .map(|_| {
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(1) {
                std::hint::spin_loop();
            }
            let start = Instant::now();
            work();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    let [tenth, median] = [200, 1000].map(|place| {
        let time: &Duration = times.get(place).expect("two thousand");
        time.as_secs_f64() * 1e6
    });
    println!("  {name:<44} best tenth {tenth:>6.2} us  median {median:>6.2} us");
}

/// What the file alone costs: opened, read once, closed.
fn read(path: &Path) {
    let mut head = [0u8; 2048];
    let mut file = std::fs::File::open(path).expect("it opens");
    let read = std::io::Read::read(&mut file, &mut head);
    assert!(read.is_ok_and(|read| read > 0));
}

fn main() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        panic!("cannot start again: {}", again());
    };
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
    let bare: MemGetInfo = function(&driver, c"cuMemGetInfo_v2");
    let handle = driver.into_raw();

    let promises = folder.join("promises");
    std::fs::create_dir(&promises).expect("a folder");
    for name in ["own", "a", "b", "c"] {
        std::fs::write(promises.join(format!("{}.{name}", 10u64 << 30)), [0; 4096])
            .expect("a promise");
    }
    let live = format!(r#""meminfo":"{}/meminfo""#, folder.display());
    let promised = format!(
        r#"{live},"promises":"{}","promise":"{}/{}.own""#,
        promises.display(),
        promises.display(),
        10u64 << 30
    );
    let slices = [
        slice(&folder, handle, "meminfo on tmpfs", &live),
        slice(
            &folder,
            handle,
            "the kernel's meminfo",
            r#""meminfo":"/proc/meminfo""#,
        ),
        slice(
            &folder,
            handle,
            "three neighbours, meminfo on tmpfs",
            &promised,
        ),
    ];
    let mut variants = vec![Variant::new("driver", move || _ = ask(bare))];
    for slice in &slices {
        let call = slice.mem_get_info;
        variants.push(Variant::new(slice.name, move || _ = ask(call)));
    }
    compare(
        "cuMemGetInfo_v2 on unified memory, the host read less than a millisecond ago (budget: 150 ns)",
        400,
        2000,
        &mut variants,
    );
    println!("\nthe same when the host is read for it (budget: 3 us)");
    alone("driver", || _ = ask(bare));
    alone("reading a file on tmpfs, alone", || {
        read(&folder.join("meminfo"))
    });
    alone("reading the kernel's file, alone", || {
        read(Path::new("/proc/meminfo"))
    });
    for slice in &slices {
        alone(slice.name, || _ = ask(slice.mem_get_info));
    }
    std::fs::remove_dir_all(folder).expect("the folder goes");
}
