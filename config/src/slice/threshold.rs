//! Parses one memory-pressure threshold in the user's notation: `available=16GiB`, `full=5`.
//! Touches: its arguments.

use core::str::FromStr;
use std::format;
use std::string::{String, ToString};

use crate::slice::thresholds::Thresholds;
use crate::words::units::Bytes;

/// One threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// `full avg10` in percent.
    Full(u8),
    /// MemAvailable.
    Available(Bytes),
    /// The largest request that is still granted.
    Request(Bytes),
    /// Percent of the slice.
    Used(u8),
    /// The least memory that a release must free.
    Freed(Bytes),
}

impl Threshold {
    /// Stores it in its field of the slice file.
    pub fn set(self, thresholds: &mut Thresholds) {
        match self {
            Threshold::Full(percent) => thresholds.full = Some(percent),
            Threshold::Available(amount) => thresholds.available = Some(amount),
            Threshold::Request(amount) => thresholds.request = Some(amount),
            Threshold::Used(percent) => thresholds.used = Some(percent),
            Threshold::Freed(amount) => thresholds.freed = Some(amount),
        }
    }
}

impl FromStr for Threshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Threshold, String> {
        let (what, much) = text
            .split_once('=')
            .ok_or("no amount given (write available=16GiB or full=5)")?;
        let kind: fn(u8) -> Threshold = match what {
            "full" => Threshold::Full,
            "used" => Threshold::Used,
            _ => {
                let kind: fn(Bytes) -> Threshold = match what {
                    "available" => Threshold::Available,
                    "request" => Threshold::Request,
                    "freed" => Threshold::Freed,
                    _ => {
                        return Err(format!(
                            "there is no threshold \"{what}\" (full, available, request, used, freed)"
                        ));
                    }
                };
                return amount(much).map(kind);
            }
        };
        match much.trim_end_matches('%').parse() {
            Ok(percent @ 0..=100) => Ok(kind(percent)),
            _ => Err(format!("\"{much}\" is not a percentage (0 to 100)")),
        }
    }
}

/// Parses a size, and accepts 0.
fn amount(text: &str) -> Result<Bytes, String> {
    match text {
        "0" => Ok(Bytes::ZERO),
        _ => Bytes::configured(text).map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_one_of_five_and_has_an_amount_of_its_kind() {
        for (text, threshold) in [
            ("available=16GiB", Threshold::Available(Bytes::gib(16))),
            ("request=0", Threshold::Request(Bytes::ZERO)),
            ("freed=1GiB", Threshold::Freed(Bytes::gib(1))),
            ("full=5%", Threshold::Full(5)),
            ("used=80", Threshold::Used(80)),
        ] {
            assert_eq!(text.parse(), Ok(threshold));
        }
        for text in [
            "full",
            "full=",
            "full=101",
            "full=5GiB",
            "available=x",
            "available=5",
            "speed=5",
        ] {
            assert!(text.parse::<Threshold>().is_err(), "{text} was taken");
        }
    }

    #[test]
    fn a_threshold_is_stored_in_its_own_field() {
        let mut stored = Thresholds::default();
        for text in [
            "full=5",
            "available=16GiB",
            "request=0",
            "used=80",
            "freed=1GiB",
        ] {
            text.parse::<Threshold>().unwrap().set(&mut stored);
        }
        let expected = Thresholds {
            file: None,
            full: Some(5),
            available: Some(Bytes::gib(16)),
            request: Some(Bytes::ZERO),
            used: Some(80),
            freed: Some(Bytes::gib(1)),
        };
        assert_eq!(stored, expected);
    }
}
