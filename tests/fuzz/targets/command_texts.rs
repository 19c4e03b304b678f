//! Fuzzes the texts of the command line: sizes, names, GPUs, thresholds, ages and moments. A value
//! that was read and written again is unchanged.
//! Touches: its input, the time zone.
#![no_main]

use gpuslice_config::slice::threshold::Threshold;
use gpuslice_config::words::device::{DeviceUuid, Selector};
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::clock;
use gpuslice_readers::command_line::{
    age, device_limit, headroom, limit, name, seconds, since, size,
};
use std::time::{Duration, SystemTime};

libfuzzer_sys::fuzz_target!(|text: &str| {
    sizes(text);
    if let Ok(uuid) = text.parse::<DeviceUuid>() {
        assert_eq!(uuid.to_string().parse(), Ok(uuid));
    }
    if let Some((selector, memory)) = device_limit(text) {
        let gpu = match selector {
            Selector::Index(index) => index.to_string(),
            Selector::Uuid(uuid) => uuid.to_string(),
        };
        assert_eq!(
            device_limit(&format!("{gpu}={}", memory.get())),
            Some((selector, memory))
        );
    }
    if let Some(name) = name(text) {
        assert!(!name.is_empty() && name.len() <= 128 && !name.contains(char::is_control));
    }
    let _ = text.parse::<Threshold>();
    times(text);
});

fn sizes(text: &str) {
    if let Ok(bytes) = text.parse::<Bytes>() {
        assert!(bytes > Bytes::ZERO);
        assert_eq!(bytes.get().to_string().parse(), Ok(bytes));
        let is_limit = bytes >= Bytes::mib(1) && !text.starts_with("--");
        assert_eq!(limit(text), is_limit.then_some(bytes));
        assert_eq!(
            Bytes::configured(text).ok(),
            (bytes >= Bytes::mib(1)).then_some(bytes)
        );
        assert_eq!(headroom(text).flatten(), limit(text));
        // One amount has one value in all of its units.
        if let Ok(count) = text.trim().parse::<u64>() {
            let larger = |unit: &str| format!("{count}{unit}").parse::<Bytes>().ok();
            assert_eq!(larger("KiB"), count.checked_mul(1 << 10).map(Bytes::new));
            assert_eq!(larger("M"), count.checked_mul(1 << 20).map(Bytes::new));
            assert_eq!(larger("gb"), count.checked_mul(1 << 30).map(Bytes::new));
        }
    }
    if let Some((argument, name)) = size(text) {
        assert_eq!(size(&argument), Some((argument.clone(), name.clone())));
        assert_eq!(Bytes::configured(&argument), Bytes::configured(text));
        assert!(
            name.bytes()
                .all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase())
        );
    }
}

fn times(text: &str) {
    if let Some(seconds) = seconds(text) {
        assert!(seconds > 0);
        assert_eq!(
            age(&format!("{seconds}s")),
            Some(Duration::from_secs(seconds))
        );
    }
    if let Some(age) = age(text) {
        assert_eq!(
            gpuslice_readers::command_line::age(&format!("{}s", age.as_secs())),
            Some(age)
        );
    }
    let _ = since(text);
    if let Some(time) = clock::parse(text)
        && time >= SystemTime::UNIX_EPOCH
    {
        let whole = clock::rfc3339_ms(time);
        // A time after the year 9999 cannot be written with four digits.
        if whole.len() == 24 {
            let again = clock::parse(&whole).expect("a time is read back");
            assert_eq!(clock::rfc3339_ms(again), whole);
        }
    }
}
