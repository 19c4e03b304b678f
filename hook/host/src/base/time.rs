//! Formats and reads moments.
//! Touches: its arguments.

/// Formats a moment, in seconds since 1970, in UTC: `2026-12-31T23:59:59Z`.
#[must_use]
pub fn rfc3339(seconds: u64) -> String {
    const DAY: u64 = 86_400;
    let length = |year: u64| {
        let leap =
            year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        if leap { 366 } else { 365 }
    };
    let (mut year, mut day) = (1970, seconds / DAY);
    while day >= length(year) {
        day = day.saturating_sub(length(year));
        year = year.saturating_add(1);
    }
    let february = length(year).saturating_sub(337);
    let mut month: u64 = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < days {
            break;
        }
        day = day.saturating_sub(days);
        month = month.saturating_add(1);
    }
    let second = seconds % DAY;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let day = day.saturating_add(1);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Reads a moment that [`rfc3339`] has written, as seconds since 1970.
#[must_use]
pub fn seconds_of(text: &str) -> Option<u64> {
    let number = |place: std::ops::Range<usize>| text.get(place)?.parse::<u64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    // The year begins in March, so that a leap day is the last day of a year.
    let (year, month) = match month {
        1..=2 => (year.checked_sub(1)?, month.checked_add(9)?),
        _ => (year, month.checked_sub(3)?),
    };
    let leap_days = (year / 4)
        .checked_sub(year / 100)?
        .checked_add(year / 400)?;
    let of_months = month.checked_mul(153)?.checked_add(2)? / 5;
    let days = year.checked_mul(365)?.checked_add(leap_days)?;
    let days = days.checked_add(of_months)?.checked_add(day)?;
    // 1 March of the year 0 is 719,469 days before 2 January 1970.
    let hours = days
        .checked_sub(719_469)?
        .checked_mul(24)?
        .checked_add(hour)?;
    let minutes = hours.checked_mul(60)?.checked_add(minute)?;
    minutes.checked_mul(60)?.checked_add(second)
}

#[cfg(test)]
mod tests {
    use super::{rfc3339, seconds_of};

    #[test]
    fn a_moment_that_was_written_is_read_again() {
        for seconds in (0..8_000_000_000u64).step_by(86_399 * 3) {
            assert_eq!(seconds_of(&rfc3339(seconds)), Some(seconds), "{seconds}");
        }
        for other in [
            "",
            "2026",
            "2026-12-31",
            "abcd-12-31T00:00:00Z",
            "2026-00-31T00:00:00Z",
        ] {
            assert_eq!(seconds_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_moment_is_written_as_go_reads_it() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_709_251_199), "2024-02-29T23:59:59Z");
        assert_eq!(rfc3339(1_798_761_599), "2026-12-31T23:59:59Z");
        assert_eq!(rfc3339(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}
