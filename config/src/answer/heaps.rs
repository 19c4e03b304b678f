//! Divides the view of a device among the memory heaps by which Vulkan reports it.
//! Touches: its arguments.
//! Law: usage <= budget <= size in every heap, and no budget is 0. The sizes of the heaps add up to
//! TOTAL, and the budgets less the usages to FREE.
//!
//! Programs compute budget - usage of each heap without looking for an overflow, and add up all
//! heaps of the device. So the sums must be right, whatever heap a program has used.

use crate::answer::view::MemoryView;
use crate::words::units::Bytes;

/// One heap. `size` is the driver's before, and the slice's after [`divide`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heap {
    /// The size of the heap.
    pub size: Bytes,
    /// The memory that this process can hold in it, including what it holds.
    pub budget: Bytes,
    /// The memory that this process holds in it.
    pub usage: Bytes,
}

/// The least budget of a heap. Vulkan forbids 0.
const LEAST: Bytes = Bytes::new(4 << 10);
/// The part of TOTAL that a heap may have beside the largest one.
const SMALL: u64 = 16;

/// Divides a view among all heaps of a device. `own` is the memory that this process holds.
///
/// The largest heap has all but small shares of the others, and is filled first. A heap that gets
/// nothing is reported as a page that is in use.
pub fn divide(view: &MemoryView, own: Bytes, heaps: &mut [Heap]) {
    let Some(largest) = largest(heaps) else {
        return;
    };
    let small = Bytes::new(view.total.get() / SMALL);
    let mut rest = view.total;
    for (place, heap) in heaps.iter_mut().enumerate() {
        if place != largest {
            heap.size = heap.size.at_most(small).at_least(LEAST);
            rest = rest.minus(heap.size);
        }
    }
    if let Some(heap) = heaps.get_mut(largest) {
        heap.size = rest.at_least(LEAST);
    }
    let mut own = own.at_most(view.used);
    let mut free = view.free;
    for_each(heaps, largest, |heap| {
        (heap.usage, heap.budget) = (Bytes::ZERO, Bytes::ZERO);
        if free > Bytes::ZERO {
            heap.budget = take(&mut free, LEAST);
        } else {
            // A page of this process's memory, or else one that it does not have.
            take(&mut own, LEAST);
            (heap.usage, heap.budget) = (LEAST, LEAST);
        }
    });
    for_each(heaps, largest, |heap| {
        let used = take(&mut own, heap.size.minus(heap.budget));
        heap.usage = heap.usage.plus(used);
        heap.budget = heap.budget.plus(used);
    });
    for_each(heaps, largest, |heap| {
        let more = take(&mut free, heap.size.minus(heap.budget));
        heap.budget = heap.budget.plus(more);
    });
}

/// A heap that is not the device's own, although the device shares its memory: it shows no more than
/// the view.
pub fn bound(view: &MemoryView, own: Bytes, heap: &mut Heap) {
    let own = own.at_most(view.used);
    heap.size = heap.size.at_most(view.total).at_least(LEAST);
    heap.budget = heap.budget.at_most(own.plus(view.free)).at_most(heap.size);
    heap.budget = heap.budget.at_least(LEAST);
    heap.usage = heap.usage.at_most(heap.budget);
}

fn largest(heaps: &[Heap]) -> Option<usize> {
    let mut found: Option<(usize, Bytes)> = None;
    for (place, heap) in heaps.iter().enumerate() {
        if found.is_none_or(|(_, size)| heap.size > size) {
            found = Some((place, heap.size));
        }
    }
    found.map(|(place, _)| place)
}

/// Visits the largest heap first, then the others in their order.
fn for_each(heaps: &mut [Heap], largest: usize, mut visit: impl FnMut(&mut Heap)) {
    if let Some(heap) = heaps.get_mut(largest) {
        visit(heap);
    }
    for (place, heap) in heaps.iter_mut().enumerate() {
        if place != largest {
            visit(heap);
        }
    }
}

/// Takes up to `most` from an amount.
fn take(from: &mut Bytes, most: Bytes) -> Bytes {
    let taken = from.at_most(most);
    *from = from.minus(taken);
    taken
}

#[cfg(test)]
mod tests {
    use super::{Heap, LEAST, bound, divide};
    use crate::answer::view::MemoryView;
    use crate::words::units::Bytes;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn sum(heaps: &[Heap], of: impl Fn(&Heap) -> Bytes) -> Bytes {
        heaps
            .iter()
            .fold(Bytes::ZERO, |sum, heap| sum.plus(of(heap)))
    }

