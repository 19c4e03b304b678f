//! Device memory: taken from the card that CUDA and NVML report on, exported and imported.
//! Touches: the machine's charges; a memory file for each allocation that is mapped or exported.

use crate::chain;
use crate::device::{Device, device};
use crate::instance::PhysicalDevice;
use ash::vk;
use ash::vk::Handle;
use gpuslice_sim_machine::{Kind, SegmentId, segment_of};
use std::ffi::c_void;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The driver's pages. It takes memory from a card in larger blocks; how large is not known.
const PAGE: u64 = 4 << 10;

/// The payer of an allocation.
#[derive(Clone, Copy)]
enum Paid {
    /// Host memory on a card.
    Nothing,
    /// This process.
    Own,
    /// Every process that has exported or imported it.
    Segment(SegmentId),
}

/// One `VkDeviceMemory`; its address is the handle.
pub(crate) struct Memory {
    device: u64,
    card: *const PhysicalDevice,
    domain: usize,
    kind: u32,
    bytes: u64,
    paid: Vec<(usize, Paid)>,
    file: Option<File>,
    mapped: Option<(*mut c_void, usize)>,
}

// SAFETY: the pointers are to boxes that outlive every device and to mappings of this allocation.
unsafe impl Send for Memory {}

/// Every allocation of this process.
static ALL: Mutex<Vec<Box<Memory>>> = Mutex::new(Vec::new());

fn all() -> MutexGuard<'static, Vec<Box<Memory>>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The memory of a heap that this process holds.
pub(crate) fn own_use(card: &PhysicalDevice, heap: usize) -> u64 {
    let held = all();
    let of_heap = held
        .iter()
        .filter(|it| it.domain == card.domain && card.heap_of(it.kind) == Some(heap as u32));
    of_heap.map(|it| it.bytes).sum()
}

impl Memory {
    fn card(&self) -> &PhysicalDevice {
        // SAFETY: the card outlives its devices, and they their memory.
        unsafe { &*self.card }
    }

    fn release(self) {
        for (domain, paid) in &self.paid {
            let machine = self.card().machine;
            match paid {
                Paid::Own => machine.discharge(*domain, Kind::Vmm, self.bytes),
                Paid::Segment(id) => machine.drop_segment(*id),
                Paid::Nothing => {}
            }
        }
        if let Some((at, length)) = self.mapped {
            // SAFETY: the mapping that vkMapMemory made.
            unsafe { libc::munmap(at, length) };
        }
    }

    fn file(&mut self) -> Option<&File> {
        if self.file.is_none() {
            let fd = gpuslice_sim_machine::memory_file(c"gpuslice-sim-vulkan").ok()?;
            // SAFETY: a fresh descriptor that nobody else owns.
            let file = unsafe { File::from_raw_fd(fd) };
            // As in the simulated CUDA driver: the segment's number stands behind the memory.
            file.set_len(self.bytes + 8).ok()?;
            self.file = Some(file);
        }
        self.file.as_ref()
    }
}

/// What the structs that are chained to an allocation ask for.
#[derive(Default)]
struct Wishes {
    /// A descriptor to import.
    import: Option<i32>,
    /// The members of a group that get memory.
    mask: Option<u32>,
}

unsafe fn wishes(info: &vk::MemoryAllocateInfo<'_>) -> Wishes {
    let mut wishes = Wishes::default();
    // SAFETY: the caller's contract; each type is cast to its own struct.
    unsafe {
        chain(info.p_next.cast_mut(), |link| match link.s_type {
            vk::StructureType::IMPORT_MEMORY_FD_INFO_KHR => {
                let it = std::ptr::from_ref(link).cast::<vk::ImportMemoryFdInfoKHR<'_>>();
                if !(*it).handle_type.is_empty() {
                    wishes.import = Some((*it).fd);
                }
            }
            vk::StructureType::MEMORY_ALLOCATE_FLAGS_INFO => {
                let it = std::ptr::from_ref(link).cast::<vk::MemoryAllocateFlagsInfo<'_>>();
                if (*it).flags.contains(vk::MemoryAllocateFlags::DEVICE_MASK) {
                    wishes.mask = Some((*it).device_mask);
                }
            }
            _ => {}
        });
    }
    wishes
}

fn allocate(
    device: &Device,
    info: &vk::MemoryAllocateInfo<'_>,
    wishes: &Wishes,
) -> Result<Memory, vk::Result> {
    let no_room = vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
    let first = device.cards[0];
    let kind = info.memory_type_index;
    let mut memory = Memory {
        device: device.handle(),
        card: first,
        // SAFETY: the card outlives its device.
        domain: unsafe { &*first }.domain,
        kind,
        bytes: info.allocation_size.next_multiple_of(PAGE),
        paid: Vec::new(),
        file: None,
        mapped: None,
    };
    let card = memory.card();
    if let Some(fd) = wishes.import {
        // SAFETY: a successful import takes the descriptor over.
        let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
        let (id, bytes) = segment_of(&file).ok_or(vk::Result::ERROR_INVALID_EXTERNAL_HANDLE)?;
        let (domain, _) = card.machine.hold_segment(id).ok_or(no_room)?;
        memory.bytes = bytes;
        memory.paid = vec![(domain, Paid::Segment(id))];
        memory.file = Some(ManuallyDrop::into_inner(file));
        return Ok(memory);
    }
    let is_local = card.is_local(kind).ok_or(vk::Result::ERROR_UNKNOWN)?;
    for (index, card) in device.cards.iter().enumerate() {
        // SAFETY: the card outlives its device.
        let card = unsafe { &**card };
        if wishes.mask.is_some_and(|mask| mask >> index & 1 == 0) {
            continue;
        }
        let paid = match is_local {
            true => match card.machine.charge(card.domain, Kind::Vmm, memory.bytes) {
                Ok(()) => Paid::Own,
                Err(_) => {
                    memory.release();
                    return Err(no_room);
                }
            },
            false => Paid::Nothing,
        };
        memory.paid.push((card.domain, paid));
    }
    Ok(memory)
}

