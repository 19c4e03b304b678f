//! Dates and times of day in UTC, as RFC 3339 writes them.
//! Touches: its arguments.

/// The form of a time, with `0` for each digit.
const FORM: &[u8; LENGTH] = b"0000-00-00T00:00:00Z";
/// The length of a time.
pub const LENGTH: usize = 20;
/// The last second of the year 9999, the last that has this form.
const LAST: u64 = 253_402_300_799;

/// Formats the second that is `seconds` after the start of 1970: `2026-11-22T13:31:02Z`. Seconds
/// after the year 9999 become its last one.
#[must_use]
pub fn rfc3339(seconds: u64) -> [u8; LENGTH] {
    let seconds = seconds.min(LAST);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let mut text = *FORM;
    let fields = [
        (0, 4, year),
        (5, 2, month),
        (8, 2, day),
        (11, 2, hour),
        (14, 2, minute),
        (17, 2, second),
    ];
    for (start, length, number) in fields {
        let mut rest = number;
        let digits = text.iter_mut().skip(start).take(length).rev();
        digits.for_each(|digit| {
            *digit = b'0'.saturating_add((rest % 10) as u8);
            rest /= 10;
        });
    }
    text
}

/// Whether a text has the form of such a time.
#[must_use]
pub fn is_rfc3339(text: &[u8]) -> bool {
    let alike = |(text, form): (&u8, &u8)| match form {
        b'0' => text.is_ascii_digit(),
        form => text == form,
    };
    text.len() == LENGTH && text.iter().zip(FORM).all(alike)
}

/// The year, month and day of a day, counted from the first of January 1970.
fn date(days: u64) -> (u64, u64, u64) {
    /// The days from the first of March of the year 0 to the first of January 1970.
    const TO_1970: u64 = 719_468;
    /// The days of 4, 100 and 400 years that begin with March.
    const FOUR: u64 = 1461;
    const HUNDRED: u64 = 36_524;
    const FOUR_HUNDRED: u64 = 146_097;
    let days = days.saturating_add(TO_1970);
    let (cycle, day) = (days / FOUR_HUNDRED, days % FOUR_HUNDRED);
    // The last day of each 4 years, and not of each 100, is a leap day. Without the leap days,
    // every year has 365 days.
    let leaps = (day / (FOUR - 1)).saturating_sub(day / HUNDRED);
    let leaps = leaps.saturating_add(day / (FOUR_HUNDRED - 1));
    let year = day.saturating_sub(leaps) / 365;
    let before = year.saturating_mul(365).saturating_add(year / 4);
    let day = day.saturating_sub(before.saturating_sub(year / 100));
    // From March on, five months have 153 days.
    let march = day.saturating_mul(5).saturating_add(2) / 153;
    let start = march.saturating_mul(153).saturating_add(2) / 5;
    let day = day.saturating_sub(start).saturating_add(1);
    let month = if march < 10 {
        march.saturating_add(3)
    } else {
        march.saturating_sub(9)
    };
    let year = cycle.saturating_mul(400).saturating_add(year);
    let year = year.saturating_add(u64::from(month <= 2));
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    fn shown(seconds: u64) -> std::string::String {
        std::string::String::from_utf8(rfc3339(seconds).to_vec()).unwrap()
    }

    #[test]
    fn leap_days_and_the_ends_of_the_range_are_right() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_354_262, "2026-11-22T13:31:02Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (LAST, "9999-12-31T23:59:59Z"),
            (u64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(shown(seconds), text);
            assert!(is_rfc3339(text.as_bytes()));
        }
        for text in [
            "",
            "2026-11-22T13:31:02",
            "2026-11-22 13:31:02Z",
            "20261122T133102ZZZZZ",
        ] {
            assert!(!is_rfc3339(text.as_bytes()), "{text}");
        }
    }

    fn by_library(seconds: u64) -> std::string::String {
        let at = UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
        std::format!("{}", humantime::format_rfc3339_seconds(at.unwrap()))
    }

    #[test]
    fn every_day_until_2400_is_the_day_that_a_library_says() {
        // miri takes a millisecond and more for each day.
        let step = if cfg!(miri) { 997 } else { 1 };
        for day in (0..157_000u64).step_by(step) {
            assert_eq!(shown(day * 86_400), by_library(day * 86_400));
        }
    }

    proptest::proptest! {
        #[test]
        fn every_second_is_the_one_that_a_library_says(seconds in 0..=LAST) {
            proptest::prop_assert_eq!(shown(seconds), by_library(seconds));
        }
    }
}
