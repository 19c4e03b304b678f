//! CUDA arrays and mipmapped arrays: charged like memory, sized by their format.
//! Touches: the machine's charges.

use crate::abi::*;
use crate::context::{Context, current};
use crate::driver::{Driver, driver};
use crate::memory::{begin, stepped, wanted};
use crate::state::State;
use gpuslice_sim_machine::Kind;

const ALIGNMENT: u64 = 65536;
/// CUDA_ARRAY3D_SPARSE.
const SPARSE: u32 = 0x40;
const DEFERRED_MAPPING: u32 = 0x80;
const MAPPED_LATER: u32 = SPARSE | DEFERRED_MAPPING;
/// CUDA_ARRAY3D_LAYERED and CUDA_ARRAY3D_CUBEMAP.
const LAYERS: u32 = 0x05;

/// One array.
#[derive(Debug, Clone)]
pub(crate) struct Array {
    pub(crate) context: Handle,
    domain: usize,
    bytes: u64,
    charged: u64,
    described: Described3D,
    levels: u32,
    /// The physical memory that is mapped into it, by subresource.
    tiles: Vec<(Subresource, u64)>,
}

/// A part of an array: its kind, and the union of its coordinates.
type Subresource = (i32, [u64; 4]);

/// The vendor's CUarrayMapInfo.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct MapInfo {
    resource: i32,
    array: Handle,
    kind: i32,
    place: [u64; 4],
    operation: i32,
    handle_type: i32,
    handle: u64,
    offset: u64,
    devices: u32,
    flags: u32,
    reserved: [u32; 2],
}

/// The vendor's CUDA_ARRAY_DESCRIPTOR.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Described {
    width: usize,
    height: usize,
    format: i32,
    channels: u32,
}

/// The vendor's CUDA_ARRAY3D_DESCRIPTOR.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Described3D {
    width: usize,
    height: usize,
    depth: usize,
    format: i32,
    channels: u32,
    flags: u32,
}

/// The vendor's CUDA_ARRAY_MEMORY_REQUIREMENTS.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Requirements {
    bytes: usize,
    alignment: usize,
    reserved: [u32; 4],
}

/// The channels that a format can have, and the bits of a texel of one channel; or of all channels,
/// where the format says their number.
fn format(format: i32) -> Answer<(&'static [u32], u64)> {
    const ANY: &[u32] = &[1, 2, 4];
    Ok(match format {
        0x01 | 0x08 => (ANY, 8),
        0x02 | 0x09 | 0x10 => (ANY, 16),
        0x03 | 0x0a | 0x20 => (ANY, 32),
        // UNORM_INT8X4 and SNORM_INT16X2, NV12, and P010.
        0xc2 => (&[4], 32),
        0xca => (&[2], 32),
        0xb0 => (&[3], 12),
        0x9f => (&[3], 24),
        // BC1 and BC7: blocks of four by four texels, of 64 and 128 bits.
        0x91 => (&[4], 4),
        0x9d => (&[4], 8),
        _ => return Err(INVALID_VALUE),
    })
}

fn size(it: &Described3D, levels: u32) -> Answer<u64> {
    let (channels, bits) = format(it.format)?;
    if it.width == 0 || !channels.contains(&it.channels) {
        return Err(INVALID_VALUE);
    }
    let per_texel = match channels.len() {
        1 => bits,
        _ => bits * u64::from(it.channels),
    };
    let side = if matches!(it.format, 0x91 | 0x9d) {
        4
    } else {
        1
    };
    let at = |extent: usize, level: u32| (extent as u64 >> level).max(1);
    let level_bytes = |level: u32| {
        let deep = match it.flags & LAYERS {
            0 => at(it.depth, level),
            _ => at(it.depth, 0),
        };
        let texels = at(it.width, level)
            .next_multiple_of(side)
            .checked_mul(at(it.height, level).next_multiple_of(side))?
            .checked_mul(deep)?;
        Some(texels.checked_mul(per_texel)?.div_ceil(8))
    };
    let sum = (0..levels).try_fold(0_u64, |sum, level| sum.checked_add(level_bytes(level)?));
    sum.and_then(|bytes| bytes.checked_next_multiple_of(ALIGNMENT))
        .ok_or(OUT_OF_MEMORY)
}

fn create(out: Out<Handle>, described: Described3D, levels: u32) -> Answer {
    let driver = driver()?;
    let context: &Context = current()?;
    wanted(out)?;
    let bytes = size(&described, levels)?;
    begin(driver, bytes)?;
    // Sparse arrays and those of deferred mapping get their memory by a mapping.
    let charged = match described.flags & MAPPED_LATER {
        0 => stepped(bytes)?,
        _ => 0,
    };
    driver
        .machine
        .charge(context.domain, Kind::Array, charged)
        .map_err(|_| OUT_OF_MEMORY)?;
    let mut state = driver.state();
    let handle = state.fresh_handle();
    let array = Array {
        context: context.handle(),
        domain: context.domain,
        bytes,
        charged,
        described,
        levels,
        tiles: Vec::new(),
    };
    state.arrays.insert(handle, array);
    out.set(handle)
}

