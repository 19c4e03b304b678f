//! The words that name a slice's settings: in slice files, annotations and the host's policy.
//! Touches: its arguments.

use super::{Managed, PageCache, PresentAs, Pressure, Total};

impl Total {
    /// Reads `slice` or `device`.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Total> {
        match word {
            "slice" => Some(Total::Slice),
            "device" => Some(Total::Device),
            _ => None,
        }
    }
}

impl PresentAs {
    /// Reads `uma` or `discrete`.
    #[must_use]
    pub fn from_word(word: &str) -> Option<PresentAs> {
        match word {
            "uma" => Some(PresentAs::Uma),
            "discrete" => Some(PresentAs::Discrete),
            _ => None,
        }
    }
}

impl Managed {
    /// Reads `count` or `allow`.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Managed> {
        match word {
            "count" => Some(Managed::Count),
            "allow" => Some(Managed::Allow),
            _ => None,
        }
    }
}

impl Pressure {
    /// Reads `refuse` or `release`.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Pressure> {
        match word {
            "refuse" => Some(Pressure::Refuse),
            "release" => Some(Pressure::Release),
            _ => None,
        }
    }
}

impl PageCache {
    /// Reads `keep`, `drop` or `drop-behind`.
    #[must_use]
    pub fn from_word(word: &str) -> Option<PageCache> {
        match word {
            "keep" => Some(PageCache::Keep),
            "drop" => Some(PageCache::Drop),
            "drop-behind" => Some(PageCache::DropBehind),
            _ => None,
        }
    }
}
