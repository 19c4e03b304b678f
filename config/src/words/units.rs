//! Amounts of memory, and their notation.
//! Touches: its arguments.

use core::str::FromStr;

/// One kibibyte.
pub const KIB: u64 = 1 << 10;
/// One mebibyte.
pub const MIB: u64 = 1 << 20;
/// One gibibyte.
pub const GIB: u64 = 1 << 30;
/// One tebibyte.
pub const TIB: u64 = 1 << 40;
/// One pebibyte.
pub const PIB: u64 = 1 << 50;
/// One exbibyte.
pub const EIB: u64 = 1 << 60;

/// An amount of memory in bytes.
///
/// Arithmetic saturates: an amount is never negative and never wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

impl Bytes {
    /// No memory.
    pub const ZERO: Bytes = Bytes(0);
    /// More than any machine has.
    pub const MAX: Bytes = Bytes(u64::MAX);

    /// That many bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Bytes {
        Bytes(bytes)
    }

    /// That many mebibytes.
    #[must_use]
    pub const fn mib(count: u64) -> Bytes {
        Bytes(count.saturating_mul(MIB))
    }

    /// That many gibibytes.
    #[must_use]
    pub const fn gib(count: u64) -> Bytes {
        Bytes(count.saturating_mul(GIB))
    }

    /// That many kibibytes, the unit of `/proc/meminfo` (which writes `kB`).
    #[must_use]
    pub const fn kib(count: u64) -> Bytes {
        Bytes(count.saturating_mul(KIB))
    }

    /// The number of bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number of whole mebibytes, rounded down.
    #[must_use]
    pub const fn whole_mib(self) -> u64 {
        self.0 / MIB
    }

    /// The sum, or [`Bytes::MAX`].
    #[must_use]
    pub const fn plus(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }

    /// The difference, or [`Bytes::ZERO`].
    #[must_use]
    pub const fn minus(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }

    /// The smaller of the two.
    #[must_use]
    pub const fn at_most(self, other: Bytes) -> Bytes {
        if self.0 < other.0 { self } else { other }
    }

    /// The larger of the two.
    #[must_use]
    pub const fn at_least(self, other: Bytes) -> Bytes {
        if self.0 > other.0 { self } else { other }
    }
}

/// Why a text is not an amount of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseBytesError {
    /// The text is empty.
    #[error("no size given (try 12GiB)")]
    Empty,
    /// The text has a minus sign.
    #[error("a size cannot be negative (try 12GiB)")]
    Negative,
    /// There is no number in front of the unit.
    #[error("not a size (try 12GiB)")]
    Number,
    /// The size is a percentage.
    #[error(
        "percent is not supported: give a size such as 12GiB (gpuslice devices lists the memory of each GPU)"
    )]
    Percent,
    /// The unit is unknown.
    #[error("not a size: unknown unit (use KiB, MiB, GiB or TiB, for example 12GiB)")]
    Unit,
    /// The size is zero.
    #[error("a size must not be zero (try 12GiB)")]
    Zero,
    /// The size is less than 1 MiB, probably because its unit is missing.
    #[error(
        "less than 1 MiB, too little for any program (a number without a unit counts bytes: try 12GiB)"
    )]
    Small,
    /// The size does not fit 64 bits.
    #[error("too large to be a size of memory (try 12GiB)")]
    Overflow,
}

/// `24GiB`, `24Gi`, `24G`, `1.5GiB`, `24576MiB`, `25769803776`.
///
/// A unit without `i` is read as the binary unit. GPU memory is sold, reported and configured in
/// binary units under either name. A text that is not a size is refused, not guessed at. HAMi-core,
/// for comparison, reads `4Gi` as four bytes and `-1` as no limit.
impl Bytes {
    /// Parses a configured size. `8` is refused, because it lacks a unit and would limit the slice
    /// to eight bytes.
    ///
    /// # Errors
    /// As `parse`, and [`ParseBytesError::Small`] for less than 1 MiB.
    pub fn configured(text: &str) -> Result<Bytes, ParseBytesError> {
        let bytes: Bytes = text.parse()?;
        match bytes < Bytes::mib(1) {
            true => Err(ParseBytesError::Small),
            false => Ok(bytes),
        }
    }
}

impl FromStr for Bytes {
    type Err = ParseBytesError;

    fn from_str(text: &str) -> Result<Bytes, ParseBytesError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(ParseBytesError::Empty);
        }
        if text.starts_with('-') {
            return Err(ParseBytesError::Negative);
        }
        let digits_end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at_checked(digits_end).unwrap_or((text, ""));
        if unit.trim_start() == "%" && !number.is_empty() {
            return Err(ParseBytesError::Percent);
        }
        let unit = unit_bytes(unit.trim_start()).ok_or(if number.is_empty() {
            ParseBytesError::Number
        } else {
            ParseBytesError::Unit
        })?;
        let bytes = scale(number, unit)?;
        if bytes == 0 {
            return Err(ParseBytesError::Zero);
        }
        Ok(Bytes(bytes))
    }
}

