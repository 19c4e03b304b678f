//! Quantities of Kubernetes: `8Gi`, `1500M`, `1e9`.
//! Touches: its arguments.
//! Law: a text that the API server would not accept is refused, and no amount is rounded down.

use gpuslice_config::words::units::Bytes;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The suffixes of powers of 1024, from the smallest.
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// The suffixes of powers of 1000, from the smallest.
const DECIMAL: [&str; 6] = ["k", "M", "G", "T", "P", "E"];

/// The most digits that are read. The API server keeps no more.
const DIGITS: usize = 30;

/// Reads an amount of bytes; a part of a byte counts as a whole one. `None` if the text is not a
/// quantity, is negative, or exceeds 64 bits.
#[must_use]
pub fn bytes(quantity: &Quantity) -> Option<Bytes> {
    let text = quantity.0.strip_prefix('+').unwrap_or(&quantity.0);
    let end = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at_checked(end)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = whole.len().saturating_add(fraction.len());
    if digits == 0 || digits > DIGITS || fraction.contains('.') {
        return None;
    }
    let mantissa: u128 = format!("{whole}{fraction}").parse().ok()?;
    let places = i32::try_from(fraction.len()).ok()?;
    let (factor, exponent) = scale(suffix)?;
    let exponent = exponent.checked_sub(places)?;
    let scaled = mantissa.checked_mul(factor)?;
    let power = 10_u128.checked_pow(exponent.unsigned_abs())?;
    let amount = match exponent >= 0 {
        true => scaled.checked_mul(power)?,
        false => scaled.div_ceil(power),
    };
    u64::try_from(amount).ok().map(Bytes::new)
}

/// The value of a suffix: a factor, and a power of ten.
fn scale(suffix: &str) -> Option<(u128, i32)> {
    let power = |place: usize| u32::try_from(place).ok()?.checked_add(1);
    if let Some(place) = BINARY.iter().position(|known| *known == suffix) {
        return Some((1024_u128.checked_pow(power(place)?)?, 0));
    }
    if let Some(place) = DECIMAL.iter().position(|known| *known == suffix) {
        return Some((1, i32::try_from(power(place)?).ok()?.checked_mul(3)?));
    }
    match suffix {
        "" => Some((1, 0)),
        "m" => Some((1, -3)),
        "u" => Some((1, -6)),
        "n" => Some((1, -9)),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let exponent: i32 = exponent.parse().ok()?;
            (exponent.unsigned_abs() <= 30).then_some((1, exponent))
        }
    }
}

/// Writes an amount in the form in which the API server returns it: the largest suffix that leaves
/// a whole number.
#[must_use]
pub fn text(amount: Bytes) -> Quantity {
    let (mut number, mut suffix) = (amount.get(), "");
    for larger in BINARY {
        if number == 0 || number % 1024 != 0 {
            break;
        }
        (number, suffix) = (number / 1024, larger);
    }
    Quantity(format!("{number}{suffix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<u64> {
        bytes(&Quantity(text.to_owned())).map(Bytes::get)
    }

    #[test]
    fn every_form_of_a_quantity_is_read() {
        for (text, expected) in [
            ("8Gi", 8 << 30),
            ("0", 0),
            ("1000Mi", 1000 << 20),
            ("1.5Gi", 3 << 29),
            ("+1Ki", 1024),
            ("1500M", 1_500_000_000),
            ("1e9", 1_000_000_000),
            ("1E3", 1000),
            ("12e-1", 2),
            ("1E", 1_000_000_000_000_000_000),
            ("1500m", 2),
            ("8589934592", 8 << 30),
            (".5Ki", 512),
        ] {
            assert_eq!(read(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_or_too_large_is_refused() {
        for text in [
            "",
            "Gi",
            "-1Gi",
            "1 Gi",
            "1gi",
            "1.2.3",
            "1GiB",
            "16Ei",
            "1e31",
            "1e",
            "0x10",
            "1e+9Gi",
            "99999999999999999999999999999999999",
            "١",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_is_read_again(amount: u64) {
            let written = text(Bytes::new(amount));
            proptest::prop_assert_eq!(bytes(&written), Some(Bytes::new(amount)));
        }

        #[test]
        fn any_text_is_read_or_refused_without_a_panic(text in ".{0,40}") {
            let _ = read(&text);
        }
    }

    #[test]
    fn an_amount_is_written_with_its_largest_suffix() {
        for (amount, expected) in [
            (8 << 30, "8Gi"),
            (24_259 << 20, "24259Mi"),
            (1, "1"),
            (0, "0"),
            (1 << 60, "1Ei"),
        ] {
            assert_eq!(text(Bytes::new(amount)).0, expected);
        }
    }
}
