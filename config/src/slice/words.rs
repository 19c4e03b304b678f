//! The words that name a slice's settings: in slice files, annotations and the host's policy.
//! Touches: its arguments.

use super::{DriverLimit, Managed, PageCache, PresentAs, Pressure, Total};

/// Defines `from_word` of a setting, and the list of its words in slice files: one
/// `key=word` a line.
macro_rules! words {
    ($setting:ident, $key:literal, $list:ident: $($word:literal => $value:ident,)+) => {
        pub(super) const $list: &str = concat!($($key, "=", $word, "\n",)+);

        impl $setting {
            #[doc = concat!("Reads a word:", $(" `", $word, "`",)+ ".")]
            #[must_use]
            pub fn from_word(word: &str) -> Option<$setting> {
                match word {
                    $($word => Some($setting::$value),)+
                    _ => None,
                }
            }
        }
    };
}

words! { Total, "total", TOTAL: "slice" => Slice, "device" => Device, }
words! { PresentAs, "present_as", PRESENT_AS: "uma" => Uma, "discrete" => Discrete, }
words! { Managed, "managed", MANAGED: "count" => Count, "allow" => Allow, }
words! { Pressure, "pressure", PRESSURE: "refuse" => Refuse, "release" => Release, }
words! { DriverLimit, "devices.driver_limit", DRIVER_LIMIT: "dmem" => Dmem, "misc" => Misc, }
words! { PageCache, "page_cache", PAGE_CACHE:
    "keep" => Keep, "drop" => Drop, "drop-behind" => DropBehind,
}
