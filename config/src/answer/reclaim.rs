//! Decides when to ask an allocator to release its cache, and interprets the result.
//! Touches: its arguments.

use core::time::Duration;

use crate::answer::view::Host;
use crate::slice::thresholds::Thresholds;
use crate::words::units::Bytes;

/// The least host memory, freed but kept by the allocator, that is worth trimming: a trim takes a
/// tenth of a second.
pub const HOST_KEPT: Bytes = Bytes::mib(256);

/// The minimum time between two trims of freed host memory.
pub const HOST_TRIM_EVERY: Duration = Duration::from_secs(30);

/// Whether memory is so short that an allocator should release its cache. The slice is nearly full,
/// or the host has no more than its reserve.
#[must_use]
pub fn is_short(
    thresholds: &Thresholds,
    memory: Bytes,
    held: Bytes,
    request: Bytes,
    host: Option<&Host>,
) -> bool {
    let full = held.plus(request) > thresholds.used(memory);
    full || host.is_some_and(|host| host.pressed.is_some() || host.obtainable() < request)
}

/// The state of the release requests to one process's allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Release {
    /// The bytes that the process held when it was asked; `None` while no request is pending.
    pub asked_at: Option<Bytes>,
    /// The fewest bytes that it has held since the last request.
    pub low: Bytes,
    /// The process is not asked again before it holds this much.
    pub not_before: Bytes,
    /// The number of consecutive requests that freed too little.
    pub in_vain: u32,
}

/// The decision about an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// It proceeds.
    Passes,
    /// It is the retry after a refusal; the allocator has freed this much.
    Again(Bytes),
    /// It is refused, once.
    Refused,
}

