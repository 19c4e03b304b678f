//! The laws of `view`, and worked numbers.

use super::*;
use proptest::prelude::*;

const CARD: DriverMemory = DriverMemory {
    total: Bytes::mib(24_260),
    free: Bytes::mib(24_000),
};

fn slice_of(memory: Bytes) -> DeviceSlice {
    DeviceSlice {
        memory,
        headroom: Bytes::ZERO,
        total: Total::Slice,
        maximum: None,
        integrated: None,
    }
}

fn discrete(own_use: Option<Bytes>) -> Facts {
    Facts {
        driver: CARD,
        own_use,
        host: None,
    }
}

fn spark(own_use: Option<Bytes>, available: Bytes) -> Facts {
    let total = Bytes::kib(127_600_748);
    Facts {
        driver: DriverMemory {
            total,
            free: Bytes::gib(41),
        },
        own_use,
        host: Some(Host {
            memory: HostMemory {
                total,
                free: Bytes::gib(41),
                available,
            },
            reserve: Some(Bytes::gib(8)),
            others_unused: Bytes::ZERO,
            pressed: None,
        }),
    }
}

#[test]
fn without_a_slice_the_answer_is_the_drivers() {
    assert_eq!(
        view(&discrete(None), None),
        MemoryView {
            total: CARD.total,
            free: CARD.free,
            used: Bytes::mib(260),
        }
    );
}

#[test]
fn nvmls_numbers_are_cudas_without_what_is_reserved() {
    let nvml = DriverMemory::of_nvml(Bytes::mib(24_576), Bytes::mib(316), Bytes::mib(24_000));
    assert_eq!(nvml, CARD);
    let more = DriverMemory::of_nvml(Bytes::mib(1), Bytes::mib(2), Bytes::ZERO);
    assert_eq!(more.total, Bytes::ZERO);
}

#[test]
fn a_device_has_no_more_than_the_host_that_it_shares() {
    let host = Bytes::gib(8);
    let within = CARD.within(host);
    assert_eq!((within.total, within.free), (host, host));
    assert_eq!(CARD.within(Bytes::gib(64)), CARD);
}

#[test]
fn of_two_limits_the_smaller_counts() {
    let slice = slice_of(Bytes::gib(8));
    assert_eq!(limit(Bytes::gib(6), &slice), Bytes::gib(6));
    assert_eq!(limit(Bytes::MAX, &slice), Bytes::gib(8));
}

#[test]
fn a_slice_of_eight_is_a_card_of_eight() {
    assert_eq!(
        view(&discrete(None), Some(&slice_of(Bytes::gib(8)))),
        MemoryView {
            total: Bytes::gib(8),
            free: Bytes::gib(8).minus(Bytes::mib(260)),
            used: Bytes::mib(260),
        }
    );
}

#[test]
fn a_full_card_is_not_promised_even_to_an_empty_slice() {
    let facts = Facts {
        driver: DriverMemory {
            total: Bytes::gib(24),
            free: Bytes::gib(1),
        },
        ..discrete(Some(Bytes::ZERO))
    };
    let answer = view(&facts, Some(&slice_of(Bytes::gib(4))));
    assert_eq!(
        answer,
        MemoryView {
            total: Bytes::gib(4),
            free: Bytes::gib(1),
            used: Bytes::gib(3),
        }
    );
}

#[test]
fn a_limit_above_the_card_shows_the_card() {
    let answer = view(&discrete(None), Some(&slice_of(Bytes::gib(80))));
    assert_eq!(answer, view(&discrete(None), None));
}

#[test]
fn more_used_than_the_limit_is_no_memory_and_no_wrap() {
    let answer = view(
        &discrete(Some(Bytes::gib(9))),
        Some(&slice_of(Bytes::gib(8))),
    );
    assert_eq!(
        answer,
        MemoryView {
            total: Bytes::gib(8),
            free: Bytes::ZERO,
            used: Bytes::gib(8),
        }
    );
}

#[test]
fn headroom_makes_the_card_smaller_and_total_device_leaves_it() {
    let slice = DeviceSlice {
        headroom: Bytes::mib(256),
        ..slice_of(Bytes::gib(8))
    };
    let facts = discrete(Some(Bytes::ZERO));
    assert_eq!(view(&facts, Some(&slice)).total, Bytes::mib(8192 - 256));
    let device = DeviceSlice {
        total: Total::Device,
        ..slice
    };
    assert_eq!(
        view(&facts, Some(&device)),
        MemoryView {
            total: CARD.total,
            free: Bytes::mib(8192 - 256),
            used: CARD.total.minus(Bytes::mib(8192 - 256)),
        }
    );
}

#[test]
fn the_maximum_is_the_total_and_free_follows_the_limit() {
    let slice = DeviceSlice {
        maximum: Some(Bytes::gib(16)),
        headroom: Bytes::mib(256),
        ..slice_of(Bytes::gib(8))
    };
    let facts = discrete(Some(Bytes::gib(1)));
    let answer = view(&facts, Some(&slice));
    let free = Bytes::mib((7 << 10) - 256);
    let total = Bytes::mib((16 << 10) - 256);
    let used = total.minus(free);
    assert_eq!(answer, MemoryView { total, free, used });
    // The card may have less, and a limit that is larger all the same is shown.
    let beyond = DeviceSlice {
        maximum: Some(Bytes::gib(200)),
        ..slice
    };
    assert_eq!(view(&facts, Some(&beyond)).total, CARD.total);
    let smaller = DeviceSlice {
        maximum: Some(Bytes::gib(4)),
        ..slice
    };
    assert_eq!(view(&facts, Some(&smaller)).total, Bytes::mib(8192 - 256));
}

