//! The libraries of this process, and the symbols that they define.
//! Touches: the images that the dynamic loader has mapped. Never: dlsym and its kin, malloc.
//! Law: an object is identified by its dynamic section; two loaded objects never share one.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::loader::image::symbol;

/// The struct that `dl_iterate_phdr` passes for an object; the fields that every libc has.
#[repr(C)]
struct dl_phdr_info {
    dlpi_addr: usize,
    dlpi_name: *const c_char,
    dlpi_phdr: *const Phdr,
    dlpi_phnum: u16,
}

/// `Elf64_Phdr`.
#[repr(C)]
struct Phdr {
    p_type: u32,
    p_flags: u32,
    p_offset: u64,
    p_vaddr: usize,
    p_paddr: usize,
    p_filesz: u64,
    p_memsz: usize,
    p_align: u64,
}

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;

type Visit = unsafe extern "C" fn(*const dl_phdr_info, usize, *mut c_void) -> c_int;
type Iterate = unsafe extern "C" fn(Visit, *mut c_void) -> c_int;

unsafe extern "C" {
    /// Our own dynamic section; the linker defines the name.
    static _DYNAMIC: u8;
    /// Visits the objects of the caller's namespace, which is this library's own.
    fn dl_iterate_phdr(visit: Visit, data: *mut c_void) -> c_int;
}

/// `struct r_debug`, its first fields.
#[repr(C)]
struct Rendezvous {
    r_version: c_int,
    r_map: *const LinkMap,
}

/// `struct link_map`, its public part.
#[repr(C)]
pub(crate) struct LinkMap {
    pub(crate) l_addr: usize,
    pub(crate) l_name: *const c_char,
    pub(crate) l_ld: usize,
    pub(crate) l_next: *const LinkMap,
    pub(crate) l_prev: *const LinkMap,
}

impl LinkMap {
    pub(crate) fn object(&self) -> Object {
        Object {
            base: self.l_addr,
            dynamic: self.l_ld,
            name: self.l_name,
        }
    }
}

/// Our own dynamic section.
pub(crate) fn own_dynamic() -> usize {
    (&raw const _DYNAMIC) as usize
}

// glibc defines the first, and musl keeps a pointer in the second. Both are weak, so that the
// missing one does not prevent this library from being loaded.
core::arch::global_asm!(".weak _r_debug", ".weak _dl_debug_addr");

