//! Defines the routes: the ways in which programs find the driver's functions.
//! Touches: the dynamic linker.
//! Law: a route looks functions up exactly as the programs it represents do, and makes its calls in
//! their order.

use super::abi::{LEGACY_STREAM, PER_THREAD_STREAM};
use super::apis::{Family, Name};
use super::dl::{self, DEFAULT, Handle, NEXT};
use super::lookup::{Lookup, ProcAddress};
use libc::{RTLD_DEEPBIND, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOLOAD, RTLD_NOW};
use std::ffi::CString;

/// A way to find a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Route {
    DlsymLocal,
    DlsymGlobal,
    RtldDefault,
    RtldNext,
    LinkedProgram,
    LinkedLibrary,
    LibraryRtldDefault,
    LibraryRtldNext,
    PreloadedRtldNext,
    Deepbind,
    DeepbindDlsym,
    Dlmopen,
    DlmopenDlsym,
    ProcAddressV1,
    ProcAddressLegacy,
    ProcAddressPerThread,
    ProcAddressPtsz,
    ProcAddressItself,
    StaticCudart,
    Cudart11,
    Cudart12,
    Cudart13,
    VulkanLoader,
    VulkanDriver,
    OpenClLoader,
    OpenClDriver,
    MeminfoByLibc,
    MeminfoBySystemCall,
}

/// The position of the linked libraries in LD_PRELOAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preloaded {
    First,
    Last,
}

/// A route, its name in the output, and the programs that use it.
type Described = (Route, &'static str, &'static str);

/// Every route, in the order of the queries. The first one also finds out which libraries exist.
#[rustfmt::skip]
const ROUTES: [Described; 28] = [
    (Route::DlsymLocal, "dlsym-local", "dlopen (RTLD_LOCAL), then dlsym with the handle: pynvml, nvitop, cudarc"),
    (Route::DlsymGlobal, "dlsym-global", "dlopen (RTLD_GLOBAL), then dlsym with the handle: cuda-bindings"),
    (Route::RtldDefault, "rtld-default", "dlsym(RTLD_DEFAULT) in the program: cuda.bindings.nvml"),
    (Route::RtldNext, "rtld-next", "dlsym(RTLD_NEXT) in the program"),
    (Route::LinkedProgram, "linked-program", "a program linked with -lcuda -lnvidia-ml"),
    (Route::LinkedLibrary, "linked-library", "a library linked like that, loaded later: Python extensions"),
    (Route::LibraryRtldDefault, "library-rtld-default", "dlsym(RTLD_DEFAULT) in such a library"),
    (Route::LibraryRtldNext, "library-rtld-next", "dlsym(RTLD_NEXT) in such a library"),
    (Route::PreloadedRtldNext, "preloaded-rtld-next", "dlsym(RTLD_NEXT) in a library that is preloaded first: interposers"),
    (Route::Deepbind, "deepbind", "a linked library loaded with RTLD_DEEPBIND"),
    (Route::DeepbindDlsym, "deepbind-dlsym", "dlsym(RTLD_DEFAULT) in a library loaded with RTLD_DEEPBIND"),
    (Route::Dlmopen, "dlmopen", "a linked library in a namespace of its own"),
    (Route::DlmopenDlsym, "dlmopen-dlsym", "the driver in a namespace of its own, then dlsym"),
    (Route::ProcAddressV1, "cuGetProcAddress", "cuGetProcAddress: CUDA 11 runtimes"),
    (Route::ProcAddressLegacy, "cuGetProcAddress_v2-legacy", "cuGetProcAddress_v2, legacy stream: CUDA 12 and 13 runtimes"),
    (Route::ProcAddressPerThread, "cuGetProcAddress_v2-per-thread", "cuGetProcAddress_v2, per-thread default stream"),
    (Route::ProcAddressPtsz, "cuGetProcAddress_v2_ptsz", "cuGetProcAddress_v2_ptsz: programs compiled for per-thread streams"),
    (Route::ProcAddressItself, "cuGetProcAddress-itself", "cuGetProcAddress, obtained from cuGetProcAddress_v2"),
    (Route::StaticCudart, "static-cudart", "the calls of a statically linked libcudart"),
    (Route::Cudart11, "cudart-11", "libcudart.so.11.0"),
    (Route::Cudart12, "cudart-12", "libcudart.so.12"),
    (Route::Cudart13, "cudart-13", "libcudart.so.13"),
    (Route::VulkanLoader, "vulkan-loader", "Vulkan through the loader, libvulkan.so.1: llama.cpp, ncnn"),
    (Route::VulkanDriver, "vulkan-driver", "NVIDIA's Vulkan driver, without the loader"),
    (Route::OpenClLoader, "opencl-loader", "OpenCL through a loader, libOpenCL.so.1: clinfo, pyopencl"),
    (Route::OpenClDriver, "opencl-driver", "NVIDIA's OpenCL driver, without a loader"),
    (Route::MeminfoByLibc, "meminfo-libc", "/proc/meminfo by libc, on unified memory: Python, Java, free"),
    (Route::MeminfoBySystemCall, "meminfo-syscall", "/proc/meminfo by system calls: Go, static programs"),
];