#[test]
fn sixty_gibibytes_of_page_cache_do_not_move_a_spark() {
    // MemFree fell to 41 GiB; MemAvailable did not.
    let answer = view(
        &spark(Some(Bytes::gib(2)), Bytes::gib(115)),
        Some(&slice_of(Bytes::gib(40))),
    );
    assert_eq!(
        answer,
        MemoryView {
            total: Bytes::gib(40),
            free: Bytes::gib(38),
            used: Bytes::gib(2),
        }
    );
}

#[test]
fn without_a_slice_page_cache_is_not_used_and_the_reserve_is_kept() {
    let facts = spark(None, Bytes::gib(115));
    let answer = view(&facts, None);
    let reserve = facts.host.unwrap().reserve();
    assert_eq!(answer.total, facts.driver.total);
    assert_eq!(answer.free, Bytes::gib(115).minus(reserve));
}

#[test]
fn three_engines_are_promised_what_they_were_admitted_for() {
    // The second example of the facts at t1: slice #2 has taken 20 GiB, slice #3 10 GiB, and the
    // page cache 60 GiB.
    let hundredths = |amount: u64| Bytes::mib(amount * 1024 / 100);
    let promises = [(4259, 0), (3651, 2000), (2434, 1000)];
    for (which, (budget, own)) in promises.into_iter().enumerate() {
        let others = promises
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != which);
        let unused = others.map(|(_, (budget, own))| budget - own).sum();
        let facts = spark(Some(hundredths(own)), hundredths(8565));
        let host = facts.host.map(|host| Host {
            others_unused: hundredths(unused),
            reserve: Some(Bytes::gib(8)),
            ..host
        });
        let facts = Facts { host, ..facts };
        let unspent = hundredths(budget).minus(hundredths(own));
        assert_eq!(
            view(&facts, Some(&slice_of(hundredths(budget)))).free,
            unspent
        );
        // Stray programs take 6 GiB: each slice loses the part of it over the slack of 4.21 GiB.
        let memory = HostMemory {
            available: hundredths(7965),
            ..host.unwrap().memory
        };
        let host = host.map(|host| Host { memory, ..host });
        let free = view(
            &Facts { host, ..facts },
            Some(&slice_of(hundredths(budget))),
        )
        .free;
        let lost = unspent.minus(free);
        assert!(
            lost.get().abs_diff(hundredths(179).get()) < 20 << 20,
            "{lost}"
        );
    }
}

#[test]
fn a_copy_of_meminfo_or_a_part_of_a_machine_is_not_taken_for_its_memory() {
    let total = Bytes::kib(127_600_748);
    assert!(is_the_hosts(total, total));
    assert!(is_the_hosts(Bytes::gib(119), total));
    assert!(!is_the_hosts(Bytes::gib(48), total));
    assert!(!is_the_hosts(total, Bytes::gib(48)));
    assert!(!is_the_hosts(Bytes::gib(96), Bytes::gib(576)));
}

#[test]
fn a_host_that_is_eaten_from_outside_is_not_promised() {
    let answer = view(
        &spark(Some(Bytes::ZERO), Bytes::gib(20)),
        Some(&slice_of(Bytes::gib(40))),
    );
    assert_eq!(answer.free, Bytes::gib(12));
}

prop_compose! {
    fn any_facts()(
        total in 0u64.., free in 0u64.., own in proptest::option::of(0u64..),
        host in proptest::option::of((0u64.., 0u64.., 0u64.., proptest::option::of(0u64..), 0u64..)),
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
                pressed: None,
            }),
        }
    }
}

prop_compose! {
    fn any_slice()(
        memory in 1u64.., headroom in 0u64.., device in any::<bool>(),
        maximum in proptest::option::of(1u64..),
    ) -> DeviceSlice {
        DeviceSlice {
            memory: Bytes::new(memory),
            headroom: Bytes::new(headroom),
            total: if device { Total::Device } else { Total::Slice },
            maximum: maximum.map(Bytes::new),
            integrated: None,
        }
    }
}

proptest! {
    #[test]
    fn total_is_used_plus_free_and_never_more_than_the_driver_has(
        facts in any_facts(), slice in proptest::option::of(any_slice()),
    ) {
        let answer = view(&facts, slice.as_ref());
        prop_assert_eq!(answer.used.plus(answer.free), answer.total);
        prop_assert!(answer.total <= facts.driver.total);
        if facts.host.is_none() {
            prop_assert!(answer.free <= facts.driver.free);
        }
    }

    #[test]
    fn never_promises_more_than_the_limit(facts in any_facts(), slice in any_slice()) {
        let answer = view(&facts, Some(&slice));
        let own = facts.own_use.unwrap_or(Bytes::ZERO);
        prop_assert!(answer.free <= slice.memory.minus(own));
        if slice.total == Total::Slice {
            let maximum = slice.maximum.unwrap_or(Bytes::ZERO);
            prop_assert!(answer.total <= slice.memory.at_least(maximum));
        }
    }

    #[test]
    fn a_neighbour_moves_free_only_when_the_device_itself_runs_short(
        own in 0u64..(8 << 30), taken in 0u64..(12 << 30),
    ) {
        let slice = slice_of(Bytes::gib(8));
        let idle = discrete(Some(Bytes::new(own)));
        let busy = Facts {
            driver: DriverMemory { free: idle.driver.free.minus(Bytes::new(taken)), ..CARD },
            ..idle
        };
        let unspent = Bytes::gib(8).minus(Bytes::new(own));
        if busy.driver.free >= unspent {
            prop_assert_eq!(view(&busy, Some(&slice)), view(&idle, Some(&slice)));
        }
    }
}
