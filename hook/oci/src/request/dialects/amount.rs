//! Reads the amounts of memory that other systems write, each in that system's own notation.
//! Touches: its arguments.

use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::{Bytes, ParseBytesError};

/// The notation of an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `2000`: MiB.
    Mebibytes,
    /// `8Gi`, `8G`: a quantity of Kubernetes, where `G` is 1000 times `M`.
    Quantity,
    /// `0.5`: of the GPU's memory.
    Portion,
    /// `3000m`, `1g`: binary units.
    Size,
    /// `0=1G,1=512MB`: sizes of devices. The smallest counts, because the numbers are those of
    /// the container's devices, whose order its programs can change.
    List,
}

/// A part of a GPU's memory, in billionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portion(u64);

/// A requested amount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Amount {
    /// The same on each GPU.
    Size(Bytes),
    /// A part of each GPU.
    Portion(Portion),
    /// Of these GPUs.
    Shares(Vec<(DeviceUuid, Bytes)>),
}

const BILLION: u64 = 1_000_000_000;

impl Portion {
    /// All of a GPU.
    pub const WHOLE: Portion = Portion(BILLION);

    /// Reads a number between 0 and 1, both excluded.
    fn read(text: &str) -> Option<Portion> {
        let number: f64 = text.parse().ok()?;
        let billionths = (number * 1e9).round();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the number is whole, positive and below a billion"
        )]
        (1.0..1e9)
            .contains(&billionths)
            .then_some(Portion(billionths as u64))
    }

    /// That part of a GPU with so much memory, in whole MiB, so that parts never exceed the GPU.
    #[must_use]
    pub fn of(self, total: Bytes) -> Bytes {
        let billion = u128::from(BILLION);
        let part = u128::from(total.get()).saturating_mul(u128::from(self.0));
        let part = part.checked_div(billion).unwrap_or_default();
        let part = Bytes::new(u64::try_from(part).unwrap_or(u64::MAX));
        Bytes::mib(part.whole_mib()).at_least(Bytes::mib(1))
    }
}

impl Amount {
    /// The amount of one GPU; `None` if there is none for that GPU.
    #[must_use]
    pub fn on(&self, uuid: DeviceUuid, total: Bytes) -> Option<Bytes> {
        match self {
            Amount::Size(size) => Some(*size),
            Amount::Portion(portion) => Some(portion.of(total)),
            Amount::Shares(shares) => {
                let share = shares.iter().find(|(own, _)| *own == uuid);
                share.map(|(_, memory)| *memory)
            }
        }
    }
}

impl Form {
    /// Reads an amount, which may be zero. Returns `None` if the text is not in this notation.
    #[must_use]
    pub(super) fn read(self, text: &str) -> Option<Amount> {
        let text = text.trim();
        let size = match self {
            Form::Mebibytes => Bytes::mib(text.parse().ok()?),
            Form::Quantity => quantity(text)?,
            Form::Portion => return Portion::read(text).map(Amount::Portion),
            Form::Size => size(text)?,
            Form::List => {
                let sizes: Option<Vec<Bytes>> = text
                    .split(',')
                    .map(|device| size(device.split_once('=')?.1))
                    .collect();
                sizes?.into_iter().min()?
            }
        };
        Some(Amount::Size(size))
    }

    /// The notation, for errors.
    #[must_use]
    pub const fn expected(self) -> &'static str {
        match self {
            Form::Mebibytes => "a whole number of MiB",
            Form::Quantity => "a quantity such as 8Gi",
            Form::Portion => "a number between 0 and 1",
            Form::Size => "a size such as 3000m",
            Form::List => "a list of sizes such as 0=4G",
        }
    }
}

fn size(text: &str) -> Option<Bytes> {
    match text.parse() {
        Err(ParseBytesError::Zero) => Some(Bytes::ZERO),
        size => size.ok(),
    }
}

