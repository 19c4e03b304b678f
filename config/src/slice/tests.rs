//! The accepted and refused contents of a slice file, and the agreement of both JSON readers.

use super::*;
use proptest::prelude::*;
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

#[path = "devices_tests.rs"]
mod devices;
#[path = "terms_tests.rs"]
mod terms;

const UUID: &str = "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";

fn fault(text: &str) -> SliceFault {
    parse(text.as_bytes()).unwrap_err().fault
}

#[test]
fn a_slice_of_all_gpus_needs_two_keys() {
    let slice = parse(br#"{"version":1,"memory":8589934592}"#).unwrap();
    assert_eq!(
        slice.device(UUID.parse().unwrap()),
        Some(DeviceSlice {
            memory: Bytes::gib(8),
            headroom: Bytes::ZERO,
            total: Total::Slice,
            maximum: None,
            integrated: None,
        })
    );
}

#[test]
fn a_listed_device_has_its_own_budget_and_the_others_are_left_alone() {
    let text = format!(
        r#"{{"version":1,"total":"device","devices":[
            {{"uuid":"{UUID}","memory":1024,"headroom":24,"integrated":true}}]}}"#
    );
    let slice = parse(text.as_bytes()).unwrap();
    assert_eq!(
        slice.device(UUID.parse().unwrap()),
        Some(DeviceSlice {
            memory: Bytes::new(1024),
            headroom: Bytes::new(24),
            total: Total::Device,
            maximum: None,
            integrated: Some(true),
        })
    );
    let other = UUID.replace("GPU-1b", "GPU-2b");
    assert_eq!(slice.device(other.parse().unwrap()), None);
}