/// Returns all routes.
pub(crate) fn all() -> impl Iterator<Item = Route> {
    ROUTES.iter().map(|(route, _, _)| *route)
}

/// Returns all routes as lines of the help text.
pub(crate) fn described() -> String {
    let line = |(_, name, words): &Described| format!("  {name:<31} {words}\n");
    ROUTES.iter().map(line).collect()
}

impl Route {
    /// Returns the route's name in the output.
    pub(crate) fn name(self) -> &'static str {
        ROUTES
            .iter()
            .find(|(route, _, _)| *route == self)
            .map_or("", |(_, name, _)| name)
    }

    /// Finds the route with that name.
    pub(crate) fn parse(name: &str) -> Result<Route, String> {
        ROUTES
            .iter()
            .find(|(_, known, _)| *known == name)
            .map(|(route, _, _)| *route)
            .ok_or_else(|| format!("no route \"{name}\""))
    }

    /// Returns the major version of this route's libcudart.so, if the route uses one.
    pub(crate) fn cudart(self) -> Option<u32> {
        match self {
            Route::Cudart11 => Some(11),
            Route::Cudart12 => Some(12),
            Route::Cudart13 => Some(13),
            _ => None,
        }
    }

    /// Returns the position at which the child preloads the linked libraries, if it preloads them.
    ///
    /// An interposer that is preloaded before libgpuslice.so finds libgpuslice.so by RTLD_NEXT. An
    /// interposer that is preloaded after it and defines the name itself must find the driver.
    /// libgpuslice.so calls such an interposer and passes its answer on to the program.
    pub(crate) fn preloads(self) -> Option<Preloaded> {
        match self {
            Route::PreloadedRtldNext => Some(Preloaded::First),
            Route::LinkedProgram => Some(Preloaded::Last),
            _ => None,
        }
    }

    /// Checks whether the route loads a separate copy of the driver that no other code in the
    /// process uses.
    pub(crate) fn is_apart(self) -> bool {
        matches!(self, Route::Dlmopen | Route::DlmopenDlsym)
    }

    /// Checks whether the route queries another API than CUDA and NVML.
    pub(crate) fn is_other_api(self) -> bool {
        matches!(
            self,
            Route::VulkanLoader
                | Route::VulkanDriver
                | Route::OpenClLoader
                | Route::OpenClDriver
                | Route::MeminfoByLibc
                | Route::MeminfoBySystemCall
        )
    }

    /// Checks whether the route queries functions of that family.
    pub(crate) fn asks(self, family: Family) -> bool {
        let through_cuda = matches!(
            self,
            Route::ProcAddressV1
                | Route::ProcAddressLegacy
                | Route::ProcAddressPerThread
                | Route::ProcAddressPtsz
                | Route::ProcAddressItself
        );
        let is_other = self.is_other_api();
        match family {
            Family::Vulkan => matches!(self, Route::VulkanLoader | Route::VulkanDriver),
            Family::OpenCl => matches!(self, Route::OpenClLoader | Route::OpenClDriver),
            Family::MeminfoByLibc => self == Route::MeminfoByLibc,
            Family::MeminfoBySystemCall => self == Route::MeminfoBySystemCall,
            _ if is_other => false,
            Family::Cudart(majors) => self.cudart().is_some_and(|major| majors.contains(&major)),
            Family::StaticCudart => self == Route::StaticCudart,
            Family::Cuda => self.cudart().is_none() && self != Route::StaticCudart,
            Family::Nvml | Family::NvmlMig => {
                !through_cuda && self.cudart().is_none() && self != Route::StaticCudart
            }
        }
    }
}

/// The paths of the two libraries of linked.c.
#[derive(Clone, Debug)]
pub(crate) struct Objects {
    /// The library that needs libcuda.so.1.
    pub(crate) cuda: CString,
    /// The library that needs libnvidia-ml.so.1.
    pub(crate) nvml: CString,
}

/// An opened route. It holds the lookup for each library's functions, or the error.
pub(crate) struct Opened {
    pub(crate) cuda: Result<Lookup, String>,
    pub(crate) nvml: Result<Lookup, String>,
    pub(crate) cudart: Result<Lookup, String>,
}

impl Opened {
    /// Returns the lookup for functions of that family.
    pub(crate) fn lookup(&self, family: Family, name: &Name) -> Result<&Lookup, String> {
        let library = match family {
            _ if name.of_cuda => &self.cuda,
            Family::Cudart(_) => &self.cudart,
            _ => &self.nvml,
        };
        library.as_ref().map_err(Clone::clone)
    }
}

const CUDA: &std::ffi::CStr = c"libcuda.so.1";
const NVML: &std::ffi::CStr = c"libnvidia-ml.so.1";

