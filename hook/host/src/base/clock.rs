//! Times of day as text: RFC 3339, in UTC.
//! Touches: its arguments.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY: u64 = 86_400;

/// A time in whole seconds since 1970: `2026-11-23T08:00:00Z`.
#[must_use]
pub fn rfc3339(seconds: u64) -> String {
    format!("{}Z", date_and_time(seconds))
}

/// A time with its milliseconds: `2026-11-23T08:00:00.123Z`. Two such texts compare as their times.
#[must_use]
pub fn rfc3339_ms(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, ms) = (since.as_secs(), since.subsec_millis());
    format!("{}.{ms:03}Z", date_and_time(seconds))
}

fn date_and_time(seconds: u64) -> String {
    let (mut year, mut day) = (1970, seconds / DAY);
    while day >= days_of(year) {
        day = day.saturating_sub(days_of(year));
        year = year.saturating_add(1);
    }
    let mut month: u64 = 1;
    for days in months_of(year) {
        if day < days {
            break;
        }
        day = day.saturating_sub(days);
        month = month.saturating_add(1);
    }
    let second = seconds % DAY;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let day = day.saturating_add(1);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

fn days_of(year: u64) -> u64 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    if leap { 366 } else { 365 }
}

/// The days of each month.
fn months_of(year: u64) -> [u64; 12] {
    let february = days_of(year).saturating_sub(337);
    [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
}

/// Reads an RFC 3339 time, in UTC or with an offset.
#[must_use]
pub fn parse(text: &str) -> Option<SystemTime> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let at = time.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = time.split_at_checked(at)?;
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(clock, ':')?;
    let in_range = (1970..=9999).contains(&year) && hour < 24 && minute < 60 && second <= 60;
    let is_digits = fraction.bytes().all(|letter| letter.is_ascii_digit());
    if !in_range || !is_digits {
        return None;
    }
    let nanos: u32 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    let years: u64 = (1970..year).map(days_of).sum();
    let index = usize::try_from(month.checked_sub(1)?).ok()?;
    let months = months_of(year);
    let length = *months.get(index)?;
    let before: u64 = months.get(..index)?.iter().sum();
    let day = day.checked_sub(1).filter(|day| *day < length)?;
    let days = years.checked_add(before)?.checked_add(day)?;
    let of_day = hour
        .checked_mul(3600)?
        .checked_add(minute.checked_mul(60)?)?;
    let seconds = days
        .checked_mul(DAY)?
        .checked_add(of_day)?
        .checked_add(second)?;
    let local = UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))?;
    if zone.eq_ignore_ascii_case("z") {
        return Some(local);
    }
    let (sign, offset) = zone.split_at_checked(1)?;
    let [hours, minutes] = numbers(offset, ':')?;
    let offset = hours
        .checked_mul(3600)?
        .checked_add(minutes.checked_mul(60)?)?;
    let offset = Duration::from_secs(offset);
    match sign {
        "-" => local.checked_add(offset),
        _ => local.checked_sub(offset),
    }
}

fn numbers<const N: usize>(text: &str, between: char) -> Option<[u64; N]> {
    let parts: Option<Vec<u64>> = text.split(between).map(|part| part.parse().ok()).collect();
    parts?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_as_go_reads_it() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_709_251_199), "2024-02-29T23:59:59Z");
        assert_eq!(rfc3339(1_798_761_599), "2026-12-31T23:59:59Z");
        assert_eq!(rfc3339(4_107_542_400), "2100-03-01T00:00:00Z");
        let time = UNIX_EPOCH + Duration::from_millis(951_782_400_007);
        assert_eq!(rfc3339_ms(time), "2000-02-29T00:00:00.007Z");
    }

    #[test]
    fn a_time_that_was_written_is_read_back() {
        for seconds in [0, 951_782_400, 1_709_251_199, 4_107_542_400] {
            let time = UNIX_EPOCH + Duration::from_millis(seconds * 1000 + 120);
            assert_eq!(parse(&rfc3339_ms(time)), Some(time));
            let whole = UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(parse(&rfc3339(seconds)), Some(whole));
        }
        let same = [
            "2026-11-23T08:30:00+01:30",
            "2026-11-23T07:00:00.0Z",
            "2026-11-23 02:00:00-05:00",
        ];
        let times = same.map(|text| parse(text).unwrap());
        assert!(times.iter().all(|time| *time == times[0]));
        for wrong in [
            "",
            "2026-11-23",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "xT:Z",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
