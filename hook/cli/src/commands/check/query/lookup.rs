//! Looks up the functions of one library, once a route has loaded it.
//! Touches: the dynamic linker, cuGetProcAddress.

use super::abi::call;
use super::apis::Name;
use super::codes;
use super::dl::{self, Handle, Symbol};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;

/// The end of the error message for a function that a library does not have.
pub(crate) const NOT_FOUND: &str = " is not found";

/// The way in which a name is looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lookup {
    /// dlsym, called by this program.
    Dlsym(Handle),
    /// The address to which a linked library's reference was bound, from its `gpuslice_linked`.
    Linked(Symbol),
    /// dlsym, called by a linked library through its `gpuslice_dlsym`.
    LibraryDlsym(Symbol, Handle),
    /// cuGetProcAddress.
    ProcAddress(ProcAddress),
}

impl Lookup {
    /// Creates the lookup of the addresses to which the references of the linked library at
    /// `object` were bound.
    pub(crate) fn linked(object: Handle) -> Result<Lookup, String> {
        Ok(Lookup::Linked(own(object, c"gpuslice_linked")?))
    }

    /// Creates the lookup by dlsym with the handle `place`, called by the linked library at
    /// `object`.
    pub(crate) fn library_dlsym(object: Handle, place: Handle) -> Result<Lookup, String> {
        Ok(Lookup::LibraryDlsym(own(object, c"gpuslice_dlsym")?, place))
    }

    /// Creates the lookup that a static libcudart performs. CUDA 12 and 13 begin with
    /// cuGetProcAddress_v2, CUDA 11 with cuGetProcAddress. CUDA 10 used only dlsym.
    pub(crate) fn as_static_cudart(driver: Handle) -> Lookup {
        ProcAddress::exported(driver, c"cuGetProcAddress_v2", true, 0)
            .or_else(|_| ProcAddress::exported(driver, c"cuGetProcAddress", false, 0))
            .map_or(Lookup::Dlsym(driver), Lookup::ProcAddress)
    }

    /// Finds the function with that name.
    pub(crate) fn find(self, name: &Name) -> Result<Symbol, String> {
        let not_found = || format!("{}{NOT_FOUND}", name.export);
        match self {
            Lookup::Dlsym(place) => {
                let name = dl::c_name(name.export).ok_or_else(not_found)?;
                dl::symbol(place, &name).ok_or_else(not_found)
            }
            Lookup::Linked(linked) => {
                let name = dl::c_name(name.export).ok_or_else(not_found)?;
                // SAFETY: `linked` is gpuslice_linked of linked.c, and this is its prototype.
                let linked = unsafe {
                    std::mem::transmute::<Symbol, unsafe extern "C" fn(*const c_char) -> *mut c_void>(
                        linked,
                    )
                };
                // SAFETY: the function reads a C string and returns an address.
                NonNull::new(unsafe { linked(name.as_ptr()) }).ok_or_else(not_found)
            }
            Lookup::LibraryDlsym(dlsym, place) => {
                let name = dl::c_name(name.export).ok_or_else(not_found)?;
                // SAFETY: `dlsym` is gpuslice_dlsym of linked.c, and this is its prototype.
                let dlsym = unsafe {
                    std::mem::transmute::<
                        Symbol,
                        unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void,
                    >(dlsym)
                };
                // SAFETY: as for dlsym: `place` stays valid, and the name is a C string.
                NonNull::new(unsafe { dlsym(place.raw(), name.as_ptr()) }).ok_or_else(not_found)
            }
            Lookup::ProcAddress(asked) => asked.find(name.asked, name.version),
        }
    }
}

fn own(object: Handle, name: &CStr) -> Result<Symbol, String> {
    dl::symbol(object, name).ok_or_else(|| format!("{name:?} is not in gpuslice's own library"))
}

/// One of the versions of cuGetProcAddress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcAddress {
    function: Symbol,
    /// CUDA 12 added a fifth argument, the status.
    with_status: bool,
    flags: u64,
}

impl ProcAddress {
    /// Returns the version that the driver exports under `name`.
    pub(crate) fn exported(
        driver: Handle,
        name: &'static CStr,
        with_status: bool,
        flags: u64,
    ) -> Result<ProcAddress, String> {
        let function = dl::symbol(driver, name)
            .ok_or_else(|| format!("the driver has no {}", name.to_string_lossy()))?;
        Ok(ProcAddress {
            function,
            with_status,
            flags,
        })
    }

    /// Returns the function that cuGetProcAddress returns for its own name.
    pub(crate) fn itself(self) -> Result<ProcAddress, String> {
        Ok(ProcAddress {
            function: self.find("cuGetProcAddress", 12000)?,
            ..self
        })
    }

    fn find(self, name: &str, version: c_int) -> Result<Symbol, String> {
        let not_found = || format!("cuGetProcAddress does not find {name} at {version}");
        let asked = dl::c_name(name).ok_or_else(not_found)?;
        let mut found: *mut c_void = std::ptr::null_mut();
        let mut status: c_int = 0;
        let code = match self.with_status {
            true => call!(
                self.function,
                asked.as_ptr() => *const c_char,
                &raw mut found => *mut *mut c_void,
                version => c_int,
                self.flags => u64,
                &raw mut status => *mut c_int,
            ),
            false => call!(
                self.function,
                asked.as_ptr() => *const c_char,
                &raw mut found => *mut *mut c_void,
                version => c_int,
                self.flags => u64,
            ),
        };
        codes::cuda(code).map_err(|error| format!("{}: {error}", not_found()))?;
        NonNull::new(found).ok_or_else(not_found)
    }
}