pub(crate) fn destroy(driver: &Driver, state: &mut State, handle: Handle) -> Answer {
    let array = state.arrays.remove(&handle).ok_or(INVALID_HANDLE)?;
    driver
        .machine
        .discharge(array.domain, Kind::Array, array.charged);
    for (_, handle) in array.tiles {
        state.vmm.let_go(driver, handle);
    }
    Ok(())
}

/// Maps physical memory into a sparse array, or unmaps it.
fn map_tile(driver: &Driver, state: &mut State, info: MapInfo) -> Answer {
    let array = state.arrays.get_mut(&info.array).ok_or(INVALID_HANDLE)?;
    if array.described.flags & SPARSE == 0 || !matches!(info.operation, 1 | 2) {
        return Err(INVALID_VALUE);
    }
    let place = (info.kind, info.place);
    let before = array.tiles.iter().position(|(at, _)| *at == place);
    if info.operation == 1 {
        state.vmm.hold(info.handle)?;
        array.tiles.push((place, info.handle));
    }
    if let Some(before) = before {
        let (_, handle) = array.tiles.remove(before);
        state.vmm.let_go(driver, handle);
    }
    Ok(())
}

fn map_tiles(list: In<MapInfo>, count: u32) -> Answer {
    let driver = driver()?;
    let mut state = driver.state();
    for number in 0..count as usize {
        map_tile(driver, &mut state, list.at(number).get()?)?;
    }
    Ok(())
}

fn flat(it: Described) -> Described3D {
    Described3D {
        width: it.width,
        height: it.height,
        depth: 0,
        format: it.format,
        channels: it.channels,
        flags: 0,
    }
}

fn known(handle: Handle) -> Answer<Array> {
    driver()?
        .state()
        .arrays
        .get(&handle)
        .cloned()
        .ok_or(INVALID_HANDLE)
}

/// As the vendor documents it, only an array of deferred mapping has requirements.
fn requirements(out: Out<Requirements>, handle: Handle) -> Answer {
    let array = known(handle)?;
    if array.described.flags & DEFERRED_MAPPING == 0 {
        return Err(INVALID_VALUE);
    }
    let bytes = array.bytes as usize;
    out.set(Requirements {
        bytes,
        alignment: ALIGNMENT as usize,
        reserved: [0; 4],
    })
}

cuda! {
    fn cuArrayCreate_v2(out: Out<Handle>, described: In<Described>) {
        create(out, flat(described.get()?), 1)
    }

    fn cuArray3DCreate_v2(out: Out<Handle>, described: In<Described3D>) {
        create(out, described.get()?, 1)
    }

    fn cuArrayDestroy(array: Handle) {
        let driver = driver()?;
        destroy(driver, &mut driver.state(), array)
    }

    fn cuArrayGetDescriptor_v2(out: Out<Described>, array: Handle) {
        let it = known(array)?.described;
        out.set(Described { width: it.width, height: it.height, format: it.format, channels: it.channels })
    }

    fn cuArray3DGetDescriptor_v2(out: Out<Described3D>, array: Handle) {
        out.set(known(array)?.described)
    }

    fn cuArrayGetMemoryRequirements(out: Out<Requirements>, array: Handle, _device: CUdevice) {
        requirements(out, array)
    }

    fn cuMipmappedArrayCreate(out: Out<Handle>, described: In<Described3D>, levels: u32) {
        create(out, described.get()?, levels.clamp(1, 16))
    }

    fn cuMipmappedArrayGetLevel(out: Out<Handle>, array: Handle, level: u32) {
        if level >= known(array)?.levels {
            return Err(INVALID_VALUE);
        }
        out.set(array)
    }

    fn cuMipmappedArrayDestroy(array: Handle) {
        let driver = driver()?;
        destroy(driver, &mut driver.state(), array)
    }

    fn cuMemMapArrayAsync(list: In<MapInfo>, count: u32, _stream: Handle) {
        map_tiles(list, count)
    }

    fn cuMemMapArrayAsync_ptsz(list: In<MapInfo>, count: u32, _stream: Handle) {
        map_tiles(list, count)
    }

    fn cuMipmappedArrayGetMemoryRequirements(out: Out<Requirements>, array: Handle, _device: CUdevice) {
        requirements(out, array)
    }
}