/// Loads the libraries of the route.
pub(crate) fn open(route: Route, objects: &Objects) -> Opened {
    let local = RTLD_NOW | RTLD_LOCAL;
    let global = RTLD_NOW | RTLD_GLOBAL;
    let deep = RTLD_NOW | RTLD_DEEPBIND;
    let by_handle = |place: Handle| Ok(Lookup::Dlsym(place));
    let each = |find: &dyn Fn(&std::ffi::CStr) -> Result<Lookup, String>| Opened {
        cuda: find(CUDA),
        nvml: find(NVML),
        cudart: unused(),
    };
    let linked = |find: &dyn Fn(&std::ffi::CStr) -> Result<Lookup, String>| Opened {
        cuda: find(&objects.cuda),
        nvml: find(&objects.nvml),
        cudart: unused(),
    };
    let proc_address = |symbol: &'static std::ffi::CStr, with_status: bool, flags: u64| Opened {
        cuda: dl::open(CUDA, local)
            .and_then(|driver| ProcAddress::exported(driver, symbol, with_status, flags))
            .map(Lookup::ProcAddress),
        nvml: unused(),
        cudart: unused(),
    };
    match route {
        Route::DlsymLocal => each(&|file| dl::open(file, local).and_then(by_handle)),
        Route::DlsymGlobal => each(&|file| dl::open(file, global).and_then(by_handle)),
        Route::RtldDefault => each(&|file| {
            dl::open(file, global)?;
            by_handle(DEFAULT)
        }),
        Route::RtldNext => each(&|file| {
            dl::open(file, global)?;
            by_handle(NEXT)
        }),
        Route::DlmopenDlsym => each(&|file| dl::open_apart(file).and_then(by_handle)),
        Route::LinkedProgram => {
            linked(&|file| Lookup::linked(dl::open(file, RTLD_NOW | RTLD_NOLOAD)?))
        }
        Route::LinkedLibrary => linked(&|file| Lookup::linked(dl::open(file, local)?)),
        Route::Deepbind => linked(&|file| Lookup::linked(dl::open(file, deep)?)),
        Route::Dlmopen => linked(&|file| Lookup::linked(dl::open_apart(file)?)),
        Route::LibraryRtldDefault => {
            linked(&|file| Lookup::library_dlsym(dl::open(file, local)?, DEFAULT))
        }
        Route::LibraryRtldNext => {
            linked(&|file| Lookup::library_dlsym(dl::open(file, local)?, NEXT))
        }
        Route::PreloadedRtldNext => {
            linked(&|file| Lookup::library_dlsym(dl::open(file, RTLD_NOW | RTLD_NOLOAD)?, NEXT))
        }
        Route::DeepbindDlsym => {
            linked(&|file| Lookup::library_dlsym(dl::open(file, deep)?, DEFAULT))
        }
        Route::ProcAddressV1 => proc_address(c"cuGetProcAddress", false, 0),
        Route::ProcAddressLegacy => proc_address(c"cuGetProcAddress_v2", true, LEGACY_STREAM),
        Route::ProcAddressPerThread => {
            proc_address(c"cuGetProcAddress_v2", true, PER_THREAD_STREAM)
        }
        Route::ProcAddressPtsz => proc_address(c"cuGetProcAddress_v2_ptsz", true, 0),
        Route::ProcAddressItself => Opened {
            cuda: dl::open(CUDA, local)
                .and_then(|driver| ProcAddress::exported(driver, c"cuGetProcAddress_v2", true, 0))
                .and_then(ProcAddress::itself)
                .map(Lookup::ProcAddress),
            nvml: unused(),
            cudart: unused(),
        },
        Route::StaticCudart => Opened {
            cuda: dl::open(CUDA, RTLD_NOW).map(Lookup::as_static_cudart),
            nvml: unused(),
            cudart: unused(),
        },
        Route::Cudart11 => runtime(c"libcudart.so.11.0"),
        Route::Cudart12 => runtime(c"libcudart.so.12"),
        Route::Cudart13 => runtime(c"libcudart.so.13"),
        Route::VulkanLoader
        | Route::VulkanDriver
        | Route::OpenClLoader
        | Route::OpenClDriver
        | Route::MeminfoByLibc
        | Route::MeminfoBySystemCall => Opened {
            cuda: unused(),
            nvml: unused(),
            cudart: unused(),
        },
    }
}

fn runtime(file: &std::ffi::CStr) -> Opened {
    Opened {
        cuda: unused(),
        nvml: unused(),
        cudart: dl::open(file, RTLD_NOW | RTLD_LOCAL).map(Lookup::Dlsym),
    }
}

fn unused() -> Result<Lookup, String> {
    Err("not a part of this route".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_found_by_its_name() {
        for route in all() {
            assert_eq!(Route::parse(route.name()), Ok(route));
        }
        assert!(Route::parse("by-guessing").is_err());
    }
}
