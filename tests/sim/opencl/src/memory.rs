//! Memory objects and shared virtual memory. Each takes its memory when it is created, on every
//! device of its context.
//! Touches: the machine's charges; libcuda, if a fault asks for it.

use crate::abi::*;
use crate::context::{self, Context};
use crate::cuda;
use crate::device::machine;
use crate::table;
use gpuslice_sim_machine::{Kind, STEP, SegmentId, segment_of};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

type Destructor = extern "C" fn(usize, *mut c_void);

/// The memory that an object holds.
enum Held {
    /// Charged to this process, on each of these memories.
    Own(Vec<usize>, Kind, u64),
    /// Allocated by libcuda, at this address.
    Cuda(usize),
    /// Every holder's: memory that another API has exported.
    Segment(SegmentId),
    /// Another object's: this is a part of it.
    Nothing,
}

#[repr(C)]
struct Memory {
    dispatch: usize,
    references: AtomicU32,
    context: usize,
    parent: usize,
    size: usize,
    flags: u64,
    kind: u32,
    held: Held,
    destructors: Mutex<Vec<(Destructor, usize)>>,
}

const BUFFER: u32 = 0x10F0;
const IMAGE2D: u32 = 0x10F1;
const IMAGE3D: u32 = 0x10F2;
const IMAGE1D_BUFFER: u32 = 0x10F6;
const PIPE: u32 = 0x10F7;
/// CL_EXTERNAL_MEMORY_HANDLE_OPAQUE_FD_KHR.
const OPAQUE_FD: u64 = 0x2060;

/// `cl_image_desc`.
#[repr(C)]
#[derive(Clone, Copy)]
struct ImageDesc {
    kind: u32,
    extent: [usize; 3],
    array: usize,
    row_pitch: usize,
    slice_pitch: usize,
    levels: u32,
    samples: u32,
    memory: usize,
}

/// Takes memory on every device of a context.
fn take(context: &Context, kind: Kind, size: usize) -> Option<Held> {
    let machine = machine()?;
    if machine.faults.out_of_memory() {
        return None;
    }
    if machine.faults.opencl_uses_cuda() {
        return cuda::allocate(size).map(Held::Cuda);
    }
    let bytes = (size as u64).checked_next_multiple_of(STEP)?;
    let domains = context.domains();
    for (n, domain) in domains.iter().enumerate() {
        if machine.charge(*domain, kind, bytes).is_err() {
            give_back(&Held::Own(domains[..n].to_vec(), kind, bytes));
            return None;
        }
    }
    Some(Held::Own(domains, kind, bytes))
}

fn give_back(held: &Held) {
    match held {
        Held::Own(domains, kind, bytes) => {
            for domain in domains {
                machine().inspect(|machine| machine.discharge(*domain, *kind, *bytes));
            }
        }
        Held::Cuda(at) => cuda::free(*at),
        Held::Segment(id) => {
            machine().inspect(|machine| machine.drop_segment(*id));
        }
        Held::Nothing => {}
    }
}

/// Holds the memory behind a descriptor, and takes the descriptor over.
fn import(descriptor: u64) -> Option<Held> {
    let descriptor = i32::try_from(descriptor).ok()?;
    // SAFETY: a descriptor that the program hands over if the import succeeds.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
    let (id, _) = segment_of(&file)?;
    machine()?.hold_segment(id)?;
    drop(ManuallyDrop::into_inner(file));
    Some(Held::Segment(id))
}

/// A new object in a context, with memory of its own.
fn made(context: usize, flags: u64, kind: u32, size: usize, code: *mut i32) -> usize {
    let charged = match kind {
        BUFFER | PIPE => Kind::Alloc,
        _ => Kind::Array,
    };
    let Some(there) = object::<Context>(context) else {
        set(code, INVALID_CONTEXT);
        return 0;
    };
    if size == 0 {
        set(
            code,
            if charged == Kind::Alloc {
                INVALID_BUFFER_SIZE
            } else {
                INVALID_IMAGE_SIZE
            },
        );
        return 0;
    }
    match take(there, charged, size) {
        Some(held) => {
            set(code, SUCCESS);
            kept(context, 0, flags, kind, size, held)
        }
        None => {
            set(code, MEM_OBJECT_ALLOCATION_FAILURE);
            0
        }
    }
}

fn kept(context: usize, parent: usize, flags: u64, kind: u32, size: usize, held: Held) -> usize {
    context::keep(context);
    handle(Memory {
        dispatch: table::dispatch(),
        references: AtomicU32::new(1),
        context,
        parent,
        size,
        flags,
        kind,
        held,
        destructors: Mutex::default(),
    })
}