impl Release {
    /// Decides on an allocation by which the allocator grows. `short`: whether memory is short.
    #[must_use]
    pub fn grow(self, thresholds: &Thresholds, own: Bytes, short: bool) -> (Release, Growth) {
        let least = thresholds.freed();
        if let Some(asked_at) = self.asked_at {
            let freed = asked_at.minus(own);
            let in_vain = match freed < least {
                true => self.in_vain.saturating_add(1),
                false => 0,
            };
            // After each useless request, the cache must grow to twice as much before the next one.
            let gathers = least.get().checked_shl(in_vain).unwrap_or(u64::MAX);
            let next = Release {
                asked_at: None,
                low: own,
                not_before: own.plus(Bytes::new(gathers.max(least.get()))),
                in_vain,
            };
            return (next, Growth::Again(freed));
        }
        let low = self.low.at_most(own);
        let gathered = own.minus(low) > least && own >= self.not_before;
        let asked_at = (short && gathered).then_some(own);
        let growth = match asked_at {
            Some(_) => Growth::Refused,
            None => Growth::Passes,
        };
        let next = Release {
            asked_at,
            low,
            ..self
        };
        (next, growth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::view::Pressed;
    use crate::host::meminfo::HostMemory;

    const LEAST: Bytes = Bytes::mib(512);

    fn grow(release: &mut Release, own: Bytes, short: bool) -> Growth {
        let (next, growth) = release.grow(&Thresholds::default(), own, short);
        *release = next;
        growth
    }

    #[test]
    fn one_refusal_and_the_same_request_again_passes_whatever_was_freed() {
        let mut release = Release::default();
        assert_eq!(grow(&mut release, Bytes::gib(4), false), Growth::Passes);
        assert_eq!(grow(&mut release, Bytes::gib(8), true), Growth::Refused);
        let freed = Growth::Again(Bytes::gib(3));
        assert_eq!(grow(&mut release, Bytes::gib(5), true), freed);
        assert_eq!(grow(&mut release, Bytes::gib(5), true), Growth::Passes);
        // The cache must have grown by this much again.
        let more = Bytes::gib(5).plus(LEAST);
        assert_eq!(grow(&mut release, more, true), Growth::Passes);
        let more = more.plus(Bytes::mib(2));
        assert_eq!(grow(&mut release, more, true), Growth::Refused);
    }

    #[test]
    fn who_gives_little_is_asked_less_and_less_often() {
        let mut release = Release::default();
        let mut own = Bytes::gib(1);
        let mut gathered = std::vec::Vec::new();
        for _ in 0..5 {
            let start = own;
            while grow(&mut release, own, true) == Growth::Passes {
                own = own.plus(Bytes::mib(2));
            }
            assert_eq!(grow(&mut release, own, true), Growth::Again(Bytes::ZERO));
            gathered.push(own.minus(start).whole_mib());
        }
        assert_eq!(gathered, [0, 1024, 2048, 4096, 8192]);
        let mut tireless = Release {
            in_vain: u32::MAX,
            asked_at: Some(Bytes::MAX),
            ..Release::default()
        };
        assert!(matches!(
            grow(&mut tireless, Bytes::MAX, true),
            Growth::Again(_)
        ));
    }

    #[test]
    fn a_process_that_has_gathered_nothing_is_not_asked() {
        let mut release = Release::default();
        for _ in 0..3 {
            assert_eq!(grow(&mut release, LEAST, true), Growth::Passes);
        }
        assert_eq!(grow(&mut release, Bytes::gib(90), false), Growth::Passes);
    }

    #[test]
    fn memory_is_short_when_a_slice_is_nearly_full_or_the_host_gives_no_more() {
        let thresholds = Thresholds::default();
        let short = |held, request| {
            let (held, request) = (Bytes::gib(held), Bytes::gib(request));
            is_short(&thresholds, Bytes::gib(100), held, request, None)
        };
        assert!(!short(70, 10));
        assert!(short(70, 11));
        let strict = Thresholds {
            used: Some(0),
            ..thresholds
        };
        assert!(is_short(&strict, Bytes::gib(100), Bytes::ZERO, LEAST, None));
    }

    #[test]
    fn memory_is_short_when_the_host_waits_for_it_or_has_less_than_the_request() {
        let host = |pressed| Host {
            memory: HostMemory {
                total: Bytes::gib(121),
                free: Bytes::ZERO,
                available: Bytes::gib(20),
            },
            reserve: Some(Bytes::gib(8)),
            others_unused: Bytes::ZERO,
            pressed,
        };
        let short = |request, host: &Host| {
            let (thresholds, memory) = (Thresholds::default(), Bytes::gib(100));
            is_short(&thresholds, memory, Bytes::ZERO, request, Some(host))
        };
        let idle = host(None);
        assert!(!short(Bytes::gib(12), &idle));
        assert!(short(Bytes::gib(12).plus(Bytes::new(1)), &idle));
        let pressed = Pressed {
            keeps: Bytes::gib(8),
            beyond: Bytes::mib(64),
        };
        assert!(short(Bytes::mib(1), &host(Some(pressed))));
    }

    #[test]
    fn who_gives_the_least_that_is_asked_for_is_not_asked_less() {
        let mut release = Release::default();
        assert_eq!(grow(&mut release, Bytes::gib(8), true), Growth::Refused);
        let own = Bytes::gib(8).minus(LEAST);
        assert_eq!(grow(&mut release, own, true), Growth::Again(LEAST));
        assert_eq!(release.in_vain, 0);
        assert_eq!(release.not_before, Bytes::gib(8));
    }

    #[test]
    fn memory_that_a_process_frees_by_itself_is_gathered_again() {
        let mut release = Release::default();
        assert_eq!(grow(&mut release, Bytes::gib(8), true), Growth::Refused);
        let freed = Growth::Again(Bytes::gib(3));
        assert_eq!(grow(&mut release, Bytes::gib(5), true), freed);
        assert_eq!(grow(&mut release, Bytes::gib(1), false), Growth::Passes);
        let again = Bytes::gib(5).plus(LEAST);
        assert_eq!(grow(&mut release, again, true), Growth::Refused);
    }
}
