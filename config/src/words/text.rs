//! Short texts without allocation.
//! Touches: its arguments.

use core::ffi::CStr;

use crate::words::device::DeviceUuid;

/// A short text that needs no allocation. Longer ones are cut at a character.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    /// No text.
    pub const EMPTY: Text<N> = Text {
        bytes: [0; N],
        len: 0,
    };

    /// Keeps the first N bytes, whole characters only.
    #[must_use]
    pub fn new(text: &str) -> Text<N> {
        let mut kept = Text::EMPTY;
        if let Some(room) = kept.bytes.get_mut(..text.len()) {
            room.copy_from_slice(text.as_bytes());
            kept.len = text.len();
            return kept;
        }
        for letter in text.chars() {
            let mut utf8 = [0u8; 4];
            for byte in letter.encode_utf8(&mut utf8).bytes() {
                let Some(slot) = kept.bytes.get_mut(kept.len) else {
                    // The character does not fit whole: drop what was copied of it.
                    while core::str::from_utf8(kept.bytes.get(..kept.len).unwrap_or_default())
                        .is_err()
                    {
                        kept.len = kept.len.saturating_sub(1);
                    }
                    return kept;
                };
                *slot = byte;
                kept.len = kept.len.saturating_add(1);
            }
        }
        kept
    }

    /// The text as a C string; `None` if it has no room for the NUL, or contains one.
    #[must_use]
    pub fn as_c_str(&self) -> Option<&CStr> {
        let text = CStr::from_bytes_until_nul(&self.bytes).ok()?;
        (text.count_bytes() == self.len).then_some(text)
    }

    /// The text's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(self.bytes.get(..self.len).unwrap_or_default()).unwrap_or_default()
    }
}

impl<const N: usize> core::fmt::Debug for Text<N> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Debug::fmt(self.as_str(), out)
    }
}

impl<const N: usize> core::fmt::Display for Text<N> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self.as_str(), out)
    }
}

/// A uuid as a short text, written without the formatting machinery (which can panic).
pub(crate) fn uuid_text(uuid: DeviceUuid) -> Text<64> {
    let mut text = Text::EMPTY;
    let mut push = |byte: u8| {
        if let Some(slot) = text.bytes.get_mut(text.len) {
            *slot = byte;
            text.len = text.len.saturating_add(1);
        }
    };
    uuid.write_ascii(&mut push);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_a_c_string_if_it_has_room_for_the_nul_and_none_within() {
        assert_eq!(Text::<4>::new("abc").as_c_str(), Some(c"abc"));
        assert_eq!(Text::<4>::EMPTY.as_c_str(), Some(c""));
        assert_eq!(Text::<4>::new("abcd").as_c_str(), None);
        assert_eq!(Text::<4>::new("a\0b").as_c_str(), None);
    }

    #[test]
    fn a_text_is_shown_as_any_other() {
        let text = Text::<4>::new("a\"b");
        assert_eq!(std::format!("{text} {text:?}"), "a\"b \"a\\\"b\"");
    }
}
