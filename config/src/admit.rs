//! Decides whether an allocation is granted.
//! Touches: its arguments.
//! Law: what `view` shows as free is granted, and one byte more is refused. Headroom is kept back
//! from what is shown, not from what is granted.

use crate::slice::DeviceSlice;
use crate::units::Bytes;
use crate::view::{Facts, Host, view};

/// An allocation that is not granted: to the program, the vendor's own out-of-memory code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What would have been granted.
    pub free: Bytes,
    /// How much less than the request that is: what a larger headroom would have avoided.
    pub short_by: Bytes,
    /// The host, where it is that which has no more, and not the slice.
    pub host: Option<Host>,
}

/// Decides on an allocation of `request` bytes.
///
/// Without a slice the decision is the driver's alone.
///
/// # Errors
/// What does not fit under the slice's limit, or is not there to be had.
pub fn admit(facts: &Facts, slice: Option<&DeviceSlice>, request: Bytes) -> Result<(), Refusal> {
    let Some(slice) = slice else {
        return Ok(());
    };
    let bare = DeviceSlice {
        headroom: Bytes::ZERO,
        ..*slice
    };
    // What pressure keeps back is shown to nobody, but a small request may still have it.
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

/// How far a grant must stay from what the host can give, where what is known of the host is up
/// to a millisecond old: the fastest slide that was seen is 2 MiB in that time.
const FAR: Bytes = Bytes::gib(1);

/// Whether a request is granted whatever the host has done in the last millisecond.
#[must_use]
pub fn is_far_from_the_end(facts: &Facts, request: Bytes) -> bool {
    let rest = facts.host.map_or(Bytes::ZERO, |host| host.obtainable());
    request.plus(FAR) <= rest
}

/// What the slice's processes may hold together, which is what [`crate::ledger::Ledger::claim`]
/// is given: the limit without what they hold of the host's memory beyond their allowance, or no
/// end where the slice only counts.
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
