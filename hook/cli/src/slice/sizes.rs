//! Defines the sizes that appear in names: `24GiB` is the device `24gib` and the runtime
//! `gpuslice-24gib`.
//! Touches: its arguments.

use gpuslice_config::words::units::{Bytes, GIB, MIB, ParseBytesError};
use std::str::FromStr;

/// A size of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(Bytes);

impl Size {
    /// Returns a size of `count` whole GiB.
    #[must_use]
    pub const fn gib(count: u64) -> Size {
        Size(Bytes::gib(count))
    }

    /// Returns the size in the form of the hook's argument.
    #[must_use]
    pub fn argument(self) -> String {
        let bytes = self.0.get();
        let whole = |unit: u64| {
            bytes
                .checked_div(unit)
                .filter(|_| bytes.is_multiple_of(unit))
        };
        match (whole(GIB), whole(MIB)) {
            (Some(count), _) => format!("{count}GiB"),
            (None, Some(count)) => format!("{count}MiB"),
            (None, None) => bytes.to_string(),
        }
    }

    /// Returns the size's name.
    #[must_use]
    pub fn name(self) -> String {
        self.argument().to_lowercase()
    }
}

impl FromStr for Size {
    type Err = ParseBytesError;

    fn from_str(text: &str) -> Result<Size, ParseBytesError> {
        Bytes::configured(text).map(Size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_one_name_however_it_is_written() {
        for (text, name) in [
            ("24GiB", "24gib"),
            ("24G", "24gib"),
            ("24576MiB", "24gib"),
            ("1.5GiB", "1536mib"),
            ("1048577", "1048577"),
        ] {
            let size: Size = text.parse().unwrap();
            assert_eq!(size.name(), name);
            assert_eq!(size.argument().parse::<Size>().unwrap(), size);
        }
    }
}
