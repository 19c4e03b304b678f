//! Parses the value of `--since`: an age, a date, or a date with a time.
//! Touches: its arguments, the clock, the local time zone.

use crate::base::{local_time, text};
use gpuslice_host::base::clock;
use std::time::{Duration, SystemTime};

/// Parses an age (`30s`, `10min`, `1h30m`, `2d`, `1w`), an RFC 3339 time, or a local time as
/// `gpuslice events` prints it (`2026-11-23 09:00:05`, `2026-11-23`).
pub(crate) fn since(given: &str) -> Result<SystemTime, String> {
    let wrong = || {
        let given = text::printable(given);
        format!("\"{given}\" is not a time (try 1h, 30min, 2d, 2026-11-23 or 2026-11-23T08:00:00Z)")
    };
    if let Some(time) = clock::parse(given).or_else(|| local(given)) {
        return Ok(time);
    }
    let age = age(given).ok_or_else(wrong)?;
    Ok(SystemTime::now()
        .checked_sub(age)
        .unwrap_or(SystemTime::UNIX_EPOCH))
}

/// Parses a local date, with or without a time of day.
fn local(given: &str) -> Option<SystemTime> {
    let forms = [format!("{given}Z"), format!("{given}T00:00:00Z")];
    let as_utc = forms.iter().find_map(|form| clock::parse(form))?;
    // The offset at that moment is not known before the moment is. The second step corrects a
    // first one across a change of the offset.
    let ahead = |time: SystemTime| shifted(as_utc, local_time::offset(time));
    ahead(ahead(as_utc)?)
}

/// Subtracts an offset in seconds.
fn shifted(time: SystemTime, offset: i64) -> Option<SystemTime> {
    let distance = Duration::from_secs(offset.unsigned_abs());
    match offset < 0 {
        true => time.checked_add(distance),
        false => time.checked_sub(distance),
    }
}

/// Parses a sum of numbers with units.
pub(crate) fn age(given: &str) -> Option<Duration> {
    let mut rest = given.trim();
    let mut seconds: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (count, after) = rest.split_at_checked(digits)?;
        let letters = after.bytes().take_while(|byte| !byte.is_ascii_digit());
        let (unit, after) = after.split_at_checked(letters.count())?;
        let unit: u64 = match unit.trim() {
            "s" | "sec" => 1,
            "m" | "min" => 60,
            "h" => 3600,
            "d" => 86_400,
            "w" => 7 * 86_400,
            _ => return None,
        };
        let count: u64 = count.parse().ok()?;
        seconds = seconds.saturating_add(count.saturating_mul(unit));
        rest = after;
    }
    (!given.trim().is_empty()).then(|| Duration::from_secs(seconds))
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
        let sums = ["1h30m", "1d 2h", "1min30s"].map(age);
        assert_eq!(sums, [5400, 93_600, 90]);
        for wrong in [
            "",
            "1",
            "h",
            "-1h",
            "1 year",
            "1h30",
            "yesterday",
            "2026-13-01",
        ] {
            assert!(since(wrong).unwrap_err().contains("try 1h"), "{wrong}");
        }
    }

    #[test]
    fn a_time_that_was_printed_is_read_back() {
        let moment = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_436_266);
        let printed = local_time::shown(moment);
        assert_eq!(since(&printed), Ok(moment), "{printed}");
        assert_eq!(since(&printed.replace(' ', "T")), Ok(moment), "{printed}");
        let (day, _) = printed.split_once(' ').unwrap();
        let midnight = since(&format!("{day} 00:00:00"));
        assert!(midnight.is_ok() && since(day) == midnight, "{day}");
    }
}
