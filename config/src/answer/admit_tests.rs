//! Tests that `view` and `admit` agree (law 1).

use super::*;
use crate::answer::view::{DriverMemory, Host, Pressed};
use crate::host::meminfo::HostMemory;
use crate::slice::Total;
use proptest::prelude::*;

fn slice_of(memory: Bytes) -> DeviceSlice {
    DeviceSlice {
        memory,
        headroom: Bytes::ZERO,
        total: Total::Slice,
        maximum: None,
        integrated: None,
    }
}

const FACTS: Facts = Facts {
    driver: DriverMemory {
        total: Bytes::gib(24),
        free: Bytes::gib(20),
    },
    own_use: Some(Bytes::gib(1)),
    host: None,
};

#[test]
fn a_refusal_says_what_was_free_and_how_much_was_missing() {
    let refusal = admit(&FACTS, Some(&slice_of(Bytes::gib(8))), Bytes::gib(9));
    let (free, short_by) = (Bytes::gib(7), Bytes::gib(2));
    let host = None;
    let expected = Refusal {
        free,
        short_by,
        host,
    };
    assert_eq!(refusal, Err(expected));
}

#[test]
fn headroom_is_there_for_who_asks_for_more_than_is_shown() {
    let slice = DeviceSlice {
        headroom: Bytes::gib(1),
        ..slice_of(Bytes::gib(8))
    };
    assert_eq!(view(&FACTS, Some(&slice)).free, Bytes::gib(6));
    assert_eq!(admit(&FACTS, Some(&slice), Bytes::gib(7)), Ok(()));
    let byte = Bytes::new(1);
    assert!(admit(&FACTS, Some(&slice), Bytes::gib(7).plus(byte)).is_err());
}

#[test]
fn without_a_slice_the_driver_decides() {
    assert_eq!(admit(&FACTS, None, Bytes::MAX), Ok(()));
}

#[test]
fn a_slice_that_only_counts_has_no_limit() {
    let slice = slice_of(Bytes::gib(8));
    assert_eq!(claim_limit(&slice, Bytes::ZERO, true), Bytes::gib(8));
    assert_eq!(claim_limit(&slice, Bytes::gib(1), false), Bytes::MAX);
}

#[test]
fn under_pressure_large_requests_leave_twice_the_host_reserve() {
    let host = Host {
        memory: HostMemory {
            total: Bytes::gib(121),
            free: Bytes::gib(1),
            available: Bytes::gib(20),
        },
        reserve: Some(Bytes::gib(8)),
        others_unused: Bytes::ZERO,
        pressed: Some(Pressed {
            keeps: Bytes::gib(16),
            beyond: Bytes::mib(64),
        }),
    };
    let facts = Facts {
        driver: DriverMemory {
            total: Bytes::gib(121),
            free: Bytes::gib(1),
        },
        own_use: Some(Bytes::gib(30)),
        host: Some(host),
    };
    let slice = slice_of(Bytes::gib(40));
    assert_eq!(view(&facts, Some(&slice)).free, Bytes::gib(4));
    assert_eq!(admit(&facts, Some(&slice), Bytes::gib(4)), Ok(()));
    let refusal = admit(&facts, Some(&slice), Bytes::gib(5));
    assert_eq!(refusal.map_err(|refusal| refusal.host), Err(facts.host));
    // The slice refuses a request beyond its own limit, even if the host has more memory.
    let idle = Host {
        pressed: None,
        memory: HostMemory {
            available: Bytes::gib(100),
            ..host.memory
        },
        ..host
    };
    let facts_of_idle = Facts {
        host: Some(idle),
        ..facts
    };
    let refusal = admit(&facts_of_idle, Some(&slice), Bytes::gib(11));
    assert_eq!(refusal.map_err(|refusal| refusal.host), Err(None));
    let eaten = HostMemory {
        available: Bytes::gib(10),
        ..host.memory
    };
    let facts = Facts {
        host: Some(Host {
            memory: eaten,
            ..host
        }),
        ..facts
    };
    assert_eq!(view(&facts, Some(&slice)).free, Bytes::ZERO);
    assert_eq!(admit(&facts, Some(&slice), Bytes::mib(64)), Ok(()));
    assert!(admit(&facts, Some(&slice), Bytes::mib(65)).is_err());
}

