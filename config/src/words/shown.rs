//! Amounts of memory as people read them.
//! Touches: its arguments.

use core::fmt;

use crate::words::units::{Bytes, EIB, GIB, KIB, MIB, PIB, TIB};

impl Bytes {
    /// The amount for a sentence that compares it with another: with more digits where both would
    /// read alike.
    #[must_use]
    pub const fn beside(self, other: Bytes) -> Beside {
        Beside(self, other)
    }

    /// The amount in the largest unit that fits, rounded to hundredths.
    #[must_use]
    pub fn shown(self) -> Shown {
        let (unit, name) = match self.get() {
            EIB.. => (EIB, "EiB"),
            PIB.. => (PIB, "PiB"),
            TIB.. => (TIB, "TiB"),
            GIB.. => (GIB, "GiB"),
            MIB.. => (MIB, "MiB"),
            KIB.. => (KIB, "KiB"),
            bytes => return Shown::whole(bytes, "B"),
        };
        // To the nearest hundredth: users of a DGX Spark know its memory as 121.69 GiB.
        let shift = unit.trailing_zeros();
        let part = u128::from(self.get() & unit.wrapping_sub(1));
        let part = part
            .saturating_mul(100)
            .saturating_add(u128::from(unit >> 1))
            >> shift;
        let (carry, hundredths) = match u8::try_from(part) {
            Ok(part @ 0..100) => (0, part),
            _ => (1, 0),
        };
        Shown {
            whole: (self.get() >> shift).saturating_add(carry),
            hundredths: Some(hundredths),
            unit: name,
        }
    }
}

/// An amount as people read it: `8.00 GiB`, `24260 MiB`, `17 B`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The whole units.
    pub whole: u64,
    /// The hundredths of a unit; None: the amount is shown in whole units.
    pub hundredths: Option<u8>,
    /// The unit's name.
    pub unit: &'static str,
}

impl Shown {
    const fn whole(whole: u64, unit: &'static str) -> Shown {
        Shown {
            whole,
            hundredths: None,
            unit,
        }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.whole)?;
        if let Some(hundredths) = self.hundredths {
            write!(out, ".{hundredths:02}")?;
        }
        write!(out, " {}", self.unit)
    }
}

/// For messages: `8.00 GiB`, `512.00 MiB`, `17 B`. Never parsed back by us.
impl fmt::Display for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shown().fmt(out)
    }
}

/// An amount that is compared with another: `24260 MiB` beside `24259 MiB`, `12.00 GiB` beside
/// `8.00 GiB`.
#[derive(Clone, Copy, Debug)]
pub struct Beside(Bytes, Bytes);

impl Beside {
    /// The amount, with more digits where both would read alike.
    #[must_use]
    pub fn shown(self) -> Shown {
        let Beside(own, other) = self;
        let shown = own.shown();
        match (own.whole_mib(), other.whole_mib()) {
            _ if own == other || shown != other.shown() => shown,
            (mib, others) if mib != others => Shown::whole(mib, "MiB"),
            _ => Shown::whole(own.get(), "B"),
        }
    }
}

impl fmt::Display for Beside {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shown().fmt(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn sizes_are_shown_in_the_largest_whole_unit() {
        assert_eq!(Bytes::gib(8).to_string(), "8.00 GiB");
        assert_eq!(Bytes::new(130_663_165_952).to_string(), "121.69 GiB");
        assert_eq!(Bytes::new(17).to_string(), "17 B");
        assert_eq!(Bytes::new(KIB - 1).to_string(), "1023 B");
        assert_eq!(Bytes::MAX.to_string(), "16.00 EiB");
        assert_eq!(Bytes::new(3 * PIB).to_string(), "3.00 PiB");
    }

    #[test]
    fn amounts_that_are_compared_never_read_alike() {
        let shown = |own: Bytes, other: Bytes| own.beside(other).to_string();
        let card = Bytes::new(25_438_126_080);
        assert_eq!(shown(Bytes::gib(80), card), "80.00 GiB");
        assert_eq!(shown(Bytes::mib(24_260), card), "24260 MiB");
        assert_eq!(shown(card, Bytes::mib(24_260)), "24259 MiB");
        assert_eq!(shown(card.plus(Bytes::new(1)), card), "25438126081 B");
        assert_eq!(shown(card, card), "23.69 GiB");
    }
}
