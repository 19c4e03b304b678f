//! The statuses of shares, and which of them are worth a request.

use super::*;

const CARD: &str = "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";
const SHARE: &str = "a3c1de52-7c1e-4f6a-9d53-6f0e2b8f1c01";
const NOW: &str = "2026-11-25T10:00:00Z";
const LATER: &str = "2026-11-25T11:00:00Z";

fn share() -> PreparedShare {
    PreparedShare {
        slice: format!("uid-{SHARE}"),
        id: Some(SHARE.parse().unwrap()),
        uuid: CARD.parse().unwrap(),
        memory: Bytes::gib(8),
    }
}

fn measured(used: u64, refused: u64) -> Measured {
    Measured {
        limit: Bytes::gib(8),
        used: Some(Bytes::new(used)),
        refused: Some(refused),
        fence: Some("preload"),
        without: None,
    }
}

fn status(used: u64, refused: u64) -> Status {
    Status::of(&share(), Some(&measured(used, refused)), None, NOW)
}

#[test]
fn a_status_is_a_condition_and_the_numbers_of_the_slice() {
    let before = status(7 << 30, 0);
    let now = Status::of(
        &share(),
        Some(&measured((2 << 30) + 1, 3)),
        Some(&before),
        LATER,
    );
    let expected = json!({
        "driver": "gpuslice.io",
        "pool": "node1",
        "device": CARD.to_lowercase(),
        "shareID": SHARE,
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "InForce",
            "message": "libgpuslice.so refuses memory beyond the limit",
            "lastTransitionTime": NOW,
        }],
        "data": {
            "apiVersion": "gpuslice.io/v1", "kind": "SliceStatus", "limit": "8Gi",
            "used": "2049Mi", "peak": "7Gi", "refused": 3, "fence": "preload",
        },
    });
    assert_eq!(now.entry("node1"), expected);
}

#[test]
fn a_status_is_read_back_as_it_was_written() {
    for written in [status(5 << 20, 2), {
        let unread = Measured {
            used: None,
            refused: None,
            fence: None,
            without: Some("container c: static".to_owned()),
            ..measured(0, 0)
        };
        Status::of(&share(), Some(&unread), None, NOW)
    }] {
        let entry = written.entry("node1");
        let read: AllocatedDeviceStatus = serde_json::from_value(entry).unwrap();
        assert_eq!(Status::read(&read), Some(written));
    }
    assert_eq!(Status::read(&AllocatedDeviceStatus::default()), None);
}

/// The next container of the claim has the claim's size again.
#[test]
fn a_limit_that_was_set_ends_with_the_containers_of_the_share() {
    let resized = Measured {
        limit: Bytes::gib(12),
        ..measured(7 << 30, 0)
    };
    let before = Status::of(&share(), Some(&resized), None, NOW);
    assert_eq!(before.limit, Bytes::gib(12));
    let idle = Status::of(&share(), None, Some(&before), LATER);
    assert_eq!(idle.limit, share().memory);
}

#[test]
fn a_share_that_no_container_uses_any_more_keeps_its_peak_and_refusals() {
    let before = status(7 << 30, 3);
    let idle = Status::of(&share(), None, Some(&before), LATER);
    assert_eq!(
        (idle.used, idle.peak),
        (Some(Bytes::ZERO), Some(Bytes::gib(7)))
    );
    assert_eq!(
        (idle.refused, idle.condition.reason.as_str()),
        (Some(3), "Idle")
    );
    // It was ready all the time.
    assert_eq!(idle.condition.since, NOW);
    let without = Measured {
        without: Some("container default/d1/c: its image is built for musl".to_owned()),
        ..measured(0, 0)
    };
    let without = Status::of(&share(), Some(&without), Some(&idle), LATER);
    let condition = &without.condition;
    assert_eq!(
        (condition.status.as_str(), condition.since.as_str()),
        ("False", LATER)
    );
}

#[test]
fn a_slice_whose_file_cannot_be_read_is_not_called_in_force() {
    let unread = Measured {
        fence: None,
        ..measured(1 << 30, 0)
    };
    let unread = Status::of(&share(), Some(&unread), Some(&status(1 << 30, 0)), LATER);
    let condition = &unread.condition;
    assert_eq!(
        (condition.status.as_str(), condition.reason.as_str()),
        ("Unknown", "Unread")
    );
    assert_eq!((condition.since.as_str(), unread.fence), (LATER, None));
}

#[test]
fn a_small_change_is_not_worth_a_request_and_a_large_one_is() {
    let base = status(4 << 30, 4);
    for (used, refused, is_much) in [
        (4 << 30, 4, false),
        (5 << 30, 4, false),
        ((5 << 30) + 1, 4, true),
        (3 << 30, 4, false),
        (2 << 30, 4, true),
        (0, 4, true),
        (4 << 30, 5, false),
        (4 << 30, 8, true),
        (4 << 30, 0, true),
    ] {
        let mut new = status(used, refused);
        new.peak = base.peak.max(new.peak);
        assert_eq!(base.differs_much(&new), is_much, "{used} {refused}");
    }
    assert!(status(0, 0).differs_much(&status(1, 0)));
    assert!(status(0, 0).differs_much(&status(0, 1)));
    let mut other = base.clone();
    other.condition.since = LATER.to_owned();
    assert!(!base.differs_much(&other));
    other.fence = Some("driver".to_owned());
    assert!(base.differs_much(&other));
}
