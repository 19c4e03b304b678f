//! The devices that a slice lists, and changes of their limits.
//! Touches: its arguments.

use super::*;

fn listed(uuid: &str, memory: Option<Bytes>) -> ListedDevice {
    ListedDevice {
        uuid: uuid.parse().unwrap(),
        memory,
        headroom: None,
        integrated: None,
        driver_limit: None,
        driver_backstop: false,
    }
}

#[test]
fn a_slice_lists_each_device_once() {
    let mut slice = Slice::default();
    let (one, two) = (listed(UUID, None), listed(OTHER, None));
    assert_eq!(slice.list(one), Ok(()));
    assert_eq!(slice.list(two), Ok(()));
    assert_eq!(
        slice.list(one),
        Err(SliceFault::TwiceListed(Text::new(UUID)))
    );
    assert!(slice.devices().eq(&[one, two]));
}

#[test]
fn a_new_limit_is_that_of_one_listed_device() {
    let mut slice = Slice::default();
    let (one, two) = (
        listed(UUID, Some(Bytes::gib(4))),
        listed(OTHER, Some(Bytes::gib(6))),
    );
    slice.list(one).unwrap();
    slice.list(two).unwrap();
    slice.set_limit(two.uuid, Bytes::gib(5));
    slice.set_driver_limit(two.uuid, Some(DriverLimit::Dmem));
    let changed = ListedDevice {
        memory: Some(Bytes::gib(5)),
        driver_limit: Some(DriverLimit::Dmem),
        ..two
    };
    assert!(slice.devices().eq(&[one, changed]));
}

#[test]
fn a_new_limit_of_a_device_without_an_entry_is_listed() {
    let mut slice = Slice {
        memory: Some(Bytes::gib(8)),
        ..Slice::default()
    };
    let device = listed(UUID, Some(Bytes::gib(5)));
    slice.set_limit(device.uuid, Bytes::gib(5));
    assert!(slice.devices().eq(&[device]));
    let other = slice.device(OTHER.parse().unwrap()).unwrap();
    assert_eq!(other.memory, Bytes::gib(8));
}

#[test]
fn a_device_that_the_slice_does_not_limit_gets_no_limit() {
    let mut slice = Slice::default();
    slice.set_limit(UUID.parse().unwrap(), Bytes::gib(5));
    slice.set_driver_limit(UUID.parse().unwrap(), Some(DriverLimit::Misc));
    assert_eq!(slice, Slice::default());
}

#[test]
fn a_slice_limits_all_devices_or_those_that_it_lists() {
    assert!(!Slice::default().limits_something());
    let all = Slice {
        memory: Some(Bytes::gib(8)),
        ..Slice::default()
    };
    assert!(all.limits_something());
    let mut one = Slice::default();
    one.list(listed(UUID, Some(Bytes::gib(8)))).unwrap();
    assert!(one.limits_something());
}

#[test]
fn a_limit_may_equal_the_maximum_and_not_exceed_it() {
    for (maximum, fits) in [(1023, false), (1024, true), (1025, true)] {
        let all = format!(r#"{{"version":1,"memory":1024,"maximum":{maximum}}}"#);
        let one = format!(
            r#"{{"version":1,"maximum":{maximum},"devices":[{{"uuid":"{UUID}","memory":1024}}]}}"#
        );
        for text in [all, one] {
            let fault = parse(text.as_bytes()).err().map(|error| error.fault);
            assert_eq!(fault, (!fits).then_some(SliceFault::Maximum), "{text}");
        }
    }
}
