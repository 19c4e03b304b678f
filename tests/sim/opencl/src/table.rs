//! The ICD interface: the platform, its dispatch table, and the one exported function.
//! Touches: a page for the table, which is only readable once it is filled. NVIDIA's table is made
//! at run time, too; whether it can be written afterwards is not known.

use crate::abi::*;
use crate::device;
use crate::{context, memory};
use std::ffi::{CStr, c_char, c_void};
use std::os::fd::AsRawFd;
use std::ptr::null;
use std::sync::OnceLock;

/// The entries of OpenCL 3.0.
const ENTRIES_3_0: usize = 149;
/// A driver for loaders of version 2 of cl_khr_icd has this in place of clGetPlatformIDs.
const ICD2_TAG: usize = 0x4F50_454E_434C_3331;
const UNLOAD_COMPILER: usize = 31;

/// The only platform.
#[repr(C)]
pub(crate) struct Platform {
    dispatch: usize,
}

extern "C" fn unsupported() -> i32 {
    INVALID_OPERATION
}

extern "C" fn no_object() -> usize {
    0
}

/// Functions that return an object or an address.
const MAKERS: &[usize] = &[
    22, 26, 27, 34, 56, 57, 65, 66, 67, 68, 69, 84, 92, 97, 99, 108, 119, 122, 133, 137, 138,
];

fn all() -> impl Iterator<Item = &'static Entry> {
    let lists = [ENTRIES, device::ENTRIES, context::ENTRIES, memory::ENTRIES];
    lists.into_iter().flatten()
}

/// Memory that holds the table, and can only be read. Where it is `sealed`, it maps a file that is
/// open for reading only: the kernel never makes that writable.
fn read_only(table: [usize; ENTRIES_3_0]) -> usize {
    let sealed = device::machine().is_some_and(|machine| machine.faults.opencl_sealed());
    let length = size_of_val(&table);
    let mut flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let mut access = libc::PROT_READ | libc::PROT_WRITE;
    let mut file = None;
    if sealed {
        let path = std::env::temp_dir().join(format!("gpuslice-sim-{}", std::process::id()));
        let bytes: Vec<u8> = table.iter().flat_map(|entry| entry.to_ne_bytes()).collect();
        let opened = std::fs::write(&path, bytes).and_then(|()| std::fs::File::open(&path));
        let opened = opened.expect("a file for the table");
        std::fs::remove_file(&path).expect("a file for the table");
        (flags, access) = (libc::MAP_SHARED, libc::PROT_READ);
        file = Some(opened);
    }
    let descriptor = file.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    // SAFETY: a new mapping at an address the kernel chooses.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), length, access, flags, descriptor, 0) };
    assert!(page != libc::MAP_FAILED, "no memory for one page");
    if !sealed {
        set(page.cast(), table);
        // SAFETY: the page was mapped above.
        unsafe { libc::mprotect(page, length, libc::PROT_READ) };
    }
    page as usize
}

/// The address of the dispatch table.
pub(crate) fn dispatch() -> usize {
    static TABLE: OnceLock<usize> = OnceLock::new();
    *TABLE.get_or_init(|| {
        let mut table = [unsupported as *const () as usize; ENTRIES_3_0];
        for maker in MAKERS {
            table[*maker] = no_object as *const () as usize;
        }
        for (index, _, function) in all().filter(|entry| entry.0 < ENTRIES_3_0) {
            table[*index] = *function as usize;
        }
        if device::machine().is_some_and(|machine| machine.faults.opencl_icd2()) {
            table[0] = ICD2_TAG;
            table[UNLOAD_COMPILER] = ICD2_TAG;
        }
        read_only(table)
    })
}

/// The platform's handle.
pub(crate) fn platform() -> usize {
    static PLATFORM: OnceLock<Platform> = OnceLock::new();
    let platform = PLATFORM.get_or_init(|| Platform {
        dispatch: dispatch(),
    });
    assert!(platform.dispatch != 0, "a platform has a table");
    (&raw const *platform) as usize
}

fn named(name: &CStr) -> *const () {
    match name.to_bytes() {
        b"clIcdGetPlatformIDsKHR" => clGetPlatformIDs as *const (),
        b"clGetExtensionFunctionAddress" => clGetExtensionFunctionAddress as *const (),
        b"clGetPlatformInfo" => clGetPlatformInfo as *const (),
        b"clIcdGetFunctionAddressForPlatformKHR" if icd2() => by_name as *const (),
        b"clIcdSetPlatformDispatchDataKHR" if icd2() => set_data as *const (),
        name => {
            // Functions of the table are found by name as extensions are, and by `by_name`.
            let is_extension = |entry: &&Entry| entry.0 >= ENTRIES_3_0;
            let found = all()
                .filter(is_extension)
                .find(|entry| entry.1.as_bytes() == name);
            found.map_or(null(), |entry| entry.2)
        }
    }
}

fn icd2() -> bool {
    device::machine().is_some_and(|machine| machine.faults.opencl_icd2())
}

/// clIcdGetFunctionAddressForPlatformKHR.
extern "C" fn by_name(_platform: usize, name: *const c_char) -> *const () {
    if name.is_null() {
        return null();
    }
    // SAFETY: the C contract of a name: a C string.
    let name = unsafe { CStr::from_ptr(name) };
    let found = all().find(|entry| entry.1.as_bytes() == name.to_bytes());
    found.map_or(null(), |entry| entry.2)
}

/// clIcdSetPlatformDispatchDataKHR.
extern "C" fn set_data(_platform: usize, _data: *mut c_void) -> i32 {
    SUCCESS
}

/// The only function that NVIDIA's library exports for loaders.
#[unsafe(no_mangle)]
extern "C" fn clGetExtensionFunctionAddress(name: *const c_char) -> *const () {
    if name.is_null() {
        return null();
    }
    // SAFETY: the C contract of a name: a C string.
    named(unsafe { CStr::from_ptr(name) })
}

entries! {
    0 fn clGetPlatformIDs(room: u32, platforms: *mut usize, count: *mut u32) -> i32 {
        if device::machine().is_none() {
            set(count, 0);
            return DEVICE_NOT_FOUND;
        }
        if room > 0 {
            set(platforms, platform());
        }
        set(count, 1);
        SUCCESS
    }

    1 fn clGetPlatformInfo(_platform: usize, name: u32, size: usize, value: *mut c_void, size_ret: *mut usize) -> i32 {
        let extensions = match icd2() {
            true => "cl_khr_icd cl_khr_device_uuid cl_nv_create_buffer cl_khr_icd2",
            false => "cl_khr_icd cl_khr_device_uuid cl_nv_create_buffer",
        };
        let bytes = match name {
            0x0900 => text("FULL_PROFILE"),
            0x0901 => text("OpenCL 3.0 CUDA 12.4.131"),
            0x0902 => text("NVIDIA CUDA"),
            0x0903 => text("NVIDIA Corporation"),
            0x0904 => text(extensions),
            0x0905 => 0u64.to_ne_bytes().to_vec(),
            0x0906 => (3u32 << 22).to_ne_bytes().to_vec(),
            0x0920 => text("NV"),
            _ => return INVALID_VALUE,
        };
        reply(&bytes, size, value, size_ret)
    }

    65 fn clGetExtensionFunctionAddressInTable(name: *const c_char) -> *const () {
        clGetExtensionFunctionAddress(name)
    }

    107 fn clGetExtensionFunctionAddressForPlatform(_platform: usize, name: *const c_char) -> *const () {
        clGetExtensionFunctionAddress(name)
    }
}
