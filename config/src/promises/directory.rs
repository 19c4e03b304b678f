//! Parses a folder's entries as the kernel lists them: consecutive `struct linux_dirent64`.
//! Touches: its arguments; the caller has queried the kernel.

use core::ffi::CStr;

/// The offsets of an entry's length and of its name.
const LENGTH: usize = 16;
const NAME: usize = 19;

/// The names in a buffer that `getdents64` has filled.
pub fn names(mut listed: &[u8]) -> impl Iterator<Item = &CStr> {
    core::iter::from_fn(move || {
        let length = listed.get(LENGTH..)?.first_chunk()?;
        let length = usize::from(u16::from_ne_bytes(*length));
        let entry = listed.get(..length)?;
        // A length too short to advance would cause an endless loop.
        listed = listed.get(length.max(NAME)..).unwrap_or_default();
        CStr::from_bytes_until_nul(entry.get(NAME..)?).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn entry(name: &str) -> Vec<u8> {
        let mut entry = std::vec![0u8; NAME];
        entry.extend(name.bytes());
        entry.push(0);
        entry.resize(entry.len().next_multiple_of(8), 0);
        let length = u16::try_from(entry.len()).unwrap().to_ne_bytes();
        entry[LENGTH..][..2].copy_from_slice(&length);
        entry
    }

    #[test]
    fn every_name_is_read() {
        let listed = [entry("."), entry(".."), entry("1073741824.run-1")].concat();
        let read: Vec<_> = names(&listed).map(|name| name.to_str().unwrap()).collect();
        assert_eq!(read, [".", "..", "1073741824.run-1"]);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_to_an_end(
            listed in proptest::collection::vec(proptest::num::u8::ANY, 0..400),
        ) {
            proptest::prop_assert!(names(&listed).count() <= listed.len());
        }
    }
}