/// The bytes of an image's texels; lines are aligned to 512 bytes, as no client can know.
fn texels(format: *const [u32; 2], extent: [usize; 3], array: usize) -> Option<usize> {
    if format.is_null() {
        return None;
    }
    let [order, kind] = at(format, 0);
    let channels = match order {
        0x10B0 | 0x10B1 | 0x10B8 | 0x10B9 | 0x10BD => 1,
        0x10B2 | 0x10B3 => 2,
        0x10B5..=0x10B7 | 0x10C3 => 4,
        _ => return None,
    };
    let bytes = match kind {
        0x10D0 | 0x10D2 | 0x10D7 | 0x10DA => 1,
        0x10D1 | 0x10D3 | 0x10D8 | 0x10DB | 0x10DD => 2,
        0x10D9 | 0x10DC | 0x10DE => 4,
        _ => return None,
    };
    let line = (extent[0] * channels * bytes).next_multiple_of(512);
    Some(line * extent[1].max(1) * extent[2].max(1) * array.max(1))
}

fn image(
    context: usize,
    flags: u64,
    format: *const [u32; 2],
    desc: &ImageDesc,
    code: *mut i32,
) -> usize {
    let Some(size) = texels(format, desc.extent, desc.array) else {
        set(code, INVALID_IMAGE_FORMAT_DESCRIPTOR);
        return 0;
    };
    if desc.memory != 0 && matches!(desc.kind, IMAGE1D_BUFFER | IMAGE2D) {
        // An image over a buffer's memory.
        retain(desc.memory);
        set(code, SUCCESS);
        return kept(context, desc.memory, flags, desc.kind, size, Held::Nothing);
    }
    made(context, flags, desc.kind, size, code)
}

fn retain(memory: usize) -> i32 {
    match object::<Memory>(memory) {
        Some(there) => {
            there.references.fetch_add(1, Ordering::Relaxed);
            SUCCESS
        }
        None => INVALID_MEM_OBJECT,
    }
}

/// Drops a reference. The last one runs the destructors, newest first, and then frees the memory.
fn release(memory: usize) -> i32 {
    let Some(there) = object::<Memory>(memory) else {
        return INVALID_MEM_OBJECT;
    };
    if there.references.fetch_sub(1, Ordering::AcqRel) != 1 {
        return SUCCESS;
    }
    let destructors = std::mem::take(
        &mut *there
            .destructors
            .lock()
            .unwrap_or_else(PoisonError::into_inner),
    );
    for (destructor, data) in destructors.into_iter().rev() {
        destructor(memory, data as *mut c_void);
    }
    give_back(&there.held);
    let (context, parent) = (there.context, there.parent);
    delete::<Memory>(memory);
    if parent != 0 {
        release(parent);
    }
    context::release(context)
}

static SHARED: Mutex<BTreeMap<usize, (Held, Vec<u64>)>> = Mutex::new(BTreeMap::new());

fn shared_free(at: usize) {
    let gone = SHARED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .remove(&at);
    if let Some((held, _)) = gone {
        give_back(&held);
    }
}

