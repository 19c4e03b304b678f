//! Tests of a claim that another thread of the same process disputes: its own undecided claim shows in
//! the slot. The loom tests are those of threads at once.
//! Touches: files on tmpfs.

#![expect(clippy::unwrap_used, reason = "a helper of tests may panic")]

use super::processes::{LIMIT, TestLedger};
use super::{Claim, protocol::sync::AtomicU64};
use crate::words::units::Bytes;
use core::sync::atomic::Ordering::SeqCst;

fn pending(place: &TestLedger) -> &'static AtomicU64 {
    place.ledger.table.pending.first().unwrap()
}

#[test]
fn a_disputed_claim_is_granted_once_if_both_fit() {
    let place = TestLedger::new();
    assert_eq!(place.claim(5), Claim::Granted);
    pending(&place).store(1, SeqCst);
    assert_eq!(place.claim(10), Claim::Granted);
    pending(&place).store(0, SeqCst);
    assert_eq!(place.sum(), 15);
}

#[test]
fn a_disputed_claim_is_refused_and_withdrawn_if_both_do_not_fit() {
    let place = TestLedger::new();
    assert_eq!(place.claim(5), Claim::Granted);
    pending(&place).store(LIMIT - 10, SeqCst);
    let used = Bytes::new(5);
    assert_eq!(place.claim(10), Claim::Refused { used });
    pending(&place).store(0, SeqCst);
    assert_eq!(place.sum(), 5);
}
