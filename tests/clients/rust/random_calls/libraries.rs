//! The driver's libraries, and the ways to their functions.
//! Touches: the dynamic loader, cuGetProcAddress.

use crate::rng::Rng;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_void};

/// The names that the simulated libcuda exports, with their versions.
const CUDA_NAMES: &str = include_str!("../../../sim/cuda/names.txt");

/// The libraries, loaded before the first sequence. None of their functions was called then.
pub struct Libraries {
    pub cuda: *mut c_void,
    pub nvml: *mut c_void,
    pub runtimes: [*mut c_void; 3],
    pub vulkan: *mut c_void,
    pub opencl: *mut c_void,
    /// The exported names of libcuda.
    pub names: Vec<CString>,
    /// The exported functions of libcuda by their addresses, to say which one a look-up returned.
    by_address: HashMap<u64, String>,
}

fn open(name: &CStr, flags: i32) -> *mut c_void {
    // SAFETY: dlopen's contract; the name is a C string.
    unsafe { libc::dlopen(name.as_ptr(), flags) }
}

/// dlsym.
#[expect(
    clippy::disallowed_methods,
    reason = "a program, which asks as programs do"
)]
pub fn lookup(library: *mut c_void, name: &CStr) -> u64 {
    // SAFETY: dlsym's contract; the handle is from dlopen, or RTLD_DEFAULT.
    unsafe { libc::dlsym(library, name.as_ptr()) as u64 }
}

/// Calls the function at an address with integers and pointers.
///
/// # Safety
/// The function takes at most so many integers and pointers, and they are right for it.
pub unsafe fn call(address: u64, w: [u64; 11]) -> i32 {
    type Any = extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> i32;
    // SAFETY: the caller guarantees that a function is at this address.
    let function = unsafe { std::mem::transmute::<u64, Any>(address) };
    function(
        w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10],
    )
}

impl Libraries {
    pub fn open() -> Libraries {
        let cuda = open(c"libcuda.so.1", libc::RTLD_NOW | libc::RTLD_GLOBAL);
        let names: Vec<CString> = CUDA_NAMES
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .filter(|name| name.starts_with("cu"))
            .filter_map(|name| CString::new(name).ok())
            .collect();
        let mut by_address = HashMap::new();
        for name in &names {
            let address = lookup(cuda, name);
            let text = name.to_string_lossy().into_owned();
            by_address.entry(address).or_insert(text);
        }
        by_address.insert(0, String::from("null"));
        let runtimes = [c"libcudart.so.11.0", c"libcudart.so.12", c"libcudart.so.13"];
        Libraries {
            cuda,
            nvml: open(c"libnvidia-ml.so.1", libc::RTLD_NOW),
            runtimes: runtimes.map(|name| open(name, libc::RTLD_NOW)),
            vulkan: open(c"libGLX_nvidia.so.0", libc::RTLD_NOW),
            opencl: open(c"libnvidia-opencl.so.1", libc::RTLD_NOW),
            names,
            by_address,
        }
    }

    /// The exported function at an address.
    pub fn name_of(&self, address: u64) -> &str {
        self.by_address
            .get(&address)
            .map_or("an unknown function", String::as_str)
    }

    /// The address of a function, by one of the ways that programs take.
    pub fn find(&self, name: &'static str, rng: &mut Rng) -> u64 {
        let Ok(symbol) = CString::new(name) else {
            return 0;
        };
        if name.starts_with("nvml") {
            return lookup(self.nvml, &symbol);
        }
        match rng.below(10) {
            0 => lookup(libc::RTLD_DEFAULT, &symbol),
            1..4 => match self.by_driver(name) {
                0 => lookup(self.cuda, &symbol),
                found => found,
            },
            _ => lookup(self.cuda, &symbol),
        }
    }

    /// The function, if cuGetProcAddress knows it by its name without suffix, and means this one.
    fn by_driver(&self, name: &str) -> u64 {
        type Ask = extern "C" fn(*const c_char, *mut u64, i32, u64, *mut i32) -> i32;
        let base = name.split("_v").next().unwrap_or_default();
        let address = lookup(self.cuda, c"cuGetProcAddress_v2");
        let (Ok(base), false) = (CString::new(base), address == 0) else {
            return 0;
        };
        // SAFETY: the driver's function of that name.
        let ask = unsafe { std::mem::transmute::<u64, Ask>(address) };
        let (mut found, mut status) = (0u64, 0i32);
        // The version is newer than every function's.
        let rc = ask(base.as_ptr(), &raw mut found, 99_000, 0, &raw mut status);
        match rc == 0 && self.name_of(found) == name {
            true => found,
            false => 0,
        }
    }
}
