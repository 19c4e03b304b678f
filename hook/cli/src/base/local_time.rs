//! The time of day at this place.
//! Touches: the time zone that TZ or /etc/localtime names.

use gpuslice_host::base::clock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the seconds by which the local time is ahead of UTC at a moment.
#[must_use]
pub(crate) fn offset(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = libc::time_t::try_from(since.as_secs()).unwrap_or(0);
    let mut local = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are valid for the call.
    let done = unsafe { libc::localtime_r(&raw const seconds, local.as_mut_ptr()) };
    if done.is_null() {
        return 0;
    }
    // SAFETY: localtime_r has filled the struct.
    let local = unsafe { local.assume_init() };
    local.tm_gmtoff
}

/// Formats a moment as local time: `2026-11-23 09:00:05`.
#[must_use]
pub(crate) fn shown(time: SystemTime) -> String {
    with_offset(time, offset(time))
}

/// Formats a moment as the time of a place with this offset.
#[must_use]
pub(crate) fn with_offset(time: SystemTime, offset: i64) -> String {
    let distance = Duration::from_secs(offset.unsigned_abs());
    let moved = match offset < 0 {
        true => time.checked_sub(distance),
        false => time.checked_add(distance),
    };
    let since = moved
        .unwrap_or(time)
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let text = clock::rfc3339(since.as_secs());
    text.trim_end_matches('Z').replace('T', " ")
}

/// Formats an offset: `UTC`, `UTC+01:00`.
#[must_use]
pub(crate) fn zone(offset: i64) -> String {
    if offset == 0 {
        return "UTC".to_owned();
    }
    let sign = if offset < 0 { '-' } else { '+' };
    let minutes = offset.unsigned_abs() / 60;
    format!("UTC{sign}{:02}:{:02}", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_shown_as_a_place_has_it() {
        let time = UNIX_EPOCH + Duration::from_secs(951_782_400);
        assert_eq!(with_offset(time, 0), "2000-02-29 00:00:00");
        assert_eq!(with_offset(time, 5400), "2000-02-29 01:30:00");
        assert_eq!(with_offset(time, -3600), "2000-02-28 23:00:00");
        assert_eq!(
            [0, 5400, -3600].map(zone),
            ["UTC", "UTC+01:30", "UTC-01:00"]
        );
    }
}
