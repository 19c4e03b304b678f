//! Allocations that more than one process holds: exported VMM handles and IPC memory.
//! Touches: the segment table. Law: the bytes count once, for the payer, until the last holder lets
//! go or dies.

use crate::charge::Kind;
use crate::map::Machine;
use crate::shared::{SEGMENTS, SLOTS, Segment};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Identifies a segment in every process.
pub type SegmentId = u64;

impl Machine {
    /// Turns an allocation for which this process paid into a shared one. `None`: the table is
    /// full.
    pub fn share(&self, domain: usize, kind: Kind, bytes: u64) -> Option<SegmentId> {
        self.locked(|| {
            let slot = self.slot.load(Relaxed);
            if slot >= SLOTS {
                return None;
            }
            let (i, segment) = self
                .shared
                .segments
                .iter()
                .enumerate()
                .find(|(_, it)| it.id.load(Relaxed) == 0)?;
            let id = self.shared.next_segment.fetch_add(1, Relaxed);
            segment.domain.store(domain as u64, Relaxed);
            segment.bytes.store(bytes, Relaxed);
            segment.payer.store(slot as u64, Relaxed);
            for holder in &segment.holders {
                holder.store(0, Relaxed);
            }
            segment.holders[0].store(pack(slot, 1), Relaxed);
            self.subtract(slot, domain, kind, bytes);
            segment.id.store(id, Release);
            self.shared.segments_high.fetch_max(i as u64 + 1, Release);
            Some(id)
        })
    }

    /// Adds a reference to a segment, and returns its memory and size. `None`: the segment is gone.
    pub fn hold_segment(&self, id: SegmentId) -> Option<(usize, u64)> {
        self.locked(|| {
            self.reap();
            let slot = self.own_slot().ok()?;
            let segment = self.segment(id)?;
            let holders = &segment.holders;
            let holder = holders
                .iter()
                .find(|it| owner(it.load(Relaxed)) == Some(slot))
                .or_else(|| holders.iter().find(|it| it.load(Relaxed) == 0))?;
            let count = holder.load(Relaxed) & 0xffff_ffff;
            holder.store(pack(slot, count + 1), Relaxed);
            Some((
                usize::try_from(segment.domain.load(Relaxed)).ok()?,
                segment.bytes.load(Relaxed),
            ))
        })
    }

    /// Drops a reference to a segment. The last one frees it.
    pub fn drop_segment(&self, id: SegmentId) {
        self.locked(|| {
            let slot = self.slot.load(Relaxed);
            let Some(segment) = self.segment(id) else {
                return;
            };
            for holder in &segment.holders {
                let now = holder.load(Relaxed);
                if owner(now) == Some(slot) {
                    let count = (now & 0xffff_ffff).saturating_sub(1);
                    holder.store(if count == 0 { 0 } else { pack(slot, count) }, Relaxed);
                }
            }
            settle(segment);
            self.write_meminfo();
        });
    }

    pub(crate) fn forget_holder(&self, slot: usize) {
        for segment in &self.shared.segments[..self.segments_high()] {
            if segment.id.load(Acquire) == 0 {
                continue;
            }
            for holder in &segment.holders {
                if owner(holder.load(Relaxed)) == Some(slot) {
                    holder.store(0, Relaxed);
                }
            }
            settle(segment);
        }
    }

    pub(crate) fn segment_bytes(&self, domain: usize) -> u64 {
        self.live_segments(domain)
            .map(|it| it.bytes.load(Relaxed))
            .sum()
    }

    pub(crate) fn paid_segments(&self, slot: usize, domain: usize) -> u64 {
        self.live_segments(domain)
            .filter(|it| it.payer.load(Relaxed) == slot as u64)
            .map(|it| it.bytes.load(Relaxed))
            .sum()
    }

    fn live_segments(&self, domain: usize) -> impl Iterator<Item = &Segment> {
        self.shared.segments[..self.segments_high()]
            .iter()
            .filter(move |it| it.id.load(Acquire) != 0 && it.domain.load(Relaxed) == domain as u64)
    }

    fn segment(&self, id: SegmentId) -> Option<&'static Segment> {
        self.shared
            .segments
            .iter()
            .find(|it| id != 0 && it.id.load(Acquire) == id)
    }

    fn segments_high(&self) -> usize {
        usize::try_from(self.shared.segments_high.load(Acquire))
            .unwrap_or(0)
            .min(SEGMENTS)
    }
}

fn pack(slot: usize, count: u64) -> u64 {
    ((slot as u64 + 1) << 32) | count
}

fn owner(holder: u64) -> Option<usize> {
    usize::try_from((holder >> 32).checked_sub(1)?).ok()
}

/// Frees a segment without holders. If the payer has let go, another holder pays.
fn settle(segment: &Segment) {
    let mut owners = segment
        .holders
        .iter()
        .filter_map(|it| owner(it.load(Relaxed)));
    let payer = segment.payer.load(Relaxed);
    match owners.next() {
        None => segment.id.store(0, Release),
        Some(first) if first as u64 != payer && !owners.any(|it| it as u64 == payer) => {
            segment.payer.store(first as u64, Relaxed);
        }
        Some(_) => {}
    }
}
