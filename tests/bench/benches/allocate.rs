//! What the ledger adds to an allocation and its free: alone, and with 20,000 others alive, in
//! every order in which they can be freed. Budget: 60 ns for the pair.
//! Touches: the built shim and a driver that answers at once, loaded into this process.

use gpuslice_bench::stub::{Bench, Functions};
use gpuslice_bench::{Variant, compare};
use std::collections::VecDeque;

const LIVE: usize = 20_000;

/// Which of the living is freed.
#[derive(Clone, Copy)]
enum Order {
    Oldest,
    Newest,
    Any,
}

/// Frees one and allocates one, again and again, among many that stay.
fn among_many(functions: Functions, bytes: usize, order: Order) -> impl FnMut() {
    let mut live: VecDeque<u64> = (0..LIVE).map(|_| functions.take(bytes)).collect();
    let mut random = 1u64;
    move || {
        live.push_back(functions.take(bytes));
        let gone = match order {
            Order::Oldest => live.pop_front(),
            Order::Newest => live.pop_back(),
            Order::Any => {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let place = usize::try_from(random >> 40).unwrap_or(0);
                let place = place.checked_rem(live.len()).unwrap_or(0);
                live.swap_remove_back(place)
            }
        };
        gone.into_iter()
            .for_each(|memory| functions.give_back(memory));
    }
}

fn main() {
    let bench = Bench::begin();
    let [bare, counted] = bench.functions();
    for (size, bytes) in [("2 MiB", 2 << 20), ("4 KiB", 4096)] {
        let pair = |functions: Functions| move || functions.give_back(functions.take(bytes));
        compare(
            &format!(
                "an allocation of {size} and its free, nothing else alive (budget: 60 ns added)"
            ),
            200,
            2000,
            &mut [
                Variant::new("driver", pair(bare)),
                Variant::new("counted in a slice", pair(counted)),
            ],
        );
        for (name, order) in [
            ("the oldest", Order::Oldest),
            ("the newest", Order::Newest),
            ("any", Order::Any),
        ] {
            compare(
                &format!("{LIVE} of {size} alive, {name} of them freed (budget: 60 ns added)"),
                200,
                2000,
                &mut [
                    Variant::new("driver", among_many(bare, bytes, order)),
                    Variant::new("counted in a slice", among_many(counted, bytes, order)),
                ],
            );
        }
    }
    bench.end();
}
