//! Virtual memory management. Memory is charged when its handle is created. It is free when its
//! last handle and its last mapping are gone, in whichever process they are.
//! Touches: the machine's charges; a memory file for each handle, which an exported descriptor
//! refers to.

use crate::abi::*;
use crate::driver::{Driver, driver};
use crate::heap;
use crate::memory::begin;
use crate::state::Paid;
use gpuslice_sim_machine::{Kind, STEP};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::os::unix::fs::FileExt;

/// The vendor's CUmemAllocationProp.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prop {
    kind: i32,
    handle_types: i32,
    location: i32,
    id: i32,
    windows: usize,
    flags: [u8; 8],
}

/// The vendor's CUmemAccessDesc.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access {
    location: i32,
    id: i32,
    flags: i32,
}

#[derive(Debug)]
struct Physical {
    bytes: u64,
    prop: Prop,
    paid: Paid,
    file: File,
    handles: u32,
    mappings: u32,
}

/// All of this process's handles, reservations and mappings.
#[derive(Debug, Default)]
pub(crate) struct Vmm {
    physical: BTreeMap<u64, Physical>,
    reserved: BTreeMap<u64, u64>,
    /// The length and the handle of each mapped address.
    mapped: BTreeMap<u64, (u64, u64)>,
}

impl Vmm {
    /// The mapping in which an address lies.
    pub(crate) fn mapping_around(&self, at: u64) -> Option<(u64, u64)> {
        let (base, (bytes, _)) = self.mapped.range(..=at).next_back()?;
        (at < base + bytes).then_some((*base, *bytes))
    }

    fn reservation_holds(&self, at: u64, bytes: u64) -> bool {
        let around = self.reserved.range(..=at).next_back();
        around.is_some_and(|(base, len)| at.checked_add(bytes).is_some_and(|end| end <= base + len))
    }

    /// Adds a mapping that has no address.
    pub(crate) fn hold(&mut self, handle: u64) -> Answer {
        self.physical
            .get_mut(&handle)
            .ok_or(INVALID_VALUE)?
            .mappings += 1;
        Ok(())
    }

    /// Removes such a mapping.
    pub(crate) fn let_go(&mut self, driver: &Driver, handle: u64) {
        if let Some(it) = self.physical.get_mut(&handle) {
            it.mappings -= 1;
        }
        self.settle(driver, handle);
    }

    fn settle(&mut self, driver: &Driver, handle: u64) {
        let unused = self
            .physical
            .get(&handle)
            .is_some_and(|it| it.handles == 0 && it.mappings == 0);
        if unused && let Some(it) = self.physical.remove(&handle) {
            match it.paid {
                Paid::Own {
                    domain,
                    kind,
                    bytes,
                } => driver.machine.discharge(domain, kind, bytes),
                Paid::Segment(id) => driver.machine.drop_segment(id),
                _ => {}
            }
        }
    }
}

fn memory_file(bytes: u64) -> Answer<File> {
    let fd = gpuslice_sim_machine::memory_file(c"gpuslice-sim-vmm").map_err(|_| OUT_OF_MEMORY)?;
    // SAFETY: a fresh descriptor that nobody else owns.
    let file = unsafe { File::from_raw_fd(fd) };
    // The file has eight bytes more than the memory. An export writes the segment's number there.
    file.set_len(bytes + 8).map_err(|_| OUT_OF_MEMORY)?;
    Ok(file)
}

/// The vendor's CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN: a part of a device.
pub(crate) const LOCALITY_DOMAIN: i32 = 6;

/// The device of a location. That of a locality domain is in the first byte.
pub(crate) fn device_of(location: i32, id: i32) -> CUdevice {
    match location {
        LOCALITY_DOMAIN => i32::from(id.to_ne_bytes()[0]),
        _ => id,
    }
}

/// The place of a handle's memory: a device's domain, or (`None`) the host.
fn domain(driver: &Driver, prop: &Prop) -> Answer<Option<usize>> {
    match prop.location {
        1 | LOCALITY_DOMAIN => {
            let device = device_of(prop.location, prop.id);
            Ok(Some(driver.device(device)?.domain))
        }
        2..=4 => Ok(driver
            .devices
            .iter()
            .map(|it| it.domain)
            .find(|it| driver.machine.gpu(*it).integrated)),
        _ => Err(INVALID_VALUE),
    }
}