pub(crate) unsafe extern "C" fn vkAllocateMemory(
    handle: vk::Device,
    info: *const vk::MemoryAllocateInfo<'_>,
    _allocator: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::DeviceMemory,
) -> vk::Result {
    // SAFETY: the caller's contract.
    let info = unsafe { &*info };
    // SAFETY: the caller's contract.
    let wishes = unsafe { wishes(info) };
    match allocate(device(handle), info, &wishes) {
        Ok(memory) => {
            let memory = Box::new(memory);
            let raw = std::ptr::from_ref(memory.as_ref()) as u64;
            all().push(memory);
            // SAFETY: the caller's contract.
            unsafe { out.write(vk::DeviceMemory::from_raw(raw)) };
            vk::Result::SUCCESS
        }
        Err(code) => code,
    }
}

fn take(wanted: impl Fn(&Memory) -> bool) -> Vec<Box<Memory>> {
    all().extract_if(.., |it| wanted(it)).collect()
}

pub(crate) unsafe extern "C" fn vkFreeMemory(
    _device: vk::Device,
    memory: vk::DeviceMemory,
    _allocator: *const vk::AllocationCallbacks<'_>,
) {
    let gone = take(|it| std::ptr::from_ref(it) as u64 == memory.as_raw());
    gone.into_iter().for_each(|it| it.release());
}

/// The end of a device frees whatever the program has left.
pub(crate) fn device_gone(device: u64) {
    let gone = take(|it| it.device == device);
    gone.into_iter().for_each(|it| it.release());
}

pub(crate) unsafe extern "C" fn vkGetMemoryFdKHR(
    _device: vk::Device,
    info: *const vk::MemoryGetFdInfoKHR<'_>,
    out: *mut i32,
) -> vk::Result {
    // SAFETY: the caller's contract.
    let wanted = unsafe { (*info).memory }.as_raw();
    let mut all = all();
    let Some(memory) = all
        .iter_mut()
        .find(|it| std::ptr::from_ref(it.as_ref()) as u64 == wanted)
    else {
        return vk::Result::ERROR_UNKNOWN;
    };
    let machine = memory.card().machine;
    if let [(domain, Paid::Own)] = memory.paid[..] {
        let Some(id) = machine.share(domain, Kind::Vmm, memory.bytes) else {
            return vk::Result::ERROR_TOO_MANY_OBJECTS;
        };
        memory.paid = vec![(domain, Paid::Segment(id))];
        let at = memory.bytes;
        let written = memory
            .file()
            .map(|file| file.write_all_at(&id.to_ne_bytes(), at));
        if !matches!(written, Some(Ok(()))) {
            return vk::Result::ERROR_OUT_OF_HOST_MEMORY;
        }
    }
    let Some(Ok(copy)) = memory.file().map(File::try_clone) else {
        return vk::Result::ERROR_TOO_MANY_OBJECTS;
    };
    // SAFETY: the caller's contract.
    unsafe { out.write(copy.into_raw_fd()) };
    vk::Result::SUCCESS
}

pub(crate) unsafe extern "C" fn vkMapMemory(
    _device: vk::Device,
    memory: vk::DeviceMemory,
    offset: u64,
    _size: u64,
    _flags: vk::MemoryMapFlags,
    out: *mut *mut c_void,
) -> vk::Result {
    let mut all = all();
    let Some(memory) = all
        .iter_mut()
        .find(|it| std::ptr::from_ref(it.as_ref()) as u64 == memory.as_raw())
    else {
        return vk::Result::ERROR_MEMORY_MAP_FAILED;
    };
    let length = memory.bytes as usize;
    let Some(fd) = memory.file().map(AsRawFd::as_raw_fd) else {
        return vk::Result::ERROR_OUT_OF_HOST_MEMORY;
    };
    let (read, write) = (libc::PROT_READ, libc::PROT_WRITE);
    // SAFETY: a new mapping at an address that the kernel chooses.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            read | write,
            libc::MAP_SHARED,
            fd,
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return vk::Result::ERROR_MEMORY_MAP_FAILED;
    }
    memory.mapped = Some((at, length));
    // SAFETY: the caller's contract.
    unsafe { out.write(at.wrapping_byte_add(offset as usize)) };
    vk::Result::SUCCESS
}

pub(crate) unsafe extern "C" fn vkUnmapMemory(_device: vk::Device, memory: vk::DeviceMemory) {
    let mut all = all();
    let found = all
        .iter_mut()
        .find(|it| std::ptr::from_ref(it.as_ref()) as u64 == memory.as_raw());
    if let Some((at, length)) = found.and_then(|it| it.mapped.take()) {
        // SAFETY: the mapping that vkMapMemory made.
        unsafe { libc::munmap(at, length) };
    }
}