    proptest! {
        #[test]
        fn heaps_keep_vulkans_rules_and_add_up_to_the_view(
            total in (1u64 << 20)..(1 << 40),
            used in 0.0..=1.0f64,
            own in 0.0..=1.0f64,
            sizes in proptest::collection::vec((1u64 << 16)..(1 << 40), 1..16),
        ) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "any part of the total")]
            let part = |of: u64, by: f64| (of as f64 * by) as u64;
            let used = part(total, used).min(total);
            let own = Bytes::new(part(used, own).min(used));
            let view = MemoryView {
                total: Bytes::new(total),
                free: Bytes::new(total).minus(Bytes::new(used)),
                used: Bytes::new(used),
            };
            let mut heaps: Vec<Heap> = sizes
                .iter()
                .map(|size| Heap { size: Bytes::new(*size), ..Heap::default() })
                .collect();
            divide(&view, own, &mut heaps);
            for heap in &heaps {
                prop_assert!(heap.usage <= heap.budget && heap.budget <= heap.size, "{heaps:?}");
                prop_assert!(heap.budget > Bytes::ZERO, "{heaps:?}");
            }
            prop_assert_eq!(sum(&heaps, |heap| heap.size), view.total);
            prop_assert_eq!(sum(&heaps, |heap| heap.budget.minus(heap.usage)), view.free);
            // The usage is this process's, but for heaps that would have no budget.
            let shown = sum(&heaps, |heap| heap.usage);
            let pages = Bytes::new(LEAST.get().saturating_mul(heaps.len() as u64));
            prop_assert!(shown >= own && shown <= own.plus(pages), "{heaps:?}");
        }
    }

    fn heap(size: Bytes, budget: Bytes, usage: Bytes) -> Heap {
        Heap {
            size,
            budget,
            usage,
        }
    }

    const EIGHT: MemoryView = MemoryView {
        total: Bytes::gib(8),
        free: Bytes::gib(6),
        used: Bytes::gib(2),
    };

    #[test]
    fn the_largest_heap_has_all_but_small_shares_of_the_others() {
        let of = |size| heap(size, Bytes::ZERO, Bytes::ZERO);
        let (small, medium, large) = (Bytes::mib(256), Bytes::gib(12), Bytes::gib(24));
        let mut heaps = [of(small), of(large), of(medium)];
        divide(&EIGHT, Bytes::gib(1), &mut heaps);
        let size = Bytes::mib((8 << 10) - 256 - 512);
        let budget = Bytes::gib(7).minus(LEAST).minus(LEAST);
        let expected = [
            heap(small, LEAST, Bytes::ZERO),
            heap(size, budget, Bytes::gib(1)),
            heap(Bytes::mib(512), LEAST, Bytes::ZERO),
        ];
        assert_eq!(heaps, expected);
    }

    #[test]
    fn of_two_heaps_of_one_size_the_first_is_the_largest() {
        let of = |size| heap(size, Bytes::ZERO, Bytes::ZERO);
        let mut heaps = [of(Bytes::gib(24)), of(Bytes::gib(24))];
        divide(&EIGHT, Bytes::gib(1), &mut heaps);
        let sizes = heaps.map(|heap| heap.size);
        assert_eq!(sizes, [Bytes::mib((8 << 10) - 512), Bytes::mib(512)]);
    }

    #[test]
    fn a_heap_of_the_host_shows_no_more_than_the_view() {
        let bounded = |view: &MemoryView, mut heap: Heap| {
            bound(view, Bytes::gib(1), &mut heap);
            heap
        };
        let (own, all) = (Bytes::gib(3), Bytes::gib(90));
        let of_host = heap(Bytes::gib(100), all, own);
        let expected = heap(EIGHT.total, Bytes::gib(7), own);
        assert_eq!(bounded(&EIGHT, of_host), expected);
        let small = heap(Bytes::gib(2), Bytes::gib(1), own);
        let expected = heap(small.size, small.budget, small.budget);
        assert_eq!(bounded(&EIGHT, small), expected);
        let nothing = MemoryView {
            total: Bytes::ZERO,
            free: Bytes::ZERO,
            used: Bytes::ZERO,
        };
        assert_eq!(bounded(&nothing, of_host), heap(LEAST, LEAST, LEAST));
    }

    #[test]
    fn a_slice_of_nothing_has_no_budget_of_zero() {
        let nothing = MemoryView {
            total: Bytes::ZERO,
            free: Bytes::ZERO,
            used: Bytes::ZERO,
        };
        let mut heaps = [Heap {
            size: Bytes::new(1 << 30),
            ..Heap::default()
        }; 3];
        divide(&nothing, Bytes::ZERO, &mut heaps);
        let page = Heap {
            size: LEAST,
            budget: LEAST,
            usage: LEAST,
        };
        assert_eq!(heaps, [page; 3]);
    }
}
