//! The options that say what happens when a unified-memory host runs short, and from where on.
//! Touches: its arguments.

use crate::slice_options::amount;
use clap::ValueEnum;
use gpuslice_config::policy::Thresholds;
use gpuslice_config::slice::Pressure;
use gpuslice_config::units::Bytes;

/// `--pressure`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PressureChoice {
    /// Refuses.
    Refuse,
    /// Asks for what is only kept.
    Release,
}

impl From<PressureChoice> for Pressure {
    fn from(choice: PressureChoice) -> Pressure {
        match choice {
            PressureChoice::Refuse => Pressure::Refuse,
            PressureChoice::Release => Pressure::Release,
        }
    }
}

/// `--threshold`.
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
    /// What a release must free.
    Freed(Bytes),
}

impl Threshold {
    /// Puts it where the slice file has it.
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

pub(crate) fn threshold(text: &str) -> Result<Threshold, String> {
    let (what, much) = text
        .split_once('=')
        .ok_or("no amount given (write available=16GiB or full=5)")?;
    let percent = || match much.trim_end_matches('%').parse() {
        Ok(percent @ 0..=100) => Ok(percent),
        _ => Err(format!("\"{much}\" is not a percentage (0 to 100)")),
    };
    Ok(match what {
        "full" => Threshold::Full(percent()?),
        "available" => Threshold::Available(amount(much)?),
        "request" => Threshold::Request(amount(much)?),
        "used" => Threshold::Used(percent()?),
        "freed" => Threshold::Freed(amount(much)?),
        _ => {
            return Err(format!(
                "there is no threshold \"{what}\" (full, available, request, used, freed)"
            ));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_one_of_five_and_has_an_amount_of_its_kind() {
        assert_eq!(
            threshold("available=16GiB"),
            Ok(Threshold::Available(Bytes::gib(16)))
        );
        assert_eq!(threshold("full=5%"), Ok(Threshold::Full(5)));
        assert_eq!(threshold("used=80"), Ok(Threshold::Used(80)));
        for text in [
            "full",
            "full=",
            "full=101",
            "full=5GiB",
            "available=x",
            "speed=5",
        ] {
            assert!(threshold(text).is_err(), "{text} was taken");
        }
    }
}
