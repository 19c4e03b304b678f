//! Evicts model files from the page cache: the hooks of libc report opened, mapped and closed
//! files.
//! Touches: atomics; the kernel, where a model file is concerned.
//! Law: allocates nothing, takes no lock, leaves errno alone. Every real function is called exactly
//! once. Without a slice that asks for eviction, it is one branch.

pub(crate) mod drop_behind;
pub(crate) mod file_names;
mod file_systems;
mod files;
pub(crate) mod fork;
mod hints;
pub(crate) mod mappings;
pub(crate) mod open;
mod own_descriptor;
mod queue;
pub(crate) mod quiesce;
pub(crate) mod range_locks;
pub(crate) mod seccomp;

use crate::sys::file_calls::Descriptor;
use drop_behind::helper;
use files::Number;
use mappings::{Piece, Range};
use open::drops_behind;
pub(crate) use open::{drops, matters, opened};
use quiesce::InFlight;
pub(crate) use quiesce::{finish, is_another_process, stop_helper};

/// Records that a descriptor is about to be closed.
#[inline]
pub(crate) fn closing(fd: i32) {
    if hints::may_be(Descriptor(fd)) {
        model_closing(Descriptor(fd));
    }
}

#[cold]
#[inline(never)]
fn model_closing(fd: Descriptor) {
    if let Some(_in_flight) = InFlight::at_own_files() {
        files::closing(fd);
    }
}

/// Whether any model file is in use; if not, no other state needs to be read.
#[inline]
pub(crate) fn in_use() -> bool {
    files::any()
}

/// Whether a descriptor may be a model file's.
#[inline]
pub(crate) fn may_be_model(fd: i32) -> bool {
    hints::may_be(Descriptor(fd))
}

/// Records that all descriptors of a range are about to be closed.
pub(crate) fn closing_range(first: u32, last: u32) {
    if files::any()
        && let Some(_in_flight) = InFlight::at_own_files()
    {
        hints::hinted(first, last).for_each(files::closing);
    }
}

/// Records a duplicate of a descriptor.
#[inline]
pub(crate) fn duplicated(from: i32, to: i32) {
    if hints::may_be(Descriptor(from))
        && to >= 0
        && from != to
        && let Some(_in_flight) = InFlight::at_own_files()
    {
        files::duplicated(Descriptor(from), Descriptor(to));
    }
}

/// Records that the program is about to lock a file or to query its locks: ours would interfere.
#[inline]
pub(crate) fn locking(fd: i32) {
    if hints::may_be(Descriptor(fd)) {
        model_locking(Descriptor(fd));
    }
}

#[cold]
#[inline(never)]
fn model_locking(fd: Descriptor) {
    if open::shares()
        && let Some(_in_flight) = InFlight::at_own_files()
        && let Some(number) = files::acquire(fd)
    {
        range_locks::gives_way(number);
        number.release(Some(fd));
    }
}

/// The files that a call is about to unmap. They stay in use until the call has returned, because
/// mapped pages cannot be dropped.
#[derive(Clone, Copy)]
pub(crate) struct Unmapping([u8; 4]);

impl Unmapping {
    const NOTHING: Unmapping = Unmapping([0; 4]);

    /// Releases the files after the call has returned.
    #[inline]
    pub(crate) fn let_go(self) {
        if self.0 != [0; 4] {
            self.release();
        }
    }

    #[cold]
    fn release(self) {
        let Some(_in_flight) = InFlight::begin() else {
            return;
        };
        for number in self.0.into_iter().filter_map(Number::from_raw) {
            files::sweep(number);
            number.release(None);
        }
    }
}

/// Records that a range of memory is about to be unmapped, or mapped anew.
#[inline]
pub(crate) fn unmapping(address: usize, length: usize) -> Unmapping {
    let range = Range::new(address, length);
    match mappings::may_meet(range) {
        true => model_unmapping(range),
        false => Unmapping::NOTHING,
    }
}

#[cold]
#[inline(never)]
fn model_unmapping(range: Range) -> Unmapping {
    let mut unmapping = Unmapping::NOTHING;
    let Some(_in_flight) = InFlight::begin() else {
        return unmapping;
    };
    if !mappings::meets(range) || !fork::is_this_process(1) {
        return unmapping;
    }
    for piece in mappings::meeting(range) {
        let raw = piece.number.raw();
        if !unmapping.0.contains(&raw)
            && let Some(place) = unmapping.0.iter_mut().find(|place| **place == 0)
            && piece.number.acquire()
        {
            *place = raw;
        }
    }
    mappings::remove(range);
    wait_for_helper(unmapping);
    unmapping
}

