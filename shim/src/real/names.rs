//! A name index of the table, built by the compiler.
//! Touches: its own bytes.

use core::ffi::CStr;

/// All names in one text, so that none of them needs a relocation.
pub(crate) struct Names<const ROWS: usize, const LENGTH: usize> {
    text: [u8; LENGTH],
    starts: [u16; ROWS],
    lengths: [u8; ROWS],
    /// The first row of each bucket, and for each row the next one in its bucket; NONE ends the
    /// list.
    buckets: [u8; BUCKETS],
    others: [u8; ROWS],
    /// The first letters of all names, as bits: most look-ups end here.
    first_letters: u128,
}

/// Programs look up thousands of names that are not in the table: most buckets are empty.
const BUCKETS: usize = 128;
const NONE: u8 = u8::MAX;

/// The bucket of a name. Names differ most in their lengths and at their ends.
const fn bucket(name: &[u8]) -> usize {
    let (Some(last), Some((early, _))) = (name.last(), name.split_first_chunk::<5>()) else {
        return 0;
    };
    let mixed = name
        .len()
        .wrapping_mul(7)
        .wrapping_add((*last as usize).wrapping_mul(29))
        .wrapping_add((early[4] as usize).wrapping_mul(13));
    mixed % BUCKETS
}

impl<const ROWS: usize, const LENGTH: usize> Names<ROWS, LENGTH> {
    #[expect(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::cast_possible_truncation,
        reason = "runs in the compiler, which stops at a fault"
    )]
    pub(crate) const fn new(names: [&str; ROWS]) -> Names<ROWS, LENGTH> {
        const { assert!(ROWS < NONE as usize, "a row has a number below NONE") };
        let mut made = Names {
            text: [0; LENGTH],
            starts: [0; ROWS],
            lengths: [0; ROWS],
            buckets: [NONE; BUCKETS],
            others: [NONE; ROWS],
            first_letters: 0,
        };
        let (mut row, mut end) = (0, 0);
        while row < ROWS {
            let name = names[row].as_bytes();
            assert!(name.len() <= u8::MAX as usize && end <= u16::MAX as usize);
            made.starts[row] = end as u16;
            made.lengths[row] = name.len() as u8;
            let mut letter = 0;
            while letter < name.len() {
                made.text[end] = name[letter];
                end += 1;
                letter += 1;
            }
            end += 1;
            made.first_letters |= 1u128 << name[0];
            let bucket = bucket(name);
            made.others[row] = made.buckets[bucket];
            made.buckets[bucket] = row as u8;
            row += 1;
        }
        made
    }

    /// A row's name with its terminating NUL.
    pub(crate) fn with_nul(&self, row: usize) -> &[u8] {
        let start = self.starts.get(row).map_or(0, |start| usize::from(*start));
        let length = self
            .lengths
            .get(row)
            .map_or(0, |length| usize::from(*length));
        let end = start.saturating_add(length).saturating_add(1);
        self.text.get(start..end).unwrap_or_default()
    }

    /// Whether a name may begin with this letter.
    #[inline]
    pub(crate) fn begins(&self, letter: u8) -> bool {
        let bit = 1u128.checked_shl(u32::from(letter)).unwrap_or(0);
        self.first_letters & bit != 0
    }

    /// The number of the row with exactly this name.
    pub(crate) fn find(&self, name: &CStr) -> Option<usize> {
        let mut at = *self.buckets.get(bucket(name.to_bytes()))?;
        while at != NONE {
            let number = usize::from(at);
            if self.with_nul(number) == name.to_bytes_with_nul() {
                return Some(number);
            }
            at = *self.others.get(number)?;
        }
        None
    }
}
