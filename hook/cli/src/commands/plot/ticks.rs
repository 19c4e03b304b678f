//! Round numbers for the axes of a picture.
//! Touches: its arguments.

use crate::base::local_time;
use std::time::{Duration, UNIX_EPOCH};

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The steps of the time axis, in milliseconds.
const STEPS: [u64; 27] = [
    SECOND,
    2 * SECOND,
    5 * SECOND,
    10 * SECOND,
    15 * SECOND,
    30 * SECOND,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    5 * DAY,
    10 * DAY,
    20 * DAY,
    50 * DAY,
    100 * DAY,
    200 * DAY,
    500 * DAY,
    1000 * DAY,
];

/// The most ticks of the time axis.
const MOST: u64 = 8;

/// The ticks of a time axis, in milliseconds, and their texts. They are round in local time.
pub(super) fn of_time(from: u64, to: u64, offset: i64) -> Vec<(u64, String)> {
    let length = to.saturating_sub(from);
    let fits = |step: &&u64| {
        length
            .checked_div(**step)
            .is_some_and(|count| count <= MOST)
    };
    let step = STEPS
        .iter()
        .find(fits)
        .or(STEPS.last())
        .copied()
        .unwrap_or(DAY);
    let local = |time: u64| time.saturating_add_signed(offset.saturating_mul(1000));
    let past = local(from).checked_rem(step).unwrap_or(0);
    let first = match past {
        0 => from,
        past => from.saturating_add(step.saturating_sub(past)),
    };
    let steps = (0..=MOST).map(|count| first.saturating_add(step.saturating_mul(count)));
    let ticks = steps.take_while(|tick| *tick <= to);
    ticks.map(|tick| (tick, text(tick, step, offset))).collect()
}

/// A tick's text: the time of day, or the date at midnight.
fn text(tick: u64, step: u64, offset: i64) -> String {
    let time = UNIX_EPOCH
        .checked_add(Duration::from_millis(tick))
        .unwrap_or(UNIX_EPOCH);
    let shown = local_time::with_offset(time, offset);
    let (date, clock) = shown.split_once(' ').unwrap_or((&shown, ""));
    match (clock, step) {
        ("00:00:00", MINUTE..) | (_, DAY..) => date.get(5..).unwrap_or(date).to_owned(),
        (_, MINUTE..) => clock.get(..5).unwrap_or(clock).to_owned(),
        _ => clock.to_owned(),
    }
}

/// The ticks of an axis of bytes up to at least `most`, and their texts.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a picture has no sixteen digits"
)]
pub(super) fn of_bytes(most: u64) -> Vec<(u64, String)> {
    let (unit, name) = match most {
        0..0x4000_0000 => (1u64 << 20, "MiB"),
        0x4000_0000..0x100_0000_0000 => (1 << 30, "GiB"),
        _ => (1 << 40, "TiB"),
    };
    let units = (most as f64 / unit as f64).max(1.0);
    // The step is 1, 2 or 5 times a power of ten, for four to nine ticks.
    let power = 10f64.powf((units / 3.0).log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|factor| factor * power);
    let step = steps.into_iter().rfind(|step| units / step >= 3.0);
    let step = step.unwrap_or(power);
    let count = (units / step).ceil() as u32;
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    let tick = |index: u32| {
        let value = f64::from(index) * step;
        let bytes = (value * unit as f64).round() as u64;
        (bytes, format!("{value:.decimals$} {name}"))
    };
    (0..=count).map(tick).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(ticks: &[(u64, String)]) -> Vec<&str> {
        ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn times_are_round_where_the_reader_is() {
        // 2026-11-23 07:59:58 UTC.
        let start = 1_795_420_798_000;
        let ticks = of_time(start, start + 10 * SECOND, 0);
        assert_eq!(
            texts(&ticks),
            [
                "07:59:58", "08:00:00", "08:00:02", "08:00:04", "08:00:06", "08:00:08"
            ]
        );
        let ticks = of_time(start, start + 3 * HOUR, 1800);
        assert_eq!(
            texts(&ticks),
            ["08:30", "09:00", "09:30", "10:00", "10:30", "11:00"]
        );
        let ticks = of_time(start, start + 20 * HOUR, 0);
        assert_eq!(
            texts(&ticks),
            [
                "09:00", "12:00", "15:00", "18:00", "21:00", "11-24", "03:00"
            ]
        );
        let ticks = of_time(start, start + 30 * DAY, 0);
        assert_eq!(texts(&ticks)[0], "11-28");
        assert!(of_time(start, start, 0).len() <= 1);
    }

    #[test]
    fn amounts_are_whole_where_they_can_be() {
        let whole = of_bytes(8 << 30);
        assert_eq!(texts(&whole), ["0 GiB", "2 GiB", "4 GiB", "6 GiB", "8 GiB"]);
        let parts = of_bytes(3 << 29);
        assert_eq!(texts(&parts), ["0.0 GiB", "0.5 GiB", "1.0 GiB", "1.5 GiB"]);
        assert_eq!(texts(&of_bytes(600 << 20))[1], "200 MiB");
        assert_eq!(texts(&of_bytes(0)).len(), 6);
        for most in [1u64, 1 << 20, 7 << 30, 23 << 30, 1 << 40, 1 << 50] {
            let ticks = of_bytes(most);
            assert!((4..=10).contains(&ticks.len()), "{most}: {ticks:?}");
            assert!(ticks.last().unwrap().0 >= most);
        }
    }
}
