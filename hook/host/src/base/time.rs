//! Formats moments.
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

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn a_moment_is_written_as_go_reads_it() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_709_251_199), "2024-02-29T23:59:59Z");
        assert_eq!(rfc3339(1_798_761_599), "2026-12-31T23:59:59Z");
        assert_eq!(rfc3339(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}
