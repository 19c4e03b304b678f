//! Merges the loader's list, `/etc/ld.so.preload`: our library first, then the image's own entries.
//! Touches: its arguments.

/// The bytes that are read of an image's list.
pub(crate) const CAP: usize = 4096;

/// The list with the library first. Existing text is kept as it is, comments included.
#[must_use]
pub(crate) fn merge(existing: &[u8], library: &str) -> Vec<u8> {
    let mut merged = format!("{library}\n").into_bytes();
    let others = existing
        .split_inclusive(|byte| *byte == b'\n')
        .filter(|line| line.trim_ascii() != library.as_bytes());
    others.for_each(|line| merged.extend_from_slice(line));
    if merged.last() != Some(&b'\n') {
        merged.push(b'\n');
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_is_first_and_once_and_the_images_own_stay() {
        let merged =
            |existing: &str| String::from_utf8(merge(existing.as_bytes(), "/l.so")).unwrap();
        assert_eq!(merged(""), "/l.so\n");
        assert_eq!(merged("/a.so /b.so"), "/l.so\n/a.so /b.so\n");
        assert_eq!(merged("# note\n/a.so\n/l.so\n"), "/l.so\n# note\n/a.so\n");
        assert_eq!(merged(" /l.so \n\n"), "/l.so\n\n");
    }

    proptest::proptest! {
        #[test]
        fn any_list_is_kept_and_merging_twice_changes_nothing(
            existing in proptest::collection::vec(proptest::num::u8::ANY, 0..60),
        ) {
            let once = merge(&existing, "/l.so");
            proptest::prop_assert!(once.starts_with(b"/l.so\n"));
            proptest::prop_assert_eq!(merge(&once, "/l.so"), once);
        }
    }
}
