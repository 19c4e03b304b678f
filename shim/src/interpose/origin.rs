//! The object whose code called an export of the runtime. That is mostly the object of the return
//! address. But a function that ends in a jump to the export leaves the address of its own caller
//! there, which may lie in another object.
//! Touches: the code before the return address, and the registers at the call.
//! Law: another object than that of the return address counts only if it requires the symbol.

use core::ffi::CStr;

use crate::loader::dl;
use crate::loader::elf::Object;
use crate::loader::versions;

/// The registers at the call, as `export_versioned` saves them.
#[cfg(target_arch = "x86_64")]
#[repr(C)]
pub(crate) struct Saved {
    alignment: usize,
    r15: usize,
    r14: usize,
    r13: usize,
    r12: usize,
    rbp: usize,
    rbx: usize,
    rax: usize,
    unused: usize,
    r9: usize,
    r8: usize,
    rcx: usize,
    rdx: usize,
    rsi: usize,
    rdi: usize,
    /// The return address.
    pub(crate) caller: usize,
}

/// The registers at the call, as `export_versioned` saves them.
#[cfg(target_arch = "aarch64")]
#[repr(C)]
pub(crate) struct Saved {
    /// A procedure linkage table leaves there the address of the word from which it has read the
    /// export.
    x16: usize,
    /// The return address.
    pub(crate) caller: usize,
    from_x8_to_x15: [usize; 8],
    from_x19_to_x28: [usize; 10],
    x29_and_x30: [usize; 2],
    from_x0_to_x7: [usize; 8],
}

/// The caller of an export.
pub(crate) struct Origin {
    pub(crate) object: Option<Object>,
    /// The address by which the caller is remembered. None: the next call from the same place may
    /// be another object's.
    pub(crate) key: Option<usize>,
}

/// The object at this address, if it requires the symbol.
fn requiring(address: usize, name: &CStr) -> Option<Object> {
    let object = dl::object_of(address as *const _)?;
    // SAFETY: code of the object has just run. If the address is stale instead, a program that
    // unloads the object in this moment is as unlikely as the stale address itself.
    let version = unsafe { versions::required(&object, name.to_bytes()) };
    version.is_some().then_some(object)
}

/// Reads a value whose bytes lie in this object.
fn read_in<T: Copy>(object: &Object, address: usize) -> Option<T> {
    let contains = |address: usize| {
        let found = dl::object_of(address as *const _);
        found.is_some_and(|found| found.dynamic == object.dynamic)
    };
    let end = address.wrapping_add(size_of::<T>()).wrapping_sub(1);
    let whole = contains(address) && contains(end);
    // SAFETY: both ends lie in segments of the object, which are mapped; T is a plain number.
    whole.then(|| unsafe { (address as *const T).read_unaligned() })
}

/// The value of a register that is not saved.
const UNKNOWN: usize = usize::MAX;

impl Saved {
    /// Stands for a call through a register of the object that contains the call. No return address is
    /// equal to it, because a call has at least two bytes.
    pub(crate) fn site(&self) -> usize {
        self.caller ^ 1
    }

