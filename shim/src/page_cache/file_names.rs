//! Tests whether a file's name may be a model's: in any slice, before this slice's rules are known,
//! and in this slice.
//! Touches: two atomics.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gpuslice_config::slice::Ends;

/// The name endings of this slice's models, in atomics.
static LETTERS: AtomicU64 = AtomicU64::new(0);
static CHECKSUMS: AtomicBool = AtomicBool::new(false);

/// The name endings of this slice's models.
#[inline(always)]
pub(super) fn ends() -> Ends {
    Ends {
        letters: LETTERS.load(Ordering::Relaxed),
        checksums: CHECKSUMS.load(Ordering::Relaxed),
    }
}

/// Stores the name endings.
pub(super) fn keep(ends: Ends) {
    LETTERS.store(ends.letters, Ordering::Relaxed);
    CHECKSUMS.store(ends.checksums, Ordering::Relaxed);
}

/// The length of a SHA-256 in hexadecimal digits.
const CHECKSUM: usize = 64;
/// The longest suffix, with its point.
const LONGEST: usize = 17;

/// Whether there is a point near the end, or the name may be a checksum: a few instructions for
/// every opened file.
#[inline(always)]
pub(super) fn may_have_suffix(path: &[u8]) -> bool {
    let Some((before, last)) = path.split_last_chunk() else {
        return path.contains(&b'.');
    };
    has_point(*last)
        || match before.last_chunk() {
            Some(before) => has_point(*before),
            None => before.contains(&b'.'),
        }
        || path.len() >= LONGEST && path.get(path.len().saturating_sub(LONGEST)) == Some(&b'.')
        || path.len() >= CHECKSUM
}

/// Whether one of the eight bytes is a point. Tests all of them at once.
#[inline(always)]
fn has_point(bytes: [u8; 8]) -> bool {
    const ONES: u64 = u64::MAX / 255;
    let points = u64::from_ne_bytes(bytes) ^ u64::from_ne_bytes([b'.'; 8]);
    // A byte that borrows was 0, or lies above a byte that was.
    points.wrapping_sub(ONES) & !points & (ONES << 7) != 0
}

/// Whether a path may be a model's in any slice: its name has a suffix, or is a checksum.
pub(super) fn is_plausible(path: &[u8]) -> bool {
    for place in [&b"/proc/"[..], b"/sys/"] {
        if path.starts_with(place) {
            return false;
        }
    }
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let suffix = name.rsplit(|byte| *byte == b'.').next().unwrap_or(name);
    name.len() >= CHECKSUM || (suffix.len() < name.len() && suffix.len() < LONGEST)
}