fn unit_bytes(unit: &str) -> Option<u64> {
    const UNITS: [(u64, [&str; 3]); 4] = [
        (KIB, ["k", "ki", "kib"]),
        (MIB, ["m", "mi", "mib"]),
        (GIB, ["g", "gi", "gib"]),
        (TIB, ["t", "ti", "tib"]),
    ];
    if unit.is_empty() || unit.eq_ignore_ascii_case("b") {
        return Some(1);
    }
    // "24GB" is the usual spelling for a 24 GiB card.
    let unit = match unit.len() {
        2 => unit.strip_suffix(['B', 'b']).unwrap_or(unit),
        _ => unit,
    };
    UNITS
        .iter()
        .find(|(_, names)| names.iter().any(|name| unit.eq_ignore_ascii_case(name)))
        .map(|(bytes, _)| *bytes)
}

/// `number` (decimal, at most one point) times `unit`, rounded down.
fn scale(number: &str, unit: u64) -> Result<u64, ParseBytesError> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || (number.contains('.') && (fraction.is_empty() || unit == 1)) {
        return Err(ParseBytesError::Number);
    }
    let digits = |text: &str| -> Result<u64, ParseBytesError> {
        match text.bytes().all(|b| b.is_ascii_digit()) {
            true => text.parse().map_err(|_| ParseBytesError::Overflow),
            false => Err(ParseBytesError::Number),
        }
    };
    let whole = digits(whole)?
        .checked_mul(unit)
        .ok_or(ParseBytesError::Overflow)?;
    if fraction.is_empty() {
        return Ok(whole);
    }
    // Nine digits resolve a TiB to the kibibyte, which is more than any real setting needs.
    let kept = fraction.get(..9).unwrap_or(fraction);
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return Err(ParseBytesError::Number);
    }
    let divisor = kept
        .bytes()
        .fold(1u128, |power, _| power.saturating_mul(10));
    let part = u128::from(digits(kept)?)
        .saturating_mul(u128::from(unit))
        .checked_div(divisor)
        .unwrap_or(0);
    whole
        .checked_add(u64::try_from(part).unwrap_or(u64::MAX))
        .ok_or(ParseBytesError::Overflow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_people_write_a_size_is_understood() {
        for (text, bytes) in [
            ("24GiB", 24 * GIB),
            ("24Gi", 24 * GIB),
            ("24G", 24 * GIB),
            ("24GB", 24 * GIB),
            ("24 gib", 24 * GIB),
            ("24576MiB", 24 * GIB),
            ("25769803776", 24 * GIB),
            ("25769803776B", 24 * GIB),
            ("1.5GiB", 3 * GIB / 2),
            ("4Gi", 4 * GIB),
            ("2T", 2 * TIB),
            ("512k", 512 * KIB),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_size_is_refused_and_never_guessed() {
        for (text, why) in [
            ("", ParseBytesError::Empty),
            ("  ", ParseBytesError::Empty),
            ("-1", ParseBytesError::Negative),
            ("12Q", ParseBytesError::Unit),
            ("12GiBs", ParseBytesError::Unit),
            ("12 G i B", ParseBytesError::Unit),
            ("GiB", ParseBytesError::Number),
            ("1.2.3G", ParseBytesError::Number),
            (".5G", ParseBytesError::Number),
            ("5.G", ParseBytesError::Number),
            ("1.5", ParseBytesError::Number),
            ("0", ParseBytesError::Zero),
            ("0GiB", ParseBytesError::Zero),
            ("99999999999999999999", ParseBytesError::Overflow),
            ("99999999999T", ParseBytesError::Overflow),
            ("50%", ParseBytesError::Percent),
            ("33.3 %", ParseBytesError::Percent),
            ("%", ParseBytesError::Number),
            ("1e9", ParseBytesError::Unit),
            ("0x10", ParseBytesError::Unit),
            ("１２GiB", ParseBytesError::Unit),
        ] {
            let read = text.parse::<Bytes>();
            // A text without a number fails on the number; both are refusals.
            assert!(read.is_err(), "{text} was read as {read:?}");
            if !text.starts_with('１') {
                assert_eq!(read, Err(why), "{text}");
            }
        }
    }

    #[test]
    fn a_configured_size_has_a_mebibyte_at_least() {
        assert_eq!(Bytes::configured("1MiB"), Ok(Bytes::mib(1)));
        assert_eq!(Bytes::configured("1048575"), Err(ParseBytesError::Small));
        assert_eq!(Bytes::configured("8"), Err(ParseBytesError::Small));
        assert_eq!(Bytes::configured("8Q"), Err(ParseBytesError::Unit));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused_without_a_panic(text in ".{0,40}") {
            let _ = text.parse::<Bytes>();
        }

        #[test]
        fn whole_mebibytes_come_back(count in 1u64..=(u64::MAX / MIB)) {
            proptest::prop_assert_eq!(std::format!("{count}MiB").parse(), Ok(Bytes::mib(count)));
        }
    }
}
