//! The order in which claims are written, and the claims that have to wait.

use super::*;
use crate::report::measured::Measured;
use gpuslice_config::words::units::Bytes;

const EVERY: Duration = Duration::from_secs(30);

fn status(used: u64) -> Status {
    let share = PreparedShare {
        slice: "s".to_owned(),
        id: None,
        uuid: "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4".parse().unwrap(),
        memory: Bytes::gib(8),
    };
    let measured = Measured {
        limit: Bytes::gib(8),
        used: Some(Bytes::gib(used)),
        refused: Some(0),
        fence: Some("preload"),
        without: None,
    };
    Status::of(&share, Some(&measured), None, "2026-11-25T10:00:00Z")
}

/// Whether a claim that was written so many seconds ago is due.
fn due(written: &[u64], seen: &[u64], age: Option<u64>) -> bool {
    let [written, seen] = [written, seen].map(|all| all.iter().copied().map(status).collect());
    let at = age.and_then(|age| Instant::now().checked_sub(Duration::from_secs(age)));
    let known = Known {
        is_read: true,
        written,
        seen,
        at,
        ..Known::default()
    };
    is_due(&known, EVERY)
}

#[test]
fn a_claim_is_written_at_most_once_in_the_given_time_and_only_with_news() {
    assert!(due(&[], &[1], None));
    assert!(!due(&[1], &[1], Some(100_000)));
    assert!(!due(&[1], &[7], Some(29)) && due(&[1], &[7], Some(31)));
    // An eighth of the limit is little news.
    assert!(!due(&[1], &[2], Some(599)) && due(&[1], &[2], Some(601)));
    assert!(due(&[1], &[1, 1], Some(31)));
}

fn claim(number: u32) -> PreparedClaim {
    PreparedClaim {
        uid: format!("00000000-0000-4000-8000-{number:012}")
            .parse()
            .unwrap(),
        namespace: "team".to_owned(),
        name: format!("c{number}"),
        shares: Vec::new(),
    }
}

#[test]
fn busy_claims_leave_requests_for_the_others() {
    let claims: Vec<PreparedClaim> = (0..50).map(claim).collect();
    let mut known: BTreeMap<Uid, Known> = BTreeMap::new();
    let (mut written, start) = (BTreeMap::new(), Instant::now());
    let mut pace = Pace::new("x", INTERVAL, BURST, start);
    // An hour in which each claim has news at each look: the pace is for six of them in 30 seconds.
    for look in 0..360_u32 {
        let now = start + LATEST * look;
        for claim in in_turn(&claims, &known) {
            let known = known.entry(claim.uid.clone()).or_default();
            let is_old = known.at.is_none_or(|at| now.duration_since(at) >= EVERY);
            if is_old && pace.take(now) {
                (known.tried, known.at) = (Some(now), Some(now));
                *written.entry(claim.name.clone()).or_insert(0) += 1;
            }
        }
    }
    let counts: Vec<i32> = claims
        .iter()
        .map(|claim| written.get(&claim.name).copied().unwrap_or(0))
        .collect();
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(*least > 0 && most - least <= 1, "{counts:?}");
}

#[test]
fn a_claim_that_is_refused_waits_alone() {
    let (mut known, now) = (Known::default(), Instant::now());
    let refused = |code| ApiError::Refused {
        code,
        reason: String::new(),
        message: "denied by a policy".to_owned(),
    };
    let one = claim(1);
    known.note_failed(&one, &ApiError::TimedOut, now);
    assert!(known.may_ask(now));
    known.note_failed(&one, &refused(503), now);
    assert!(!known.may_ask(now) && known.may_ask(now + BUSY));
    known.note_failed(&one, &refused(403), now);
    assert!(!known.may_ask(now + BUSY) && known.may_ask(now + REFUSED));
}