fn create(bytes: u64, prop: Prop) -> Answer<u64> {
    let driver = driver()?;
    begin(driver, bytes)?;
    if !bytes.is_multiple_of(STEP) || prop.kind != 1 {
        return Err(INVALID_VALUE);
    }
    let file = memory_file(bytes)?;
    let kind = if matches!(prop.location, 1 | LOCALITY_DOMAIN) {
        Kind::Vmm
    } else {
        Kind::Host
    };
    let paid = match domain(driver, &prop)? {
        Some(domain) => {
            driver
                .machine
                .charge(domain, kind, bytes)
                .map_err(|_| OUT_OF_MEMORY)?;
            Paid::Own {
                domain,
                kind,
                bytes,
            }
        }
        None => Paid::Nothing,
    };
    let mut state = driver.state();
    let handle = state.fresh_handle() as u64;
    state.vmm.physical.insert(
        handle,
        Physical {
            bytes,
            prop,
            paid,
            file,
            handles: 1,
            mappings: 0,
        },
    );
    Ok(handle)
}

fn export(handle: u64) -> Answer<i32> {
    let driver = driver()?;
    let mut state = driver.state();
    let it = state.vmm.physical.get_mut(&handle).ok_or(INVALID_VALUE)?;
    if it.prop.handle_types & 1 == 0 {
        return Err(INVALID_VALUE);
    }
    if let Paid::Own {
        domain,
        kind,
        bytes,
    } = it.paid
    {
        let id = driver
            .machine
            .share(domain, kind, bytes)
            .ok_or(OUT_OF_MEMORY)?;
        it.file
            .write_all_at(&id.to_ne_bytes(), it.bytes)
            .map_err(|_| UNKNOWN)?;
        it.paid = Paid::Segment(id);
    }
    Ok(it.file.try_clone().map_err(|_| UNKNOWN)?.into_raw_fd())
}

fn import(fd: i32) -> Answer<u64> {
    let driver = driver()?;
    // SAFETY: the caller keeps its descriptor: it is borrowed for the copy and forgotten.
    let borrowed = std::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
    let file = borrowed.try_clone().map_err(|_| INVALID_VALUE)?;
    let bytes = file
        .metadata()
        .map_err(|_| INVALID_VALUE)?
        .len()
        .checked_sub(8)
        .ok_or(INVALID_VALUE)?;
    let mut id = [0; 8];
    file.read_exact_at(&mut id, bytes)
        .map_err(|_| INVALID_VALUE)?;
    let id = u64::from_ne_bytes(id);
    let mut state = driver.state();
    let known = state
        .vmm
        .physical
        .iter_mut()
        .find(|(_, it)| it.paid == Paid::Segment(id) && id != 0);
    if let Some((handle, it)) = known {
        it.handles += 1;
        return Ok(*handle);
    }
    let (domain, _) = driver.machine.hold_segment(id).ok_or(INVALID_VALUE)?;
    let ordinal = driver
        .devices
        .iter()
        .position(|it| it.domain == domain)
        .unwrap_or(0);
    let prop = Prop {
        kind: 1,
        handle_types: 1,
        location: 1,
        id: ordinal as i32,
        windows: 0,
        flags: [0; 8],
    };
    let handle = state.fresh_handle() as u64;
    let it = Physical {
        bytes,
        prop,
        paid: Paid::Segment(id),
        file,
        handles: 1,
        mappings: 0,
    };
    state.vmm.physical.insert(handle, it);
    Ok(handle)
}

fn map(at: u64, bytes: u64, offset: u64, handle: u64) -> Answer {
    let driver = driver()?;
    let mut state = driver.state();
    let vmm = &mut state.vmm;
    let taken = vmm.mapped.range(..at.saturating_add(bytes)).next_back();
    if taken.is_some_and(|(base, (len, _))| base + len > at) || !vmm.reservation_holds(at, bytes) {
        return Err(INVALID_VALUE);
    }
    let it = vmm.physical.get_mut(&handle).ok_or(INVALID_VALUE)?;
    if bytes == 0
        || !bytes.is_multiple_of(STEP)
        || offset.checked_add(bytes).is_none_or(|end| end > it.bytes)
    {
        return Err(INVALID_VALUE);
    }
    heap::place(at, bytes, Some((it.file.as_raw_fd(), offset)))?;
    it.mappings += 1;
    vmm.mapped.insert(at, (bytes, handle));
    Ok(())
}

fn unmap(at: u64, bytes: u64) -> Answer {
    let driver = driver()?;
    let mut state = driver.state();
    let vmm = &mut state.vmm;
    let end = at.checked_add(bytes).ok_or(INVALID_VALUE)?;
    let gone: Vec<(u64, u64, u64)> = vmm
        .mapped
        .range(at..end)
        .map(|(base, (len, handle))| (*base, *len, *handle))
        .collect();
    if gone.is_empty() || gone.iter().map(|it| it.1).sum::<u64>() != bytes {
        return Err(INVALID_VALUE);
    }
    for (base, len, handle) in gone {
        vmm.mapped.remove(&base);
        heap::place(base, len, None)?;
        if let Some(it) = vmm.physical.get_mut(&handle) {
            it.mappings -= 1;
        }
        vmm.settle(driver, handle);
    }
    Ok(())
}

