//! The thresholds of memory pressure on the host of a unified-memory slice, and their defaults.
//! Touches: its arguments.

use crate::words::text::Text;
use crate::words::units::Bytes;

/// The thresholds of memory pressure on the host of a unified-memory slice; None takes the
/// policy's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thresholds {
    /// The file with the machine's memory pressure; None means `/proc/pressure/memory`.
    pub file: Option<Text<256>>,
    /// `full avg10` in percent.
    pub full: Option<u8>,
    /// The MemAvailable below which `full` counts: streaming page cache alone raises `full`.
    pub available: Option<Bytes>,
    /// Requests up to this size are exempt from pressure; the reserve still applies.
    pub request: Option<Bytes>,
    /// The use of a slice, in percent, from which its allocator must release its cache.
    pub used: Option<u8>,
    /// The least memory that a release must free to be repeated soon.
    pub freed: Option<Bytes>,
}

impl Thresholds {
    /// `full avg10` in hundredths of a percent.
    #[must_use]
    pub const fn full(&self) -> u32 {
        match self.full {
            Some(percent) => (percent as u32).saturating_mul(100),
            None => 500,
        }
    }

    /// The memory that the host keeps under pressure: twice its reserve. At the reserve itself,
    /// pressure would have no effect, because every request is refused there anyway.
    #[must_use]
    pub const fn available(&self, reserve: Bytes) -> Bytes {
        match self.available {
            Some(available) => available.at_least(reserve),
            None => reserve.plus(reserve),
        }
    }

    /// The largest request that pressure does not stop.
    #[must_use]
    pub const fn request(&self) -> Bytes {
        match self.request {
            Some(request) => request,
            None => Bytes::mib(64),
        }
    }

    /// The use of a slice from which its allocator must release its cache. vLLM's own 80 %.
    #[must_use]
    pub const fn used(&self, memory: Bytes) -> Bytes {
        let percent = match self.used {
            Some(percent) => percent as u64,
            None => 80,
        };
        Bytes::new((memory.get() / 100).saturating_mul(percent))
    }

    /// The least memory that a release must free to be repeated soon. vLLM's own 512 MiB.
    #[must_use]
    pub const fn freed(&self) -> Bytes {
        match self.freed {
            Some(freed) => freed,
            None => Bytes::mib(512),
        }
    }
}