#[test]
fn a_slice_that_is_full_before_the_host_is_refused_by_its_own_limit() {
    let refused_by = |available| {
        let host = Host {
            memory: HostMemory {
                total: Bytes::gib(121),
                free: Bytes::gib(1),
                available: Bytes::gib(available),
            },
            reserve: Some(Bytes::gib(8)),
            others_unused: Bytes::ZERO,
            pressed: None,
        };
        let driver = DriverMemory {
            total: Bytes::gib(121),
            free: Bytes::gib(1),
        };
        let facts = Facts {
            driver,
            own_use: Some(Bytes::gib(30)),
            host: Some(host),
        };
        let refusal = admit(&facts, Some(&slice_of(Bytes::gib(40))), Bytes::gib(11));
        refusal.unwrap_err().host.is_some()
    };
    // The slice has 10 GiB left, and the host keeps 8 GiB.
    assert_eq!([17, 18, 19].map(refused_by), [true, false, false]);
}

#[test]
fn what_is_known_of_the_host_a_moment_ago_decides_only_far_from_the_end() {
    let host = Host {
        memory: HostMemory {
            total: Bytes::gib(121),
            free: Bytes::ZERO,
            available: Bytes::gib(20),
        },
        reserve: Some(Bytes::gib(8)),
        others_unused: Bytes::gib(2),
        pressed: None,
    };
    let facts = Facts {
        driver: DriverMemory {
            total: Bytes::gib(121),
            free: Bytes::ZERO,
        },
        own_use: None,
        host: Some(host),
    };
    assert!(leaves_margin(&facts, Bytes::gib(9)));
    assert!(!leaves_margin(&facts, Bytes::gib(10)));
    assert!(!leaves_margin(
        &Facts {
            host: None,
            ..facts
        },
        Bytes::ZERO
    ));
}

prop_compose! {
    fn any_facts()(
        total in 0u64.., free in 0u64.., own in proptest::option::of(0u64..),
        host in proptest::option::of((0u64.., 0u64.., 0u64.., proptest::option::of(0u64..), 0u64..)),
        pressed in proptest::option::of((0u64.., 0u64..)),
    ) -> Facts {
        Facts {
            driver: DriverMemory { total: Bytes::new(total), free: Bytes::new(free) },
            own_use: own.map(Bytes::new),
            host: host.map(|(total, free, available, reserve, others)| Host {
                memory: HostMemory {
                    total: Bytes::new(total),
                    free: Bytes::new(free),
                    available: Bytes::new(available),
                },
                reserve: reserve.map(Bytes::new),
                others_unused: Bytes::new(others),
                pressed: pressed.map(|(keeps, beyond)| Pressed {
                    keeps: Bytes::new(keeps),
                    beyond: Bytes::new(beyond),
                }),
            }),
        }
    }
}

prop_compose! {
    fn any_slice()(memory in 1u64.., headroom in 0u64.., device in any::<bool>()) -> DeviceSlice {
        DeviceSlice {
            memory: Bytes::new(memory),
            headroom: Bytes::new(headroom),
            total: if device { Total::Device } else { Total::Slice },
            maximum: None,
            integrated: None,
        }
    }
}

proptest! {
    #[test]
    fn what_is_shown_as_free_is_granted(facts in any_facts(), slice in any_slice()) {
        let free = view(&facts, Some(&slice)).free;
        prop_assert_eq!(admit(&facts, Some(&slice), free), Ok(()));
    }

    #[test]
    fn one_byte_more_than_is_shown_is_refused(facts in any_facts(), slice in any_slice()) {
        let slice = DeviceSlice { headroom: Bytes::ZERO, ..slice };
        let free = view(&facts, Some(&slice)).free;
        prop_assume!(free < Bytes::MAX);
        // A small request may use memory that pressure keeps from other requests.
        let pressed = facts.host.and_then(|host| host.pressed);
        prop_assume!(pressed.is_none_or(|pressed| free >= pressed.beyond));
        let one = Bytes::new(1);
        let refusal = admit(&facts, Some(&slice), free.plus(one));
        let refusal = refusal.map_err(|refusal| (refusal.free, refusal.short_by));
        prop_assert_eq!(refusal, Err((free, one)));
    }

    #[test]
    fn a_grant_never_takes_the_slice_over_its_limit(
        facts in any_facts(), slice in any_slice(), request in 0u64..,
    ) {
        let request = Bytes::new(request);
        if let (Some(own), Ok(())) = (facts.own_use, admit(&facts, Some(&slice), request)) {
            prop_assert!(request <= claim_limit(&slice, Bytes::ZERO, true).minus(own));
        }
    }
}