cuda! {
    fn cuMemGetAllocationGranularity(out: Out<usize>, prop: In<Prop>, _option: i32) {
        driver()?;
        prop.get()?;
        out.set(STEP as usize)
    }

    fn cuMemCreate(out: Out<u64>, bytes: usize, prop: In<Prop>, flags: u64) {
        if flags != 0 || out.is_null() {
            return Err(INVALID_VALUE);
        }
        out.set(create(bytes as u64, prop.get()?)?)
    }

    fn cuMemRelease(handle: u64) {
        let driver = driver()?;
        let mut state = driver.state();
        let it = state.vmm.physical.get_mut(&handle).ok_or(INVALID_VALUE)?;
        it.handles = it.handles.checked_sub(1).ok_or(INVALID_VALUE)?;
        state.vmm.settle(driver, handle);
        Ok(())
    }

    fn cuMemRetainAllocationHandle(out: Out<u64>, at: u64) {
        let driver = driver()?;
        let mut state = driver.state();
        let (base, _) = state.vmm.mapping_around(at).ok_or(INVALID_VALUE)?;
        let (_, handle) = *state.vmm.mapped.get(&base).ok_or(INVALID_VALUE)?;
        state.vmm.physical.get_mut(&handle).ok_or(INVALID_VALUE)?.handles += 1;
        out.set(handle)
    }

    fn cuMemGetAllocationPropertiesFromHandle(out: Out<Prop>, handle: u64) {
        let driver = driver()?;
        out.set(driver.state().vmm.physical.get(&handle).ok_or(INVALID_VALUE)?.prop)
    }

    fn cuMemExportToShareableHandle(out: Out<i32>, handle: u64, kind: i32, _flags: u64) {
        if kind != 1 {
            return Err(NOT_SUPPORTED);
        }
        out.set(export(handle)?)
    }

    fn cuMemImportFromShareableHandle(out: Out<u64>, descriptor: usize, kind: i32) {
        if kind != 1 {
            return Err(NOT_SUPPORTED);
        }
        out.set(import(i32::try_from(descriptor).map_err(|_| INVALID_VALUE)?)?)
    }

    fn cuMemAddressReserve(out: Out<CUdeviceptr>, bytes: usize, _align: usize, _hint: CUdeviceptr, flags: u64) {
        let driver = driver()?;
        if bytes == 0 || !(bytes as u64).is_multiple_of(STEP) || flags != 0 {
            return Err(INVALID_VALUE);
        }
        let at = heap::map(bytes as u64, false)?;
        driver.state().vmm.reserved.insert(at, bytes as u64);
        out.set(at)
    }

    fn cuMemAddressFree(at: CUdeviceptr, bytes: usize) {
        let driver = driver()?;
        let mut state = driver.state();
        let vmm = &mut state.vmm;
        let whole = vmm.reserved.get(&at) == Some(&(bytes as u64));
        if !whole || vmm.mapped.range(at..at + bytes as u64).next().is_some() {
            return Err(INVALID_VALUE);
        }
        vmm.reserved.remove(&at);
        heap::unmap(at, bytes as u64);
        Ok(())
    }

    fn cuMemMap(at: CUdeviceptr, bytes: usize, offset: usize, handle: u64, flags: u64) {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        map(at, bytes as u64, offset as u64, handle)
    }

    fn cuMemUnmap(at: CUdeviceptr, bytes: usize) {
        unmap(at, bytes as u64)
    }

    fn cuMemSetAccess(at: CUdeviceptr, bytes: usize, access: In<Access>, count: usize) {
        let driver = driver()?;
        let mut allowed = 0;
        for i in 0..count {
            allowed |= access.at(i).get()?.flags;
        }
        let state = driver.state();
        if !state.vmm.reservation_holds(at, bytes as u64) || state.vmm.mapping_around(at).is_none() {
            return Err(INVALID_VALUE);
        }
        let read = if allowed & 1 == 0 { libc::PROT_NONE } else { libc::PROT_READ };
        heap::protect(at, bytes as u64, if allowed & 2 == 0 { read } else { read | libc::PROT_WRITE })
    }

    fn cuMemGetAccess(out: Out<u64>, _location: Handle, at: CUdeviceptr) {
        let driver = driver()?;
        driver.state().vmm.mapping_around(at).ok_or(INVALID_VALUE)?;
        out.set(3)
    }
}
