//! Decides whether an allocation is granted.
//! Touches: its arguments.
//! Law: an allocation is granted up to the free memory that `view` returns for the slice without its
//! headroom, and one byte more is refused. Headroom lowers only the memory that is shown.

use crate::answer::view::{Facts, Host, view};
use crate::slice::DeviceSlice;
use crate::words::units::Bytes;

/// An allocation that is not granted. The program receives the vendor's own out-of-memory code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The largest request that would have been granted.
    pub free: Bytes,
    /// The bytes by which the request exceeds `free`. That much more headroom would have avoided
    /// the refusal.
    pub short_by: Bytes,
    /// The host, if the host rather than the slice is out of memory.
    pub host: Option<Host>,
}

/// Decides on an allocation of `request` bytes.
///
/// Without a slice, only the driver decides.
///
/// # Errors
/// When the request exceeds the slice's limit or the available memory.
pub fn admit(facts: &Facts, slice: Option<&DeviceSlice>, request: Bytes) -> Result<(), Refusal> {
    let Some(slice) = slice else {
        return Ok(());
    };
    let bare = DeviceSlice {
        headroom: Bytes::ZERO,
        ..*slice
    };
    // Memory kept back under pressure is not shown, but a small request may still use it.
    let unpressed = |host: Host| match host.pressed {
        Some(pressed) if request <= pressed.beyond => Host {
            pressed: None,
            ..host
        },
        _ => host,
    };
    let asked = Facts {
        host: facts.host.map(unpressed),
        ..*facts
    };
    let free = view(&asked, Some(&bare)).free;
    match request <= free {
        true => Ok(()),
        false => Err(Refusal {
            free,
            short_by: request.minus(free),
            host: facts.host.filter(|_| is_the_hosts_doing(facts, slice)),
        }),
    }
}

fn is_the_hosts_doing(facts: &Facts, slice: &DeviceSlice) -> bool {
    let Some(host) = facts.host else {
        return false;
    };
    let own_use = facts.own_use.unwrap_or(Bytes::ZERO);
    host.obtainable() < slice.memory.minus(own_use)
}

/// The free memory that a grant must leave on the host, because host figures are up to 1 ms old. The
/// fastest decrease that was measured in that time is 2 MiB.
const MARGIN: Bytes = Bytes::gib(1);

/// Returns whether a request leaves so much host memory free that figures of up to 1 ms ago are
/// exact enough to grant it.
#[must_use]
pub fn leaves_margin(facts: &Facts, request: Bytes) -> bool {
    let rest = facts.host.map_or(Bytes::ZERO, |host| host.obtainable());
    request.plus(MARGIN) <= rest
}

/// The most that the slice's processes may hold together, for [`crate::ledger::Ledger::claim`]. It
/// is the limit minus the host memory that they hold beyond their allowance. A slice that only
/// counts has no limit.
#[must_use]
pub fn claim_limit(slice: &DeviceSlice, host_charge: Bytes, enforce: bool) -> Bytes {
    match enforce {
        true => slice.memory.minus(host_charge),
        false => Bytes::MAX,
    }
}

#[cfg(test)]
#[path = "admit_tests.rs"]
mod tests;