#[test]
fn what_is_wrong_is_named() {
    for (text, message) in [
        (
            "{\"version\":0}",
            "line 1: there is no version 0 of slice files (this gpuslice writes version 1)",
        ),
        ("", "line 1: not a slice file: unexpected end of the file"),
        ("{", "line 1: not a slice file: unexpected end of the file"),
        ("[]", "line 1: not a slice file: expected '{'"),
        (
            "{}",
            "line 1: no \"version\" (this gpuslice writes version 1)",
        ),
        (
            "{\"version\": 2, \"what\": 1}",
            "line 1: version 2 is newer than this gpuslice reads (1): update gpuslice here",
        ),
        (
            "{\"version\":0}",
            "line 1: there is no version 0 of slice files (this gpuslice writes version 1)",
        ),
        (
            "{\"version\":1}x",
            "line 1: not a slice file: unexpected text after the end",
        ),
        (
            "{\"version\":1,\n\"memroy\": 1}",
            "line 2: unknown key \"memroy\"",
        ),
        (
            "{\"version\":1,\"version\":1}",
            "line 1: key \"version\" occurs twice",
        ),
        ("{\"version\":1,\"memory\":0}", "line 1: \"memory\" is zero"),
        (
            "{\"version\":1,\"memory\":-1}",
            "line 1: not a slice file: expected a whole number of bytes, without quotes, decimal point or sign",
        ),
        (
            "{\"version\":1,\"memory\":\"4Gi\"}",
            "line 1: not a slice file: expected a whole number of bytes, without quotes, decimal point or sign",
        ),
        (
            "{\"version\":1,\"total\":\"card\"}",
            "line 1: \"card\" is not one of slice, device",
        ),
        (
            "{\"version\":1,\"memory\":8,\"headroom\":8}",
            "line 1: \"headroom\" is not less than \"memory\"",
        ),
        (
            "{\"version\":1,\"devices\":[{\"memory\":8}]}",
            "line 1: a device has no \"uuid\"",
        ),
        (
            "{\"version\":1,\"managed\":\"never\"}",
            "line 1: \"never\" is not one of count, allow",
        ),
        (
            "{\"version\":1,\"pressure\":\"wait\"}",
            "line 1: \"wait\" is not one of refuse, release",
        ),
        (
            "{\"version\":1,\"pressure_full\":101}",
            "line 1: \"pressure_full\" is not a percentage (0 to 100)",
        ),
        (
            &format!("{{\"version\":1,\"ledger\":\"/{}\"}}", "x".repeat(256)),
            "line 1: \"ledger\" is too long",
        ),
        (
            "{\"version\":1,\"ledger\":\"ledger\"}",
            "line 1: \"ledger\" is not an absolute path",
        ),
        (
            "{\"version\":1,\"meminfo\":\"\"}",
            "line 1: \"meminfo\" is not an absolute path",
        ),
        (
            "{\"version\":1,\"ledger_id\":\"+1\"}",
            "line 1: \"ledger_id\" is not a number of up to 16 hexadecimal digits",
        ),
        (
            "{\"version\":1,\"page_cache\":\"evict\"}",
            "line 1: \"evict\" is not one of keep, drop, drop-behind",
        ),
        (
            "{\"version\":1,\"model_files\":{\"suffixes\":[\".gguf\"]}}",
            "line 1: \".gguf\" is not a suffix (they are written without the leading dot, like gguf)",
        ),
        (
            "{\"version\":1,\"model_files\":{\"smallest\":0}}",
            "line 1: \"smallest\" is zero",
        ),
        (
            "{\"version\":1,\"model_files\":{\"suffix\":[]}}",
            "line 1: unknown key \"suffix\"",
        ),
    ] {
        assert_eq!(
            parse(text.as_bytes()).unwrap_err().to_string(),
            message,
            "{text}"
        );
    }
    let twice = format!(
        r#"{{"version":1,"memory":1,"devices":[{{"uuid":"{UUID}"}},{{"uuid":"{UUID}"}}]}}"#
    );
    assert_eq!(fault(&twice), SliceFault::TwiceListed(Text::new(UUID)));
    let bare = format!(r#"{{"version":1,"devices":[{{"uuid":"{UUID}"}}]}}"#);
    assert_eq!(fault(&bare), SliceFault::NoMemory(Text::new(UUID)));
}

/// A relative path would name another ledger, and so another budget, in every working directory.
#[test]
fn a_relative_path_is_refused_whatever_it_is_of() {
    for key in [
        "meminfo",
        "ledger",
        "ledger_descriptor",
        "promises",
        "promise",
        "cgroup",
        "pressure_file",
    ] {
        let text = format!(r#"{{"version":1,"memory":1024,"{key}":"./file"}}"#);
        assert_eq!(fault(&text), SliceFault::Relative(Text::new(key)));
    }
}

#[test]
fn a_path_leaves_room_for_the_nul_of_c() {
    let text = |length| format!(r#"{{"version":1,"ledger":"/{}"}}"#, "a".repeat(length));
    let read = parse(text(254).as_bytes()).unwrap();
    assert_eq!(read.ledger.unwrap().as_str().len(), 255);
    assert_eq!(fault(&text(255)), SliceFault::TooLong(Text::new("ledger")));
}

#[test]
fn a_file_too_large_to_be_a_slice_is_refused_unread() {
    let text = r#"{"version":1}"#;
    let largest = format!("{text}{}", " ".repeat(MAX_FILE - text.len()));
    assert_eq!(parse(largest.as_bytes()), Ok(Slice::default()));
    assert_eq!(fault(&format!("{largest} ")), SliceFault::TooLarge);
}

const OTHER: &str = "GPU-2b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";

#[test]
fn a_long_text_is_cut_at_a_character() {
    assert_eq!(Text::<4>::new("abcü").as_str(), "abc");
    assert_eq!(Text::<5>::new("abcü").as_str(), "abcü");
}

prop_compose! {
    fn any_listed()(
        bytes in any::<[u8; 16]>(), mig in any::<bool>(), memory in 2u64..,
        headroom in proptest::option::of(0u64..2), integrated in proptest::option::of(any::<bool>()),
        driver in proptest::option::of(any::<bool>()), driver_backstop in any::<bool>(),
    ) -> ListedDevice {
        let kind = if mig { crate::words::device::DeviceKind::Mig } else { crate::words::device::DeviceKind::Gpu };
        ListedDevice {
            uuid: DeviceUuid { kind, bytes },
            memory: Some(Bytes::new(memory)),
            headroom: headroom.map(Bytes::new),
            integrated,
            driver_limit: driver.map(|dmem| if dmem { DriverLimit::Dmem } else { DriverLimit::Misc }),
            driver_backstop,
        }
    }
}

prop_compose! {
    /// Any setting of a slice of unified memory.
    fn any_unified()(
        paths in proptest::collection::vec(proptest::option::of("/[a-z/]{0,60}"), 5),
        allowance in proptest::option::of(any::<u64>()), release in any::<bool>(),
        percents in proptest::collection::vec(proptest::option::of(0u8..=100), 2),
        amounts in proptest::collection::vec(proptest::option::of(any::<u64>()), 3),
    ) -> Slice {
        let path = |which: usize| paths[which].as_deref().map(Text::new);
        let amount = |which: usize| amounts[which].map(Bytes::new);
        Slice {
            promises: path(0),
            promise: path(1),
            cgroup: path(2),
            driver_cgroup: path(4),
            host_allowance: allowance.map(Bytes::new),
            maximum: allowance.map(|_| Bytes::MAX),
            pressure: if release { Pressure::Release } else { Pressure::Refuse },
            thresholds: Thresholds {
                file: path(3),
                full: percents[0],
                available: amount(0),
                request: amount(1),
                used: percents[1],
                freed: amount(2),
            },
            ..Slice::default()
        }
    }
}

prop_compose! {
    fn any_slice()(
        name in "[a-zA-Z0-9._/-]{0,100}", device in any::<bool>(), discrete in any::<bool>(),
        enforce in any::<bool>(), reserve in proptest::option::of(any::<u64>()),
        meminfo in proptest::option::of("/[a-z/]{0,60}"),
        ledger in proptest::option::of("/[a-z/]{0,254}"), cache in any::<(u8, bool)>(),
        suffixes in proptest::option::of((proptest::collection::vec("[a-z0-9-]{1,16}", 0..16), 1u64..)),
        memory in proptest::option::of(2u64..), id in proptest::option::of(any::<u64>()),
        headroom in 0u64..2, listed in proptest::collection::vec(any_listed(), 0..10),
        unified in any_unified(),
    ) -> Slice {
        let mut slice = Slice {
            name: Text::new(&name),
            total: if device { Total::Device } else { Total::Slice },
            present_as: if discrete { PresentAs::Discrete } else { PresentAs::Uma },
            enforce,
            reserve: reserve.map(Bytes::new),
            meminfo: meminfo.as_deref().map(Text::new),
            ledger: ledger.as_deref().map(Text::new),
            ledger_id: id,
            page_cache: [PageCache::Keep, PageCache::Drop, PageCache::DropBehind][usize::from(cache.0 % 3)],
            page_cache_share: cache.1,
            managed: if cache.0 > 99 { Managed::Allow } else { Managed::Count },
            memory: memory.map(Bytes::new),
            headroom: Bytes::new(headroom),
            ..unified
        };
        if let Some((suffixes, smallest)) = suffixes {
            slice.model_files = ModelFiles::none(Bytes::new(smallest));
            for suffix in suffixes {
                let _ = slice.model_files.add(&suffix);
            }
        }
        for device in listed {
            let _ = slice.list(device);
        }
        slice
    }
}

/// Pieces of nearly valid files.
fn almost_json() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(
        [
            "{",
            "}",
            "[",
            "]",
            ":",
            ",",
            "\"version\"",
            "1",
            "2",
            "\"memory\"",
            "8589934592",
            "\"devices\"",
            "\"uuid\"",
            "\"total\"",
            "\"slice\"",
            "true",
            "false",
            "null",
            "01",
            "1.0",
            "1e3",
            "-1",
            " ",
            "\n",
            "\"a\\u0041\"",
            "\"enforce\"",
            "\"",
        ]
        .as_slice(),
    );
    proptest::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat())
}
