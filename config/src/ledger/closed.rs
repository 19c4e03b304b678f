//! Maps device numbers of a process whose ledger was unusable to the numbers in the ledger file.
//! Touches: one page of this process's own memory.
//! Law: a process's number for a device never changes, whatever number the file uses when it is
//! usable again.

use super::protocol::header::Header;
use super::protocol::layout::{DEVICES, Device};
use super::protocol::private::Private;
use crate::words::device::DeviceUuid;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::SeqCst;

/// This process's devices, each with its number in the file, plus one. Zero: it has no number
/// there.
pub(super) struct DeviceNumbers {
    header: Header,
    in_file: [AtomicU8; DEVICES],
}

static NUMBERS: DeviceNumbers = DeviceNumbers {
    header: Header::empty(),
    in_file: [const { AtomicU8::new(0) }; DEVICES],
};

/// The state of a process without a page for it. Nothing is granted to it, so the state never
/// changes.
static NO_PAGE: Private = Private::empty();

/// The header of a ledger that cannot be used.
pub(super) fn header() -> &'static Header {
    &NUMBERS.header
}

pub(super) fn no_page() -> &'static Private {
    &NO_PAGE
}

/// The devices of a process whose ledger was unusable. `None` if the process uses the file's
/// numbers.
pub(super) fn numbers(file: &Header) -> Option<&'static DeviceNumbers> {
    let known = |number: u8| NUMBERS.header.uuid(Device(number));
    let mut numbers = 0u8..;
    let mut any = None;
    while let Some((number, uuid)) = numbers.next().and_then(|n| Some((n, known(n)?))) {
        NUMBERS.place(Device(number), file.device(&uuid));
        any = Some(&NUMBERS);
    }
    any
}

impl DeviceNumbers {
    fn place(&self, device: Device, in_file: Option<Device>) {
        let number = in_file.map_or(0, |device| device.0.saturating_add(1));
        if let Some(place) = self.in_file.get(usize::from(device.0)) {
            place.store(number, SeqCst);
        }
    }

    /// Returns this process's number for a device.
    pub(super) fn device(&self, uuid: &DeviceUuid, file: &Header) -> Option<Device> {
        let device = self.header.device(uuid)?;
        self.place(device, file.device(uuid));
        Some(device)
    }

    /// Returns the number of a device in the ledger file.
    pub(super) fn in_file(&self, device: Device) -> Device {
        let place = self.in_file.get(usize::from(device.0));
        let number = place.and_then(|place| place.load(SeqCst).checked_sub(1));
        number.map_or(Device::UNLISTED, Device)
    }
}