/// Waits until the helper has left files whose mappings are about to change: the addresses may then
/// belong to another mapping.
fn wait_for_helper(unmapping: Unmapping) {
    for number in unmapping.0.into_iter().filter_map(Number::from_raw) {
        helper::wait_for(number);
    }
}

/// The arguments and the result of a mapping.
#[derive(Clone, Copy)]
pub(crate) struct Mapping {
    pub(crate) address: usize,
    pub(crate) length: usize,
    pub(crate) prot: i32,
    pub(crate) flags: i32,
    pub(crate) fd: i32,
    pub(crate) offset: i64,
}

const PROT_WRITE: i32 = 2;
const MAP_SHARED: i32 = 1;
const MAP_TYPE: i32 = 15;
const MAP_ANONYMOUS: i32 = 0x20;

/// Records that a file was mapped.
#[inline]
pub(crate) fn mapped(mapping: Mapping) {
    if hints::may_be(Descriptor(mapping.fd)) && mapping.flags & MAP_ANONYMOUS == 0 {
        model_mapped(mapping);
    }
}

#[cold]
#[inline(never)]
fn model_mapped(mapping: Mapping) {
    let Some(_in_flight) = InFlight::at_own_files() else {
        return;
    };
    let fd = Descriptor(mapping.fd);
    let Some(number) = files::acquire(fd) else {
        return;
    };
    // Without a descriptor the pages could not be dropped later.
    if !number.file().hold(fd) {
        number.release(Some(fd));
        return;
    }
    let mut kind = 0;
    // MAP_SHARED_VALIDATE is 3.
    if mapping.flags & MAP_TYPE & MAP_SHARED != 0 && mapping.flags & MAP_TYPE != 2 {
        kind |= mappings::SHARED;
    }
    if mapping.prot & PROT_WRITE != 0 {
        kind |= mappings::WRITABLE;
    }
    mappings::add(Piece {
        range: Range::new(mapping.address, mapping.length),
        offset: u64::try_from(mapping.offset).unwrap_or(0),
        number,
        kind,
    });
}

/// Records that a mapping is about to be moved or resized. Returns the model file's part of it.
pub(crate) fn moving(address: usize, length: usize) -> Option<Moving> {
    let range = Range::new(address, length);
    if !mappings::may_meet(range) {
        return None;
    }
    let _in_flight = InFlight::begin()?;
    if !mappings::meets(range) || !fork::is_this_process(1) {
        return None;
    }
    let piece = mappings::meeting(range).next();
    let piece = piece.filter(|piece| piece.number.acquire());
    mappings::remove(range);
    let piece = piece?;
    helper::wait_for(piece.number);
    Some(Moving { piece, range })
}

/// A mapping that may move. The file has one more user until the new place is known.
#[derive(Clone, Copy)]
pub(crate) struct Moving {
    piece: Piece,
    range: Range,
}

impl Moving {
    /// Records that the mapping has not moved.
    pub(crate) fn stayed(self) {
        self.lies(self.range);
    }

    /// Records the mapping's new place.
    pub(crate) fn moved(self, address: usize, length: usize) {
        self.lies(Range::new(address, length));
    }

    fn lies(self, range: Range) {
        let Some(_in_flight) = InFlight::begin() else {
            return;
        };
        let skipped = self.range.start.saturating_sub(self.piece.range.start);
        mappings::add(Piece {
            range,
            offset: self.piece.offset.saturating_add(skipped),
            ..self.piece
        });
    }
}

/// Records that a range of memory gets another protection.
#[inline]
pub(crate) fn protecting(address: usize, length: usize, prot: i32) {
    let range = Range::new(address, length);
    if prot & PROT_WRITE != 0 && mappings::may_meet(range) {
        model_written(range);
    }
}

#[cold]
#[inline(never)]
fn model_written(range: Range) {
    if let Some(_in_flight) = InFlight::begin()
        && mappings::meets(range)
        && fork::is_this_process(1)
    {
        mappings::written(range);
        for piece in mappings::meeting(range) {
            helper::wait_for(piece.number);
        }
    }
}

/// Records that these bytes were copied to the device.
#[inline]
pub(crate) fn copied(source: u64, length: usize) {
    if drops_behind()
        && let Ok(address) = usize::try_from(source)
    {
        let range = Range::new(address, length);
        if mappings::may_meet(range) {
            drop_behind::copied(range);
        }
    }
}

/// Records that bytes of a file were read: from `offset`, or up to the descriptor's current
/// position.
#[inline]
pub(crate) fn read(fd: i32, offset: Option<i64>, length: isize) {
    if drops_behind() && length > 0 && hints::may_be(Descriptor(fd)) {
        drop_behind::read(Descriptor(fd), offset, length);
    }
}
