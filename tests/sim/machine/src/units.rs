//! Sizes as people write them: `24GiB`, `24576MiB`, `+60GiB`, plain bytes.
//! Touches: nothing.

use serde::{Deserialize, Deserializer, de::Error as _};
use std::fmt;

/// A size that was not understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitError(String);

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a size (try 24GiB)", self.0)
    }
}

impl std::error::Error for UnitError {}

/// Reads a size in bytes. Units are binary; `kB` is the kernel's 1024.
pub fn parse_bytes(text: &str) -> Result<u64, UnitError> {
    let wrong = || UnitError(text.to_owned());
    let trimmed = text.trim();
    let digits = trimmed.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let unit = trimmed.get(digits.len()..).ok_or_else(wrong)?.trim();
    let scale: u64 = match unit {
        "" | "B" => 1,
        "kB" | "KiB" | "K" | "Ki" => 1 << 10,
        "MiB" | "M" | "Mi" => 1 << 20,
        "GiB" | "G" | "Gi" => 1 << 30,
        "TiB" | "T" | "Ti" => 1 << 40,
        _ => return Err(wrong()),
    };
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(scale).ok_or_else(wrong);
    }
    let (whole, part) = digits.split_once('.').ok_or_else(wrong)?;
    if part.is_empty() || part.len() > 6 {
        return Err(wrong());
    }
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let numerator: u64 = part.parse().map_err(|_| wrong())?;
    let denominator = 10_u64.pow(u32::try_from(part.len()).map_err(|_| wrong())?);
    let fraction = u128::from(numerator) * u128::from(scale) / u128::from(denominator);
    whole
        .checked_mul(scale)
        .and_then(|bytes| bytes.checked_add(u64::try_from(fraction).ok()?))
        .ok_or_else(wrong)
}

/// Reads `+60GiB`, `-1GiB` or `=12GiB` as a change of `now`; a bare size counts as `+`.
pub fn parse_change(text: &str, now: u64) -> Result<u64, UnitError> {
    match text.as_bytes().first() {
        Some(b'-') => Ok(now.saturating_sub(parse_bytes(&text[1..])?)),
        Some(b'=') => parse_bytes(&text[1..]),
        Some(b'+') => Ok(now.saturating_add(parse_bytes(&text[1..])?)),
        _ => Ok(now.saturating_add(parse_bytes(text)?)),
    }
}

/// For `#[serde(deserialize_with)]`: a size as text or as a number of bytes.
pub(crate) fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Size {
        Number(u64),
        Text(String),
    }
    match Size::deserialize(from)? {
        Size::Number(number) => Ok(number),
        Size::Text(text) => parse_bytes(&text).map_err(D::Error::custom),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary_and_nothing_is_guessed() {
        assert_eq!(parse_bytes("24GiB"), Ok(24 << 30));
        assert_eq!(parse_bytes("127600748 kB"), Ok(127_600_748 << 10));
        assert_eq!(parse_bytes("103.25GiB"), Ok((103 << 30) + (1 << 28)));
        assert_eq!(parse_bytes("12"), Ok(12));
        for wrong in ["", "12Q", "-1", "1.GiB", "GiB", "1e9", "99999999999TiB"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_change_never_goes_below_zero() {
        assert_eq!(parse_change("-2GiB", 1 << 30), Ok(0));
        assert_eq!(parse_change("+1GiB", 1 << 30), Ok(2 << 30));
        assert_eq!(parse_change("=5", 1 << 30), Ok(5));
    }
}