entries! {
    14 fn clCreateBuffer(context: usize, flags: u64, size: usize, _host: *mut c_void, code: *mut i32) -> usize {
        made(context, flags, BUFFER, size, code)
    }

    15 fn clCreateImage2D(context: usize, flags: u64, format: *const [u32; 2], width: usize, height: usize, row_pitch: usize, _host: *mut c_void, code: *mut i32) -> usize {
        let desc = ImageDesc { kind: IMAGE2D, extent: [width, height, 1], array: 0, row_pitch, slice_pitch: 0, levels: 0, samples: 0, memory: 0 };
        image(context, flags, format, &desc, code)
    }

    16 fn clCreateImage3D(context: usize, flags: u64, format: *const [u32; 2], width: usize, height: usize, depth: usize, row_pitch: usize, slice_pitch: usize, _host: *mut c_void, code: *mut i32) -> usize {
        let desc = ImageDesc { kind: IMAGE3D, extent: [width, height, depth], array: 0, row_pitch, slice_pitch, levels: 0, samples: 0, memory: 0 };
        image(context, flags, format, &desc, code)
    }

    17 fn clRetainMemObject(memory: usize) -> i32 {
        retain(memory)
    }

    18 fn clReleaseMemObject(memory: usize) -> i32 {
        release(memory)
    }

    20 fn clGetMemObjectInfo(memory: usize, name: u32, size: usize, value: *mut c_void, size_ret: *mut usize) -> i32 {
        let Some(there) = object::<Memory>(memory) else {
            return INVALID_MEM_OBJECT;
        };
        let bytes = match name {
            0x1100 => there.kind.to_ne_bytes().to_vec(),
            0x1101 => there.flags.to_ne_bytes().to_vec(),
            0x1102 => there.size.to_ne_bytes().to_vec(),
            0x1105 => there.references.load(Ordering::Relaxed).to_ne_bytes().to_vec(),
            0x1106 => handles(std::iter::once(there.context)),
            0x1107 => handles(std::iter::once(there.parent)),
            _ => return INVALID_VALUE,
        };
        reply(&bytes, size, value, size_ret)
    }

    82 fn clCreateSubBuffer(parent: usize, flags: u64, _kind: u32, region: *const [usize; 2], code: *mut i32) -> usize {
        let Some(there) = object::<Memory>(parent) else {
            set(code, INVALID_MEM_OBJECT);
            return 0;
        };
        let [_, size] = at(region, 0);
        retain(parent);
        set(code, SUCCESS);
        kept(there.context, parent, flags, BUFFER, size, Held::Nothing)
    }

    83 fn clSetMemObjectDestructorCallback(memory: usize, destructor: Option<Destructor>, data: *mut c_void) -> i32 {
        let (Some(there), Some(destructor)) = (object::<Memory>(memory), destructor) else {
            return INVALID_MEM_OBJECT;
        };
        let mut destructors = there.destructors.lock().unwrap_or_else(PoisonError::into_inner);
        destructors.push((destructor, data as usize));
        SUCCESS
    }

    96 fn clCreateImage(context: usize, flags: u64, format: *const [u32; 2], desc: *const ImageDesc, _host: *mut c_void, code: *mut i32) -> usize {
        image(context, flags, format, &at(desc, 0), code)
    }

    124 fn clCreatePipe(context: usize, flags: u64, packet: u32, packets: u32, _properties: *const isize, code: *mut i32) -> usize {
        made(context, flags, PIPE, packet as usize * packets as usize, code)
    }

    126 fn clSVMAlloc(context: usize, _flags: u64, size: usize, _alignment: u32) -> *mut c_void {
        let held = object::<Context>(context).filter(|_| size != 0).and_then(|there| take(there, Kind::Alloc, size));
        let Some(held) = held else {
            return std::ptr::null_mut();
        };
        // Its contents are not simulated: the first page is there.
        let place = vec![0u64; size.min(4096).div_ceil(8)];
        let address = place.as_ptr() as usize;
        SHARED.lock().unwrap_or_else(PoisonError::into_inner).insert(address, (held, place));
        address as *mut c_void
    }

    127 fn clSVMFree(_context: usize, at: *mut c_void) {
        shared_free(at as usize);
    }

    128 fn clEnqueueSVMFree(_queue: usize, count: u32, places: *const usize, free: usize, _data: *mut c_void, _waits: u32, _wait: *const usize, event: *mut usize) -> i32 {
        if free != 0 || !event.is_null() {
            return INVALID_OPERATION;
        }
        for n in 0..count as usize {
            shared_free(at(places, n));
        }
        // A slow driver has freed the memory long before it returns.
        if let Some(machine) = machine() {
            let _ = machine.faults.enter("clEnqueueSVMFree");
        }
        SUCCESS
    }

    146 fn clCreateBufferWithProperties(context: usize, properties: *const u64, flags: u64, size: usize, _host: *mut c_void, code: *mut i32) -> usize {
        if !properties.is_null() && at(properties, 0) == OPAQUE_FD {
            let Some(held) = import(at(properties, 1)) else {
                set(code, INVALID_VALUE);
                return 0;
            };
            set(code, SUCCESS);
            return kept(context, 0, flags, BUFFER, size, held);
        }
        made(context, flags, BUFFER, size, code)
    }

    147 fn clCreateImageWithProperties(context: usize, _properties: *const u64, flags: u64, format: *const [u32; 2], desc: *const ImageDesc, _host: *mut c_void, code: *mut i32) -> usize {
        image(context, flags, format, &at(desc, 0), code)
    }

    // Not in the table: found by name only.
    1000 fn clCreateBufferNV(context: usize, flags: u64, _more: u64, size: usize, _host: *mut c_void, code: *mut i32) -> usize {
        made(context, flags, BUFFER, size, code)
    }
}
