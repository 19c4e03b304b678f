//! Promises: the budget that each slice of a unified-memory machine was admitted for, and the part
//! of it that is spent.
//! Touches: its arguments; `folder` reads one folder, on the host's side.
//! Law: the budget is in the file's name, which only the host can write. A tenant's value in the
//! file is clamped to the budget, so a false value claims no more than was admitted. A slice has one
//! promise: a resize renames it, so its id, the part of the name after the first dot, identifies it.
//!
//! A promise is a regular file `<budget in bytes>.<slice id>` of 4096 bytes, zeros when it is made.
//! Its first eight bytes, little-endian, are the bytes that the slice has spent: its device memory,
//! and its host memory beyond the allowance. Readers never follow a link and never map a promise.

pub mod directory;
#[cfg(feature = "std")]
mod folder;

#[cfg(feature = "std")]
pub use folder::{ReadPromise, file_name, read_folder, rename};

use crate::words::units::Bytes;

/// The length of the file.
pub const SIZE: usize = 4096;

/// The length of the spent value at its start.
pub const HEAD: usize = 8;

/// The fields in a promise's file name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise<'a> {
    /// The budget that the slice was admitted for.
    pub budget: Bytes,
    /// The slice's id.
    pub slice: &'a [u8],
}

impl<'a> Promise<'a> {
    /// Parses a file name; `None` if it is not the name of a promise.
    #[must_use]
    pub fn named(name: &'a [u8]) -> Option<Promise<'a>> {
        let dot = name.iter().position(|letter| *letter == b'.')?;
        let (digits, slice) = (name.get(..dot)?, name.get(dot..)?.get(1..)?);
        let plain = |letter: &u8| !matches!(letter, b'/' | 0);
        // Only the canonical spelling of a number is accepted, so two names never mean one promise.
        let canonical = digits.first().is_some_and(|first| *first != b'0');
        if !canonical || slice.is_empty() || !slice.iter().all(plain) {
            return None;
        }
        let mut budget = 0u64;
        for letter in digits {
            let digit = letter.checked_sub(b'0').filter(|digit| *digit <= 9)?;
            budget = budget.checked_mul(10)?.checked_add(u64::from(digit))?;
        }
        Some(Promise {
            budget: Bytes::new(budget),
            slice,
        })
    }

    /// The slice's id in the path of its promise; `None` for a path that has none, such as a
    /// container's. The file may have another budget in its name by now.
    #[must_use]
    pub fn id_of(path: &'a [u8]) -> Option<&'a [u8]> {
        let name = path.rsplit(|letter| *letter == b'/').next()?;
        Promise::named(name).map(|promise| promise.slice)
    }

    /// The bytes that the slice may still spend, by its file's contents. If the file is too short,
    /// nothing counts as spent, and the promise remains.
    #[must_use]
    pub fn unused(&self, contents: &[u8]) -> Bytes {
        let spent = contents
            .first_chunk()
            .map_or(0, |head| u64::from_le_bytes(*head));
        self.budget.minus(Bytes::new(spent))
    }
}

/// The bytes that a slice writes at the start of its file.
#[must_use]
pub const fn spent(bytes: Bytes) -> [u8; HEAD] {
    bytes.get().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_the_budget_and_the_slice() {
        let promise = Promise::named(b"42949672960.run-17.a").unwrap();
        assert_eq!(promise.budget, Bytes::gib(40));
        assert_eq!(promise.slice, b"run-17.a");
        assert_eq!(
            Promise::id_of(b"/run/5.d/42.run-17.a"),
            Some(&b"run-17.a"[..])
        );
        assert_eq!(Promise::id_of(b"/.gpuslice/promise"), None);
    }

    #[test]
    fn what_is_no_promise_is_not_read_as_one() {
        for name in [
            &b""[..],
            b".",
            b"..",
            b"42949672960",
            b"42949672960.",
            b".run",
            b"0.run",
            b"042.run",
            b"-1.run",
            b"+1.run",
            b"1e9.run",
            b"4 2.run",
            b"18446744073709551616.run",
            b"5.a/b",
            b"5.a\0",
        ] {
            assert_eq!(Promise::named(name), None, "{name:?}");
        }
    }

    #[test]
    fn a_liar_claims_no_more_than_it_was_admitted_for() {
        let promise = Promise::named(b"1000.x").unwrap();
        assert_eq!(promise.unused(&[0; SIZE]), Bytes::new(1000));
        assert_eq!(promise.unused(&spent(Bytes::new(400))), Bytes::new(600));
        assert_eq!(promise.unused(&spent(Bytes::MAX)), Bytes::ZERO);
        for truncated in [&b""[..], &[255; 7]] {
            assert_eq!(promise.unused(truncated), Bytes::new(1000));
        }
    }

    proptest::proptest! {
        #[test]
        fn unused_lies_between_nothing_and_the_budget(
            name in proptest::collection::vec(proptest::num::u8::ANY, 0..40),
            budget in 1u64..,
            contents in proptest::collection::vec(proptest::num::u8::ANY, 0..20),
        ) {
            if let Some(promise) = Promise::named(&name) {
                proptest::prop_assert!(promise.unused(&contents) <= promise.budget);
            }
            let name = std::format!("{budget}.x");
            let promise = Promise::named(name.as_bytes()).unwrap();
            proptest::prop_assert!(promise.unused(&contents) <= Bytes::new(budget));
        }
    }
}
