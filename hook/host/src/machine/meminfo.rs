//! The two ways in which `/proc/meminfo` shows a slice of unified memory: the library, or a mounted
//! page.
//! Touches: nothing.

use serde::Deserialize;

/// The way in which `/proc/meminfo` shows a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShownBy {
    /// The preloaded library, to the programs that load it.
    Preload,
    /// A page that is mounted, to all programs.
    Mount,
}

impl ShownBy {
    /// Reads a word of an annotation.
    #[must_use]
    pub fn from_word(word: &str) -> Option<ShownBy> {
        match word {
            "preload" => Some(ShownBy::Preload),
            "mount" => Some(ShownBy::Mount),
            _ => None,
        }
    }
}
