//! Reads a time in the past: an age, or a time of day.
//! Touches: its arguments, the clock.

use crate::base::text;
use gpuslice_host::base::clock;
use std::time::{Duration, SystemTime};

/// Reads `30s`, `10min`, `1h`, `2d`, `1w`, or an RFC 3339 time.
pub(crate) fn since(given: &str) -> Result<SystemTime, String> {
    let wrong = || {
        let given = text::printable(given);
        format!("\"{given}\" is not a time (try 1h, 30min, 2d or 2026-11-23T08:00:00Z)")
    };
    if let Some(time) = clock::parse(given) {
        return Ok(time);
    }
    let end = given.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = given.split_at_checked(end).ok_or_else(wrong)?;
    let count: u64 = count.parse().map_err(|_| wrong())?;
    let seconds: u64 = match unit.trim() {
        "s" | "sec" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => return Err(wrong()),
    };
    let age = Duration::from_secs(count.saturating_mul(seconds));
    Ok(SystemTime::now()
        .checked_sub(age)
        .unwrap_or(SystemTime::UNIX_EPOCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_a_unit() {
        let age = |text| since(text).unwrap().elapsed().unwrap().as_secs();
        let ages = ["30s", "10min", "10m", "1h", "2d", "1w"].map(age);
        assert_eq!(ages, [30, 600, 600, 3600, 172_800, 604_800]);
        assert_eq!(since("1970-01-01T00:00:00Z"), Ok(SystemTime::UNIX_EPOCH));
        for wrong in ["", "1", "h", "-1h", "1 year", "yesterday"] {
            assert!(since(wrong).unwrap_err().contains("try 1h"), "{wrong}");
        }
    }
}
