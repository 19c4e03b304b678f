//! The real functions of the loaded Vulkan drivers of NVIDIA.
//! Touches: `vulkan_symbols.rs`, by inclusion; atomics; the loader, when a driver is new.
//! Law: a driver is one loaded object. What is known of it is forgotten when it is unloaded:
//! Khronos' loader opens and closes every driver several times.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::loader::elf::Object;
use crate::real::copies::{self, CopyId, CopyRecord, MOST_COPIES};
use crate::real::vulkan_abi::*;

macro_rules! vulkan_symbols {
    ($( fn $name:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty = $($hook:ident)::+ $(, also $alias:ident)? ; )*) => {
        /// A line of the table.
        #[expect(non_camel_case_types, reason = "C spelling")]
        #[derive(Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Function { $( $name ),* }

        const FUNCTIONS: usize = [$( stringify!($name) ),*].len();

        /// The function with this name.
        pub(crate) fn named(name: &CStr) -> Option<Function> {
            let name = name.to_bytes();
            $(
                if name == stringify!($name).as_bytes() $( || name == stringify!($alias).as_bytes() )? {
                    return Some(Function::$name);
                }
            )*
            None
        }

        /// The types of the real functions.
        #[expect(non_camel_case_types, reason = "C spelling")]
        pub(crate) mod real {
            use super::*;
            $( pub(crate) type $name = unsafe extern "C" fn($($ty),*) -> $ret; )*
        }
    };
}

include!("../vulkan_symbols.rs");

/// Functions that the hooks call themselves.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(crate) enum Own {
    GetDeviceProcAddr,
    MemoryProperties,
    Properties2,
}

const OWN: usize = 3;

struct Driver {
    functions: [AtomicPtr<c_void>; FUNCTIONS],
    own: [AtomicPtr<c_void>; OWN],
}

static COPIES: [CopyRecord; MOST_COPIES] = [const { CopyRecord::none() }; MOST_COPIES];

static DRIVERS: [Driver; MOST_COPIES] = [const {
    Driver {
        functions: [const { AtomicPtr::new(core::ptr::null_mut()) }; FUNCTIONS],
        own: [const { AtomicPtr::new(core::ptr::null_mut()) }; OWN],
    }
}; MOST_COPIES];

fn driver(copy: CopyId) -> Option<&'static Driver> {
    DRIVERS.get(usize::from(copy.0))
}

/// Whether a library is a Vulkan driver of NVIDIA, by its file's name.
pub(crate) fn is_nvidias(object: &Object) -> bool {
    const NAMES: [&[u8]; 2] = [b"libGLX_nvidia.so", b"libEGL_nvidia.so"];
    NAMES
        .iter()
        .any(|name| object.file_name().starts_with(name))
}

/// The number of a loaded driver. None: there are too many.
pub(crate) fn claim(object: &Object) -> Option<CopyId> {
    copies::claim_in(&COPIES, object, |copy| {
        if let Some(driver) = driver(copy) {
            for place in driver.functions.iter().chain(&driver.own) {
                place.store(core::ptr::null_mut(), Ordering::Release);
            }
        }
    })
}

/// Remembers the address of a real function.
pub(crate) fn learn(copy: CopyId, function: Function, address: *mut c_void) {
    if let Some(place) = driver(copy).and_then(|driver| driver.functions.get(function as usize)) {
        place.store(address, Ordering::Release);
    }
}

/// The address of a real function, or null.
pub(crate) fn known(copy: CopyId, function: Function) -> *mut c_void {
    driver(copy)
        .and_then(|driver| driver.functions.get(function as usize))
        .map_or(core::ptr::null_mut(), |place| place.load(Ordering::Acquire))
}

/// Asks a driver for the functions that the hooks call themselves, by an instance of the program.
pub(crate) fn learn_own(copy: CopyId, instance: VkInstance) {
    let ask = known(copy, Function::vk_icdGetInstanceProcAddr);
    // SAFETY: the driver's function of this name has this type; None is the null pointer.
    let ask = unsafe {
        core::mem::transmute::<*mut c_void, Option<real::vk_icdGetInstanceProcAddr>>(ask)
    };
    let (Some(ask), Some(driver)) = (ask, driver(copy)) else {
        return;
    };
    let names = [
        (Own::GetDeviceProcAddr, c"vkGetDeviceProcAddr"),
        (
            Own::MemoryProperties,
            c"vkGetPhysicalDeviceMemoryProperties",
        ),
        // The older name last, for instances that have only the extension.
        (Own::Properties2, c"vkGetPhysicalDeviceProperties2"),
        (Own::Properties2, c"vkGetPhysicalDeviceProperties2KHR"),
    ];
    for (own, name) in names {
        let Some(place) = driver.own.get(own as usize) else {
            return;
        };
        if place.load(Ordering::Acquire).is_null() {
            // SAFETY: the function's contract: a live instance of the program, and a C string.
            let found = unsafe { ask(instance, name.as_ptr()) };
            place.store(found, Ordering::Release);
        }
    }
}

fn own(copy: CopyId, own: Own) -> *mut c_void {
    driver(copy)
        .and_then(|driver| driver.own.get(own as usize))
        .map_or(core::ptr::null_mut(), |place| place.load(Ordering::Acquire))
}

/// `vkGetDeviceProcAddr` of a driver.
pub(crate) fn device_functions(copy: CopyId) -> Option<real::vkGetDeviceProcAddr> {
    // SAFETY: the driver's function of this name has this type; None is the null pointer.
    unsafe { core::mem::transmute(own(copy, Own::GetDeviceProcAddr)) }
}

/// `vkGetPhysicalDeviceMemoryProperties` of a driver.
pub(crate) fn memory_properties(copy: CopyId) -> Option<real::vkGetPhysicalDeviceMemoryProperties> {
    // SAFETY: the driver's function of this name has this type; None is the null pointer.
    unsafe { core::mem::transmute(own(copy, Own::MemoryProperties)) }
}

/// `vkGetPhysicalDeviceProperties2` of a driver.
pub(crate) fn properties2(
    copy: CopyId,
) -> Option<unsafe extern "C" fn(VkPhysicalDevice, *mut VkPhysicalDeviceProperties2)> {
    // SAFETY: the driver's function of this name has this type; None is the null pointer.
    unsafe { core::mem::transmute(own(copy, Own::Properties2)) }
}

/// A struct of this type in a chain.
///
/// # Safety
/// `next` is null or the start of a valid chain; structs of this type are a `T`.
pub(crate) unsafe fn chained<T>(mut next: *const VkBaseStructure, wanted: i32) -> Option<*const T> {
    // SAFETY: the caller guarantees the chain.
    while let Some(link) = unsafe { next.as_ref() } {
        if link.sType == wanted {
            return Some(next.cast());
        }
        next = link.pNext;
    }
    None
}
