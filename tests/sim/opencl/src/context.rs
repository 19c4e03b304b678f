//! Contexts and command queues. They cost no memory of the card.
//! Touches: nothing but its objects.

use crate::abi::*;
use crate::device::{self, Device};
use crate::table;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

/// A context: its devices.
#[repr(C)]
pub(crate) struct Context {
    dispatch: usize,
    references: AtomicU32,
    devices: Vec<usize>,
}

impl Context {
    /// The memories of its devices.
    pub(crate) fn domains(&self) -> Vec<usize> {
        let domain = |device: &usize| Some(object::<Device>(*device)?.domain);
        self.devices.iter().filter_map(domain).collect()
    }
}

/// A command queue: its context and its device.
#[repr(C)]
struct Queue {
    dispatch: usize,
    references: AtomicU32,
    context: usize,
    device: usize,
}

fn made(devices: Vec<usize>, code: *mut i32) -> usize {
    if devices.is_empty() {
        set(code, INVALID_VALUE);
        return 0;
    }
    set(code, SUCCESS);
    handle(Context {
        dispatch: table::dispatch(),
        references: AtomicU32::new(1),
        devices,
    })
}

fn queue(context: usize, device: usize, code: *mut i32) -> usize {
    set(code, SUCCESS);
    retain(&object::<Context>(context).map(|context| &context.references));
    handle(Queue {
        dispatch: table::dispatch(),
        references: AtomicU32::new(1),
        context,
        device,
    })
}

fn retain(references: &Option<&AtomicU32>) -> i32 {
    match references {
        Some(references) => {
            references.fetch_add(1, Ordering::Relaxed);
            SUCCESS
        }
        None => INVALID_CONTEXT,
    }
}

/// Drops a reference to a context.
pub(crate) fn release(context: usize) -> i32 {
    let Some(there) = object::<Context>(context) else {
        return INVALID_CONTEXT;
    };
    if there.references.fetch_sub(1, Ordering::AcqRel) == 1 {
        delete::<Context>(context);
    }
    SUCCESS
}

/// Adds a reference to a context.
pub(crate) fn keep(context: usize) {
    retain(&object::<Context>(context).map(|context| &context.references));
}

entries! {
    4 fn clCreateContext(_properties: *const isize, count: u32, devices: *const usize, _notify: usize, _data: *mut c_void, code: *mut i32) -> usize {
        made((0..count as usize).map(|n| at(devices, n)).collect(), code)
    }

    5 fn clCreateContextFromType(_properties: *const isize, _kinds: u64, _notify: usize, _data: *mut c_void, code: *mut i32) -> usize {
        made(device::all(), code)
    }

    6 fn clRetainContext(context: usize) -> i32 {
        retain(&object::<Context>(context).map(|context| &context.references))
    }

    7 fn clReleaseContext(context: usize) -> i32 {
        release(context)
    }

    8 fn clGetContextInfo(context: usize, name: u32, size: usize, value: *mut c_void, size_ret: *mut usize) -> i32 {
        let Some(there) = object::<Context>(context) else {
            return INVALID_CONTEXT;
        };
        let number = |value: u32| value.to_ne_bytes().to_vec();
        let bytes = match name {
            0x1080 => number(there.references.load(Ordering::Relaxed)),
            0x1081 => handles(there.devices.iter().copied()),
            0x1082 => Vec::new(),
            0x1083 => number(u32::try_from(there.devices.len()).unwrap_or(0)),
            _ => return INVALID_VALUE,
        };
        reply(&bytes, size, value, size_ret)
    }

    9 fn clCreateCommandQueue(context: usize, device: usize, _properties: u64, code: *mut i32) -> usize {
        queue(context, device, code)
    }

    10 fn clRetainCommandQueue(it: usize) -> i32 {
        retain(&object::<Queue>(it).map(|queue| &queue.references))
    }

    11 fn clReleaseCommandQueue(it: usize) -> i32 {
        let Some(there) = object::<Queue>(it) else {
            return INVALID_VALUE;
        };
        if there.references.fetch_sub(1, Ordering::AcqRel) == 1 {
            release(there.context);
            delete::<Queue>(it);
        }
        SUCCESS
    }

    12 fn clGetCommandQueueInfo(it: usize, name: u32, size: usize, value: *mut c_void, size_ret: *mut usize) -> i32 {
        let Some(there) = object::<Queue>(it) else {
            return INVALID_VALUE;
        };
        let bytes = match name {
            0x1090 => handles(std::iter::once(there.context)),
            0x1091 => handles(std::iter::once(there.device)),
            0x1092 => there.references.load(Ordering::Relaxed).to_ne_bytes().to_vec(),
            0x1093 => 0u64.to_ne_bytes().to_vec(),
            _ => return INVALID_VALUE,
        };
        reply(&bytes, size, value, size_ret)
    }

    46 fn clFlush(_queue: usize) -> i32 {
        SUCCESS
    }

    47 fn clFinish(_queue: usize) -> i32 {
        SUCCESS
    }

    123 fn clCreateCommandQueueWithProperties(context: usize, device: usize, _properties: *const u64, code: *mut i32) -> usize {
        queue(context, device, code)
    }
}
