//! The limit on the processor time that a report spends on the heaps of a slice.
//! Touches: this thread's clock.
//! Law: a report spends about a second on heaps, even if a program forges its heap. A forged heap
//! in one slice does not reduce the shares of the other slices.

use std::time::Duration;

/// The time for all slices together.
const ALL: Duration = Duration::from_secs(1);
/// The minimum time for one slice, whatever the number of slices.
const LEAST: Duration = Duration::from_millis(20);

/// The remaining time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    /// This thread's processor time at which the allowance is used up.
    end: Duration,
}

impl Allowance {
    /// Returns the share of one slice out of `slices`.
    pub(super) fn share_of(slices: usize) -> Allowance {
        let share = u32::try_from(slices)
            .ok()
            .and_then(|count| ALL.checked_div(count));
        let share = share.unwrap_or(LEAST).max(LEAST);
        Allowance {
            end: spent().saturating_add(share),
        }
    }

    /// Checks whether no time is left.
    pub(super) fn is_used_up(self) -> bool {
        spent() >= self.end
    }
}

/// Returns this thread's processor time, which other load on the machine does not increase.
pub(super) fn spent() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: clock_gettime writes one timespec.
    let _ = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