    /// The object that called `export`, which lies in this library.
    pub(crate) fn origin(&self, export: usize, name: &CStr) -> Origin {
        let object = dl::object_of(self.caller as *const _);
        let function = self.by_register();
        if let Some(object) = self.by_slot(export, name) {
            let is_its_own = |function| {
                let found = dl::object_of(function as *const _);
                found.is_some_and(|found| found.dynamic == object.dynamic)
            };
            let key = match function {
                0 => Some(self.caller),
                _ => Some(function).filter(|function| is_its_own(*function)),
            };
            return Origin {
                object: Some(object),
                key,
            };
        }
        let own = |key: usize| Origin {
            object,
            key: Some(key),
        };
        if function == 0 {
            let called = object.and_then(|object| self.by_table(&object));
            return match called.and_then(|called| requiring(called, name)) {
                Some(object) => Origin {
                    object: Some(object),
                    key: Some(self.caller),
                },
                None => own(self.caller),
            };
        }
        if function == export {
            return own(self.site());
        }
        match requiring(function, name) {
            Some(object) => Origin {
                object: Some(object),
                key: Some(function),
            },
            // The register may have changed since the call.
            None => own(self.site()),
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Saved {
    fn register(&self, number: u8) -> usize {
        match number {
            0 => self.rax,
            1 => self.rcx,
            2 => self.rdx,
            3 => self.rbx,
            5 => self.rbp,
            6 => self.rsi,
            7 => self.rdi,
            8 => self.r8,
            9 => self.r9,
            12 => self.r12,
            13 => self.r13,
            14 => self.r14,
            15 => self.r15,
            _ => UNKNOWN,
        }
    }

    /// The function that was called, if the call instruction takes it from a register. The called
    /// function may have changed the register before it jumped. 0: the call uses no register.
    pub(crate) fn by_register(&self) -> usize {
        let at = |distance: usize| {
            // SAFETY: a call instruction has at least two bytes and precedes its return address;
            // the third byte is read only where it lies on the same page.
            unsafe { (self.caller.wrapping_sub(distance) as *const u8).read() }
        };
        let (operation, operand) = (at(2), at(1));
        if operation != 0xff || operand & 0xf8 != 0xd0 {
            return 0;
        }
        let is_page_start = self.caller.wrapping_sub(2).is_multiple_of(4096);
        let high = if !is_page_start && at(3) == 0x41 {
            8
        } else {
            0
        };
        self.register((operand & 7) | high)
    }

    /// The function that was called, if the call instruction reaches it through the object's
    /// procedure linkage table.
    fn by_table(&self, object: &Object) -> Option<usize> {
        let relative = |address: usize| {
            let distance: i32 = read_in(object, address)?;
            Some(
                address
                    .wrapping_add(4)
                    .wrapping_add_signed(distance as isize),
            )
        };
        if read_in::<u8>(object, self.caller.wrapping_sub(5))? != 0xe8 {
            return None;
        }
        let mut entry = relative(self.caller.wrapping_sub(4))?;
        if read_in::<[u8; 4]>(object, entry)? == [0xf3, 0x0f, 0x1e, 0xfa] {
            entry = entry.wrapping_add(4);
        }
        if read_in::<u8>(object, entry)? == 0xf2 {
            entry = entry.wrapping_add(1);
        }
        match read_in::<[u8; 2]>(object, entry)? {
            [0xff, 0x25] => read_in(object, relative(entry.wrapping_add(2))?),
            _ => None,
        }
    }

    /// No register tells from where a procedure linkage table has read the export.
    fn by_slot(&self, _: usize, _: &CStr) -> Option<Object> {
        None
    }
}

#[cfg(target_arch = "aarch64")]
impl Saved {
    fn register(&self, number: u32) -> usize {
        let of = |registers: &[usize], first: u32| {
            let index = number.wrapping_sub(first) as usize;
            registers.get(index).copied()
        };
        match number {
            // The export itself uses them.
            9 | 17 => UNKNOWN,
            16 => self.x16,
            _ => of(&self.from_x0_to_x7, 0)
                .or_else(|| of(&self.from_x8_to_x15, 8))
                .or_else(|| of(&self.from_x19_to_x28, 19))
                .unwrap_or(UNKNOWN),
        }
    }

    fn instruction(&self) -> u32 {
        // SAFETY: a call instruction precedes its return address.
        unsafe { (self.caller.wrapping_sub(4) as *const u32).read() }
    }

    /// The function that was called, if the call instruction takes it from a register. The called
    /// function may have changed the register before it jumped. 0: it does not.
    pub(crate) fn by_register(&self) -> usize {
        let instruction = self.instruction();
        match instruction & 0xffff_fc1f {
            0xd63f_0000 => self.register(instruction >> 5 & 31),
            _ => 0,
        }
    }

    /// The function that was called, if the call instruction reaches it through the object's
    /// procedure linkage table.
    fn by_table(&self, object: &Object) -> Option<usize> {
        const BTI_C: u32 = 0xd503_245f;
        let signed = |value: u32, bits: u32| {
            let unused = 32u32.saturating_sub(bits);
            (value.wrapping_shl(unused) as i32 >> unused) as isize
        };
        let call = self.instruction();
        if call & 0xfc00_0000 != 0x9400_0000 {
            return None;
        }
        let distance = signed(call & 0x03ff_ffff, 26).wrapping_mul(4);
        let mut entry = self.caller.wrapping_sub(4).wrapping_add_signed(distance);
        if read_in::<u32>(object, entry)? == BTI_C {
            entry = entry.wrapping_add(4);
        }
        // adrp x16, page; ldr x17, [x16, offset]
        let [page, load]: [u32; 2] = read_in(object, entry)?;
        if page & 0x9f00_001f != 0x9000_0010 || load & 0xffc0_03ff != 0xf940_0211 {
            return None;
        }
        let pages = signed((page >> 5 & 0x7_ffff) << 2 | page >> 29 & 3, 21);
        let slot = (entry & !0xfff)
            .wrapping_add_signed(pages.wrapping_mul(4096))
            .wrapping_add((load >> 10 & 0xfff) as usize * 8);
        read_in(object, slot)
    }

    /// The object whose procedure linkage table has jumped to the export. The first call of a
    /// function that is bound lazily leaves no trace of it.
    fn by_slot(&self, export: usize, name: &CStr) -> Option<Object> {
        let object = requiring(self.x16, name)?;
        (read_in::<usize>(&object, self.x16)? == export).then_some(object)
    }
}
