//! The look-ups of Vulkan's functions: at NVIDIA's driver by dlsym, and then by the driver's own
//! three functions that return functions.
//! Touches: `vulkan_symbols.rs`, by inclusion; the real functions; the loader.
//! Law: a name that is not in the table gets the driver's own answer. Without a slice, the driver's
//! entry itself is returned.

use core::ffi::{CStr, c_char, c_void};
use core::ptr::null_mut;

use crate::hooks::vulkan;
use crate::interpose;
use crate::loader::dl::{self, Dlsym, RTLD_NEXT};
use crate::loader::elf;
use crate::log::Piece::{Dec, Raw, Str};
use crate::log::{self, Level, counters};
use crate::real::copies::{CopyId, MOST_COPIES};
use crate::real::functions::Call;
use crate::real::vulkan::{self as drivers, Function, real};
use crate::real::vulkan_abi::*;
use crate::slice;

/// The result where a driver's function is not known, which happens only if the driver was
/// unloaded.
trait Absent {
    const ABSENT: Self;
}

impl Absent for VkResult {
    const ABSENT: VkResult = VK_ERROR_INITIALIZATION_FAILED;
}

impl Absent for VkFunction {
    const ABSENT: VkFunction = null_mut();
}

impl Absent for () {
    const ABSENT: () = ();
}

macro_rules! vulkan_symbols {
    ($( fn $name:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty = $($hook:ident)::+ $(, also $alias:ident)? ; )*) => {
        $(
            #[expect(non_snake_case, reason = "C spelling")]
            mod $name {
                use super::*;

                pub(super) unsafe extern "C" fn entry<const COPY: u8>($($arg : $ty),*) -> $ret {
                    let copy = CopyId(COPY);
                    let address = drivers::known(copy, Function::$name);
                    // SAFETY: the driver's function of this name has this type; None is the null
                    // pointer.
                    let real = unsafe { core::mem::transmute::<*mut c_void, Option<real::$name>>(address) };
                    match real {
                        // SAFETY: the caller guarantees the contract of the function of this name.
                        Some(real) => unsafe { $($hook)::+(Call { copy, real } $(, $arg)*) },
                        None => Absent::ABSENT,
                    }
                }
            }
        )*

        /// Our entry point for a function in a copy of the driver.
        #[inline(never)]
fn entry(function: Function, copy: CopyId) -> *mut c_void {
            const { assert!(MOST_COPIES == 4) };
            // As in `entries`: a table of addresses would be relocated at every start.
            use core::hint::black_box as computed;
            let (function, copy) = (computed(function), computed(copy.0));
            $(
                if function == Function::$name {
                    return (match copy {
                        0 => computed($name::entry::<0> as *const ()),
                        1 => computed($name::entry::<1> as *const ()),
                        2 => computed($name::entry::<2> as *const ()),
                        _ => computed($name::entry::<3> as *const ()),
                    }) as *mut c_void;
                }
            )*
            null_mut()
        }
    };
}

include!("../vulkan_symbols.rs");

/// `dlsym` of a driver's entry. None: the call is libc's.
///
/// Only NVIDIA's driver is changed, by its file's name: a driver of another vendor that opens
/// NVIDIA's, as a wrapper does, reports that one's numbers. A look-up by NVIDIA's driver itself is
/// its own, so that no allocation is charged twice.
#[inline(never)]
pub(crate) fn of_driver(
    handle: *mut c_void,
    name: &CStr,
    caller: usize,
    dlsym: Dlsym,
) -> Option<*mut c_void> {
    let caller = dl::object_of(caller as *const c_void);
    if handle == RTLD_NEXT || caller.is_some_and(|caller| drivers::is_nvidias(&caller)) {
        return None;
    }
    // SAFETY: the caller guarantees dlsym's contract for its handle and name.
    let address = unsafe { dlsym(handle, name.as_ptr()) };
    Some(stand_in(name, address).unwrap_or(address))
}

/// Our entry for an entry of a driver. None: the driver's own is right.
#[inline(never)]
fn stand_in(name: &CStr, address: *mut c_void) -> Option<*mut c_void> {
    if address.is_null() {
        return None;
    }
    let object = dl::object_of(address).filter(drivers::is_nvidias)?;
    slice::current()?;
    let Some(copy) = drivers::claim(&object) else {
        counters::COPIES.warn(&[
            Raw(name.to_bytes()),
            Str(": more Vulkan drivers are loaded than "),
            Dec(MOST_COPIES as u64),
            Str(": passed through"),
        ]);
        return None;
    };
    Some(replace(copy, drivers::named(name)?, address))
}

/// Our entry for a function that a driver has returned.
#[inline(never)]
fn replace(copy: CopyId, function: Function, address: *mut c_void) -> *mut c_void {
    drivers::learn(copy, function, address);
    entry(function, copy)
}

/// What our hook of a look-up returns for a name that the driver has found.
///
/// # Safety
/// `name` is null or a C string; `instance` is null or an instance of the program.
#[inline(never)]
unsafe fn found(
    copy: CopyId,
    instance: VkInstance,
    name: *const c_char,
    address: VkFunction,
) -> VkFunction {
    if address.is_null() || name.is_null() {
        return address;
    }
    // SAFETY: the caller guarantees a C string.
    let name = unsafe { CStr::from_ptr(name) };
    let Some(function) = drivers::named(name) else {
        return address;
    };
    if dl::object_of(address).is_some_and(|object| object.dynamic == elf::own_dynamic()) {
        // The driver has looked up another one, which is hooked.
        return address;
    }
    if !instance.is_null() {
        drivers::learn_own(copy, instance);
    }
    if log::enabled(Level::Debug) {
        let line = [Raw(name.to_bytes()), Str(" by Vulkan: replaced")];
        log::say(Level::Debug, &line, None);
    }
    match function {
        // The entry that the driver exports is known already.
        Function::vk_icdGetInstanceProcAddr => entry(function, copy),
        _ => replace(copy, function, address),
    }
}

/// `vk_icdGetInstanceProcAddr`, `vkGetInstanceProcAddr` and `vk_icdGetPhysicalDeviceProcAddr`, which
/// have one type.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
#[inline(never)]
pub(crate) unsafe fn of_instance(
    call: Call<real::vk_icdGetInstanceProcAddr>,
    instance: VkInstance,
    name: *const c_char,
) -> VkFunction {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let address = unsafe { (call.real)(instance, name) };
    // SAFETY: as above.
    unsafe { found(call.copy, instance, name, address) }
}

/// `vkGetDeviceProcAddr`. A device that the slice does not limit gets the driver's own functions.
///
/// # Safety
/// As `of_instance`.
#[inline(never)]
pub(crate) unsafe fn of_device(
    call: Call<real::vkGetDeviceProcAddr>,
    device: VkDevice,
    name: *const c_char,
) -> VkFunction {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let address = unsafe { (call.real)(device, name) };
    match vulkan::device::is_limited(device) {
        // SAFETY: as above.
        true => unsafe { found(call.copy, null_mut(), name, address) },
        false => address,
    }
}