/// Reads a quantity of Kubernetes: with an `i` the units are binary, without they are decimal.
fn quantity(text: &str) -> Option<Bytes> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = text.get(digits.len()..)?;
    let unit: u64 = match unit {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => BILLION,
        "T" => 1_000 * BILLION,
        // These are read as sizes are.
        "Ki" | "Mi" | "Gi" | "Ti" => return size(text),
        _ => return None,
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    let whole: u64 = whole.parse().ok()?;
    // Nine digits resolve any unit to the kilobyte.
    let nine: String = part.chars().chain("000000000".chars()).take(9).collect();
    let part = part
        .bytes()
        .all(|digit| digit.is_ascii_digit())
        .then_some(nine)?;
    let part = u128::from(part.parse::<u64>().ok()?).saturating_mul(u128::from(unit));
    let part = u64::try_from(part.checked_div(u128::from(BILLION))?).ok()?;
    Some(Bytes::new(whole.checked_mul(unit)?.checked_add(part)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(form: Form, text: &str) -> Option<Bytes> {
        match form.read(text)? {
            Amount::Size(size) => Some(size),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_notation_is_read_exactly() {
        for (form, text, bytes) in [
            (Form::Mebibytes, "2000", 2000 << 20),
            (Form::Mebibytes, "0", 0),
            (Form::Quantity, "8Gi", 8 << 30),
            (Form::Quantity, "2048Mi", 2 << 30),
            (Form::Quantity, "1024M", 1_024_000_000),
            (Form::Quantity, "1.5G", 1_500_000_000),
            (Form::Quantity, "1.5Gi", 3 << 29),
            (Form::Quantity, "1073741824", 1 << 30),
            (Form::Size, "3000m", 3000 << 20),
            (Form::Size, "1g", 1 << 30),
            (Form::Size, "1048576k", 1 << 30),
            (Form::Size, "0m", 0),
            (Form::List, "0=1G,1=512MB", 512 << 20),
            (Form::List, "0=4G", 4 << 30),
        ] {
            assert_eq!(read(form, text), Some(Bytes::new(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_in_another_notation_is_refused() {
        for (form, text) in [
            (Form::Mebibytes, "2000Mi"),
            (Form::Mebibytes, "-1"),
            (Form::Mebibytes, ""),
            (Form::Quantity, "8GiB"),
            (Form::Quantity, "8g"),
            (Form::Quantity, "-8Gi"),
            (Form::Quantity, "1.x5G"),
            (Form::Quantity, "500m"),
            (Form::Portion, "0"),
            (Form::Portion, "1"),
            (Form::Portion, "1.0"),
            (Form::Portion, "NaN"),
            (Form::Portion, "inf"),
            (Form::Portion, "-0.5"),
            (Form::Portion, "50%"),
            (Form::Size, "lots"),
            (Form::List, "1G"),
            (Form::List, "0=1G,"),
        ] {
            assert_eq!(form.read(text), None, "{text}");
        }
    }

    #[test]
    fn a_portion_is_of_the_gpus_total_in_whole_mebibytes() {
        let of = |text: &str, mib: u64| Portion::read(text).unwrap().of(Bytes::mib(mib));
        assert_eq!(of("0.5", 24_576), Bytes::gib(12));
        assert_eq!(of("5e-1", 24_576), Bytes::gib(12));
        assert_eq!(of("0.33", 24_576), Bytes::mib(8110));
        assert_eq!(of("0.000001", 24_576), Bytes::mib(1));
        assert_eq!(Portion::WHOLE.of(Bytes::mib(24_576)), Bytes::gib(24));
    }

    proptest::proptest! {
        #[test]
        fn portions_that_add_up_to_one_never_exceed_the_gpu(
            (first, rest) in (1_u64..999).prop_map(|first| (first, 1000_u64.saturating_sub(first))),
            total in 1_u64..1 << 42,
        ) {
            let total = Bytes::mib(64).plus(Bytes::new(total));
            let part = |thousandths: u64| {
                let text = format!("0.{thousandths:03}");
                Portion::read(&text).unwrap().of(total)
            };
            let both = part(first).plus(part(rest));
            // The smallest slice is 1 MiB, whatever the portion.
            proptest::prop_assert!(both <= total.plus(Bytes::mib(1)));
        }
    }
}
