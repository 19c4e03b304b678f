//! The view of a slice of unified memory for an observer outside of it, who reads the slice's ledger
//! and the host, and calls no driver.
//! Touches: its arguments.
//! Law: the same functions decide as inside of the slice.

use crate::answer::view::{DriverMemory, Facts, Host, MemoryView, view};
use crate::slice::{DeviceSlice, ListedDevice, PresentAs, Slice};
use crate::words::units::Bytes;

/// The slice's device that shares the host's memory; None if it has none, or presents it as a card
/// with memory of its own.
#[must_use]
pub fn shared_device(slice: &Slice) -> Option<&ListedDevice> {
    let mut devices = slice.devices();
    let shared = devices.find(|listed| listed.integrated == Some(true));
    shared.filter(|_| slice.present_as == PresentAs::Uma)
}

/// The view of a slice's device that shares the host's memory. `budget` has the limit in force, and
/// `held` is the memory of the slice's processes, with the host memory that is charged to them; None
/// if it is not counted. `full` reads the share of time in which all processes waited for memory; it is
/// called only where that can matter.
#[must_use]
pub fn observed(
    slice: &Slice,
    budget: &DeviceSlice,
    held: Option<Bytes>,
    mut host: Host,
    full: impl FnOnce() -> Option<u32>,
) -> MemoryView {
    let everything = DriverMemory {
        total: Bytes::MAX,
        free: Bytes::MAX,
    };
    let unspent = budget.memory.minus(held.unwrap_or(Bytes::ZERO));
    let under = host.under_pressure(&slice.thresholds);
    if under.obtainable() < unspent && full().is_some_and(|full| full >= slice.thresholds.full()) {
        host = under;
    }
    view(
        &Facts::of_shared(everything, host, held, budget),
        Some(budget),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::meminfo::HostMemory;
    use crate::words::device::DeviceUuid;

    fn slice() -> (Slice, DeviceUuid) {
        let uuid = "GPU-b10aaaaa-4444-4555-8666-777788880000".parse().unwrap();
        let mut slice = Slice::default();
        let device = ListedDevice {
            uuid,
            memory: Some(Bytes::gib(40)),
            headroom: None,
            integrated: Some(true),
            driver_limit: None,
            driver_backstop: false,
        };
        slice.list(device).unwrap();
        (slice, uuid)
    }

    fn host(available: u64) -> Host {
        Host {
            memory: HostMemory {
                total: Bytes::gib(120),
                free: Bytes::ZERO,
                available: Bytes::gib(available),
            },
            reserve: Some(Bytes::gib(8)),
            others_unused: Bytes::ZERO,
            pressed: None,
        }
    }

    #[test]
    fn the_rule_of_the_slice_holds_for_an_observer() {
        let (slice, uuid) = slice();
        let budget = slice.device(uuid).unwrap();
        let free =
            |held, available, full| observed(&slice, &budget, held, host(available), || full).free;
        assert_eq!(free(Some(Bytes::gib(10)), 100, None), Bytes::gib(30));
        assert_eq!(free(Some(Bytes::gib(10)), 28, None), Bytes::gib(20));
        assert_eq!(free(Some(Bytes::gib(10)), 28, Some(499)), Bytes::gib(20));
        assert_eq!(free(Some(Bytes::gib(10)), 28, Some(500)), Bytes::gib(12));
        assert_eq!(free(Some(Bytes::MAX), 100, None), Bytes::ZERO);
        // Without a count, all memory in use is taken to be the slice's.
        assert_eq!(free(None, 100, None), Bytes::gib(20));
    }

    #[test]
    fn a_slice_that_presents_a_card_has_no_page() {
        let (mut slice, uuid) = slice();
        assert_eq!(shared_device(&slice).map(|device| device.uuid), Some(uuid));
        slice.present_as = PresentAs::Discrete;
        assert_eq!(shared_device(&slice), None);
    }

    #[test]
    fn the_pressure_is_read_only_where_it_can_change_the_view() {
        let (slice, uuid) = slice();
        let budget = slice.device(uuid).unwrap();
        let is_read = |available| {
            let mut read = false;
            let _ = observed(
                &slice,
                &budget,
                Some(Bytes::gib(10)),
                host(available),
                || {
                    read = true;
                    None
                },
            );
            read
        };
        // Under pressure, the host keeps 16 GiB, and the slice has 30 GiB left.
        assert_eq!([45, 46, 47].map(is_read), [true, false, false]);
    }
}
