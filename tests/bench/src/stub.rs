//! A driver that answers at once, a slice on it, and the shim in this process: what a call costs
//! there is what the shim costs.
//! Touches: a C compiler, a temporary folder, the environment of the program that it starts again.

use crate::target;
use gpuslice_config::ledger::{Ledger, Open};
use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `cuMemGetInfo_v2`.
pub type MemGetInfo = unsafe extern "C" fn(*mut usize, *mut usize) -> c_int;
/// `cuMemAlloc_v2`.
pub type MemAlloc = unsafe extern "C" fn(*mut u64, usize) -> c_int;
/// `cuMemFree_v2`.
pub type MemFree = unsafe extern "C" fn(u64) -> c_int;
type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// Where the started program finds its folder.
const FOLDER: &str = "GPUSLICE_BENCH_FOLDER";

/// The stub driver's only device, as a uuid.
pub const DEVICE: &str = "GPU-57575757-5757-5757-5757-575757575757";

/// A folder with the stub driver and a slice of it, that counts in a ledger.
pub struct Bench {
    folder: PathBuf,
}

impl Bench {
    /// Builds the driver and the slice, and starts this program again where it finds both; there,
    /// says where they are.
    ///
    /// # Panics
    /// When something cannot be built or started.
    #[must_use]
    pub fn begin() -> Bench {
        if let Some(folder) = std::env::var_os(FOLDER) {
            return Bench {
                folder: folder.into(),
            };
        }
        let shared = Path::new("/dev/shm");
        let place = shared.is_dir().then_some(shared);
        let folder = tempfile::tempdir_in(place.unwrap_or(Path::new("/tmp")));
        let bench = Bench {
            folder: folder.expect("a temporary folder").keep(),
        };
        bench.make();
        let this = std::env::current_exe().expect("this program has a path");
        let failed = Command::new(this)
            .args(std::env::args_os().skip(1))
            .env("LD_LIBRARY_PATH", &bench.folder)
            .env("GPUSLICE_CONFIG", bench.slice())
            .env(FOLDER, &bench.folder)
            .exec();
        panic!("cannot start again: {failed}")
    }

    fn make(&self) {
        let soname = "-Wl,-soname,libcuda.so.1";
        let words = ["-shared", "-fPIC", "-Wl,-Bsymbolic", soname];
        compile("stub_driver.c", &self.folder.join("libcuda.so.1"), &words);
        compile("start.c", &self.start(), &self.link());
        let slice = format!(
            r#"{{"version":1,"name":"bench","ledger":"{}","memory":{}}}"#,
            self.folder.join("ledger").display(),
            1u64 << 39
        );
        std::fs::write(self.slice(), slice).expect("the slice is written");
        let _made = self.ledger();
    }

    /// The words that link a program to the driver.
    #[must_use]
    pub fn link(&self) -> [String; 2] {
        [
            format!("-L{}", self.folder.display()),
            "-l:libcuda.so.1".to_owned(),
        ]
    }

    /// The slice's ledger.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        let path = self.folder.join("ledger");
        let path = CString::new(path.as_os_str().as_bytes()).expect("a path");
        Ledger::open(
            &path,
            Open::Create {
                mode: 0o600,
                devices: 1,
            },
        )
        .expect("a ledger")
    }

    /// The slice file.
    #[must_use]
    pub fn slice(&self) -> PathBuf {
        self.folder.join("slice.json")
    }

    /// A program that starts the driver, takes memory and asks.
    #[must_use]
    pub fn start(&self) -> PathBuf {
        self.folder.join("start")
    }

    /// The folder, to be a library path.
    #[must_use]
    pub fn folder(&self) -> OsString {
        self.folder.clone().into()
    }

    /// The driver's functions as programs find them without the shim and with it.
    ///
    /// # Panics
    /// When something is not there.
    #[must_use]
    pub fn functions(&self) -> [Functions; 2] {
        let driver = open(&self.folder.join("libcuda.so.1")).into_raw();
        let libc = open(Path::new("libc.so.6"));
        let shim = open(&target().join("release/libgpuslice.so"));
        // Both stay loaded for as long as the program runs.
        let libraries = [libc.into_raw(), shim.into_raw()];
        libraries.map(|library| {
            // SAFETY: the library was opened above, and its `dlsym` has libc's type.
            let library = unsafe { Library::from_raw(library) };
            // SAFETY: as above.
            let dlsym = *unsafe { library.get::<Dlsym>(b"dlsym\0") }.expect("dlsym is there");
            std::mem::forget(library);
            let functions = Functions {
                mem_get_info: find(dlsym, driver, c"cuMemGetInfo_v2"),
                mem_alloc: find(dlsym, driver, c"cuMemAlloc_v2"),
                mem_free: find(dlsym, driver, c"cuMemFree_v2"),
            };
            let retain: unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int =
                find(dlsym, driver, c"cuDevicePrimaryCtxRetain");
            let mut context = std::ptr::null_mut();
            // SAFETY: the driver's contract; the out-pointer is live.
            let code = unsafe { retain(&raw mut context, 0) };
            assert_eq!(code, 0, "the context is there");
            functions
        })
    }

    /// Removes the folder.
    pub fn end(self) {
        // Left behind, it harms nobody.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// What is measured.
#[derive(Clone, Copy)]
pub struct Functions {
    mem_get_info: MemGetInfo,
    mem_alloc: MemAlloc,
    mem_free: MemFree,
}

impl Functions {
    /// What is free.
    ///
    /// # Panics
    /// When the driver does not say.
    #[must_use]
    pub fn free(&self) -> usize {
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: both pointers are to live words.
        let code = unsafe { (self.mem_get_info)(&raw mut free, &raw mut total) };
        assert_eq!(code, 0, "cuMemGetInfo_v2 failed");
        free
    }

    /// Takes memory.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn take(&self, bytes: usize) -> u64 {
        let mut memory = 0;
        // SAFETY: the pointer is to a live word.
        let code = unsafe { (self.mem_alloc)(&raw mut memory, bytes) };
        assert_eq!(code, 0, "cuMemAlloc_v2 failed");
        memory
    }

    /// Gives it back.
    ///
    /// # Panics
    /// When the driver does not know it.
    pub fn give_back(&self, memory: u64) {
        // SAFETY: what `take` gave.
        let code = unsafe { (self.mem_free)(memory) };
        assert_eq!(code, 0, "cuMemFree_v2 failed");
    }
}

fn open(path: &Path) -> Library {
    // SAFETY: our own builds and libc; none has a constructor.
    unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_LOCAL) }.expect("the library loads")
}

/// A function of the driver, as a pointer of the vendor's type.
fn find<F: Copy>(dlsym: Dlsym, driver: *mut c_void, name: &CStr) -> F {
    // SAFETY: the driver stays open, the name ends with NUL.
    let found = unsafe { dlsym(driver, name.as_ptr()) };
    assert!(!found.is_null(), "{name:?} is not there");
    // SAFETY: every caller names the vendor's type of the function; both are pointers.
    unsafe { std::mem::transmute_copy::<*mut c_void, F>(&found) }
}

/// Compiles a program of this package.
///
/// # Panics
/// When it does not compile.
pub fn compile(source: &str, to: &Path, words: &[impl AsRef<OsStr>]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c").join(source);
    let mut command = Command::new("cc");
    command.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"]);
    let done = command.args([to, &source]).args(words).status();
    assert!(
        done.is_ok_and(|status| status.success()),
        "cc does not compile {}",
        source.display()
    );
}