/// The loader's list of objects, kept for debuggers. Null: it has none.
fn rendezvous() -> *const Rendezvous {
    let glibc: *const Rendezvous;
    let musl: *const *const Rendezvous;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads two words of our own global offset table.
    unsafe {
        core::arch::asm!(
            "mov {glibc}, qword ptr [rip + _r_debug@GOTPCREL]",
            "mov {musl}, qword ptr [rip + _dl_debug_addr@GOTPCREL]",
            glibc = out(reg) glibc,
            musl = out(reg) musl,
            options(nostack, pure, readonly, preserves_flags),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads two words of our own global offset table.
    unsafe {
        core::arch::asm!(
            "adrp {glibc}, :got:_r_debug",
            "ldr {glibc}, [{glibc}, :got_lo12:_r_debug]",
            "adrp {musl}, :got:_dl_debug_addr",
            "ldr {musl}, [{musl}, :got_lo12:_dl_debug_addr]",
            glibc = out(reg) glibc,
            musl = out(reg) musl,
            options(nostack, pure, readonly, preserves_flags),
        );
    }
    match glibc.is_null() {
        false => glibc,
        // SAFETY: null, or musl's own variable.
        true => unsafe { musl.as_ref() }.map_or(core::ptr::null(), |list| *list),
    }
}

/// The list of the program's namespace, if this library was loaded with the program.
///
/// Only its beginning is read: objects before the loader itself are never freed. A copy of this
/// library in a namespace of dlmopen is not in it.
fn own_list() -> Option<*const LinkMap> {
    // SAFETY: the loader's own structure, which it never frees.
    let list = unsafe { rendezvous().as_ref() }?.r_map;
    let mut next = list;
    // SAFETY: the loader's own list; only objects up to the loader are read, which are never freed.
    while let Some(map) = unsafe { next.as_ref() } {
        if map.l_ld == own_dynamic() {
            return Some(list);
        }
        if map.object().file_name().starts_with(b"ld-") {
            break;
        }
        next = map.l_next;
    }
    None
}

/// libc in a namespace of dlmopen. This library is the first there and needs only libc, which
/// follows it. Queries the loader once, which takes its lock. `dlopen::namespace` causes that query
/// before any other code of the namespace runs.
fn libc_of_namespace() -> Option<Object> {
    static DYNAMIC: AtomicUsize = AtomicUsize::new(0);
    static BASE: AtomicUsize = AtomicUsize::new(0);
    let dynamic = DYNAMIC.load(Ordering::Acquire);
    if dynamic != 0 {
        return Some(Object {
            base: BASE.load(Ordering::Relaxed),
            dynamic,
            name: core::ptr::null(),
        });
    }
    let libc = named(|name| name == b"libc.so.6")?;
    BASE.store(libc.base, Ordering::Relaxed);
    DYNAMIC.store(libc.dynamic, Ordering::Release);
    Some(libc)
}

/// A library loaded at the start of the program, found without calling any function. Interposers of
/// the loader's functions may not be ready yet, or may be looking them up just now.
pub(crate) fn from_the_start(wanted: fn(&[u8]) -> bool) -> Option<Object> {
    let mut next = own_list()?;
    // SAFETY: the loader's own list; libc is among the libraries loaded at the start.
    while let Some(map) = unsafe { next.as_ref() } {
        let object = map.object();
        if wanted(object.file_name()) {
            return Some(object);
        }
        next = map.l_next;
    }
    None
}

/// libc's own dl_iterate_phdr, not an interposer's.
fn iterate() -> Iterate {
    #[unsafe(link_section = ".data")]
    static KNOWN: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    let mut address = KNOWN.load(Ordering::Acquire);
    if address.is_null() {
        let libc = from_the_start(|name| name == b"libc.so.6");
        // SAFETY: libc stays loaded.
        let own = libc.and_then(|libc| unsafe { symbol(&libc, b"dl_iterate_phdr") });
        address = own.map_or(dl_iterate_phdr as *mut c_void, |own| own as *mut c_void);
        KNOWN.store(address, Ordering::Release);
    }
    // SAFETY: the address is one of the two above; both have this signature.
    unsafe { core::mem::transmute::<*mut c_void, Iterate>(address) }
}

/// A loaded library or program.
#[derive(Clone, Copy)]
pub(crate) struct Object {
    /// The base of its addresses.
    pub(crate) base: usize,
    /// The address of its dynamic section.
    pub(crate) dynamic: usize,
    /// The loader's name for it: a path; empty for the program.
    pub(crate) name: *const c_char,
}

impl Object {
    /// The loader's name for it: a path; empty for the program.
    pub(crate) fn path(&self) -> &CStr {
        if self.name.is_null() {
            return c"";
        }
        // SAFETY: the loader's own string, which lives as long as the object.
        unsafe { CStr::from_ptr(self.name) }
    }

    /// The last part of its path.
    pub(crate) fn file_name(&self) -> &[u8] {
        let path = self.path().to_bytes();
        path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
    }
}

/// Whether the object with this dynamic section was loaded at the start, and so for good. In the
/// loader's list it comes before the loader itself; objects opened later come after.
pub(crate) fn is_from_the_start(dynamic: usize) -> bool {
    let Some(mut next) = own_list() else {
        return false;
    };
    // SAFETY: the loader's own list; objects before the loader are never freed.
    while let Some(map) = unsafe { next.as_ref() } {
        let object = map.object();
        if object.dynamic == dynamic || object.file_name().starts_with(b"ld-") {
            return object.dynamic == dynamic;
        }
        next = map.l_next;
    }
    false
}

struct Search<'a> {
    wanted: &'a mut dyn FnMut(&Object, &[Phdr]) -> bool,
    found: Option<Object>,
}

/// The first object of our namespace for which `wanted` returns true.
fn search(wanted: &mut dyn FnMut(&Object, &[Phdr]) -> bool) -> Option<Object> {
    unsafe extern "C" fn visit(info: *const dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: `data` is the Search below, which lives through the whole walk.
        let search = unsafe { &mut *data.cast::<Search<'_>>() };
        // SAFETY: the loader passes a valid dl_phdr_info.
        let info = unsafe { &*info };
        if info.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: the loader's own program headers.
        let headers =
            unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let Some(dynamic) = headers.iter().find(|header| header.p_type == PT_DYNAMIC) else {
            return 0;
        };
        let object = Object {
            base: info.dlpi_addr,
            dynamic: info.dlpi_addr.wrapping_add(dynamic.p_vaddr),
            name: info.dlpi_name,
        };
        if (search.wanted)(&object, headers) {
            search.found = Some(object);
        }
        c_int::from(search.found.is_some())
    }
    let mut search = Search {
        wanted,
        found: None,
    };
    // SAFETY: `visit` gets `search`, which outlives the call.
    unsafe { iterate()(visit, (&raw mut search).cast()) };
    search.found
}

/// The object of our namespace that contains an address.
pub(crate) fn containing(address: usize) -> Option<Object> {
    search(&mut |object, headers| {
        headers.iter().any(|header| {
            let start = object.base.wrapping_add(header.p_vaddr);
            header.p_type == PT_LOAD && address.wrapping_sub(start) < header.p_memsz
        })
    })
}

/// The first object whose file name is wanted.
pub(crate) fn named(wanted: fn(&[u8]) -> bool) -> Option<Object> {
    search(&mut |object, _| wanted(object.file_name()))
}

/// Whether the object with this dynamic section is still loaded in our namespace.
pub(crate) fn is_loaded(dynamic: usize) -> bool {
    search(&mut |object, _| object.dynamic == dynamic).is_some()
}

/// The first definition of a symbol in our namespace outside this library.
pub(crate) fn defined_by_others(name: &[u8]) -> Option<usize> {
    let mut address = None;
    search(&mut |object, _| {
        if object.dynamic != own_dynamic() {
            // SAFETY: the loader keeps the object loaded during the visit.
            address = unsafe { symbol(object, name) };
        }
        address.is_some()
    });
    address
}

/// The first definition of a symbol by another object of a namespace of dlmopen, in which this copy
/// of the library comes first. None: there is none, or this copy is the program's.
///
/// Before glibc 2.34 a failed look-up there ends the process. A look-up fails there if only this
/// library defines the name in the searched scope.
pub(crate) fn beside_in_namespace(name: &[u8]) -> Option<usize> {
    match is_from_the_start(own_dynamic()) {
        true => None,
        false => defined_by_others(name),
    }
}

/// The definition of a symbol that follows ours in the loader's search order, found without calling
/// any function. Its callers may be in a signal handler, between fork and exec, or in a process
/// whose other thread holds the loader's lock.
pub(crate) fn following(name: &[u8]) -> Option<usize> {
    let Some(mut next) = own_list() else {
        let libc = libc_of_namespace()?;
        // SAFETY: libc stays loaded as long as this library, which needs it.
        return unsafe { symbol(&libc, name) };
    };
    let mut behind_us = false;
    // SAFETY: the loader's own list. The objects from this library to libc are loaded at the start
    // and never freed. The search ends at libc: either libc has the requested name, or no library
    // has it.
    while let Some(map) = unsafe { next.as_ref() } {
        let object = map.object();
        // SAFETY: an object between this library and libc is never unloaded.
        if behind_us && let Some(address) = unsafe { symbol(&object, name) } {
            return Some(address);
        }
        if behind_us && object.file_name() == b"libc.so.6" {
            return None;
        }
        behind_us |= map.l_ld == own_dynamic();
        next = map.l_next;
    }
    None
}
