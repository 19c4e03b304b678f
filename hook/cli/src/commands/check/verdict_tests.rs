//! The laws of the verdict.
#![expect(
    clippy::arithmetic_side_effects,
    reason = "the amounts are chosen so that nothing overflows"
)]

use super::*;
use crate::commands::check::query::apis::{APIS, Api, Family, is_nvml};
use crate::commands::check::query::row::{Reading, Row};
use gpuslice_config::slice::parse;
use gpuslice_config::words::units::{GIB, MIB};
use proptest::prelude::*;

const UUID: &str = "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";

/// The answer of the function with that name about a device.
fn reading(api: &str, total: u64, free: u64) -> Reading {
    let width = crate::commands::check::query::apis::width(api);
    let said = |bytes| Some(width.cut(bytes));
    let nothing = Reading::default();
    match api {
        "cuMemGetInfo" => Reading {
            total: said(total),
            free: said(free),
            ..nothing
        },
        "cuDeviceGetAttribute" | "cudaDeviceGetAttribute" => Reading {
            integrated: Some(false),
            ..nothing
        },
        _ if api.starts_with("vk") => reading("cuMemGetInfo_v2", total, free),
        _ if api.contains("TotalMem") || api.contains("Attributes") || api.starts_with("cl") => {
            Reading {
                total: said(total),
                ..nothing
            }
        }
        _ if api.contains("Properties") => Reading {
            total: said(total),
            integrated: Some(false),
            ..nothing
        },
        "nvmlDeviceGetMemoryInfo_v2" => Reading {
            reserved: Some(0),
            ..reading("nvmlDeviceGetMemoryInfo", total, free)
        },
        _ => Reading {
            total: said(total),
            free: said(free),
            used: said(total - free),
            ..nothing
        },
    }
}

/// A correct answer of the function, with a correct yardstick.
fn asked(api: &str, route: &str, total: u64, free: u64) -> AskedRow {
    AskedRow {
        row: Row {
            device: UUID.to_owned(),
            api: api.to_owned(),
            route: route.to_owned(),
            reading: reading(api, total, free),
            error: None,
        },
        beside: Some(free),
        settled: true,
    }
}

fn saying(reading: Reading, asked: AskedRow) -> AskedRow {
    let mut said = asked;
    said.row.reading = reading;
    said
}

fn failing(api: &str, error: &str) -> AskedRow {
    let mut asked = saying(Reading::default(), asked(api, "dlsym-local", GIB, 0));
    asked.row.error = Some(error.to_owned());
    asked
}

const ROUTES: [&str; 2] = ["dlsym-local", "dlmopen"];

/// The functions of CUDA and NVML, which are also compared outside a slice.
fn compared() -> impl Iterator<Item = &'static Api> {
    APIS.iter().filter(|api| {
        !matches!(
            api.family,
            Family::Vulkan | Family::OpenCl | Family::MeminfoByLibc | Family::MeminfoBySystemCall
        )
    })
}

/// Correct answers of these functions, by two routes.
fn truth(total: u64, free: u64) -> Vec<AskedRow> {
    let by_route = |route| compared().map(move |api| asked(api.name, route, total, free));
    ROUTES.into_iter().flat_map(by_route).collect()
}

fn memory_strategy() -> impl Strategy<Value = (u64, u64)> {
    (1..1u64 << 42).prop_flat_map(|total| (Just(total), 0..=total))
}

proptest! {
    #[test]
    fn one_truth_is_consistent_however_coarsely_it_is_told((total, free) in memory_strategy()) {
        let verdict = judge(&truth(total, free), None);
        prop_assert_eq!(&verdict.disagreements, &Vec::<String>::new());
        prop_assert_eq!(verdict.devices.len(), 1);
        prop_assert_eq!(verdict.devices[0].memory.len(), 1);
    }

    #[test]
    fn one_byte_less_in_one_answer_is_named(
        (total, free) in memory_strategy(),
        place in any::<prop::sample::Index>(),
    ) {
        let mut rows = truth(total, free);
        let mut amounts: Vec<(String, &mut u64)> = Vec::new();
        for asked in rows.iter_mut().filter(|asked| asked.width() == Width::Exact) {
            let api = &asked.row.api;
            let Reading { total, free, used, .. } = &mut asked.row.reading;
            let told = [total, free, used].into_iter().filter_map(Option::as_mut);
            amounts.extend(told.map(|amount| (api.clone(), amount)));
        }
        amounts.retain(|(_, amount)| **amount > 0);
        let (api, amount) = amounts.swap_remove(place.index(amounts.len()));
        *amount -= 1;
        drop(amounts);
        let said = judge(&rows, None).disagreements;
        prop_assert!(!said.is_empty());
        prop_assert!(said.iter().all(|said| said.contains(&api)), "{said:?}");
    }

    #[test]
    fn other_programs_may_allocate_between_any_two_answers(
        total in 1..1u64 << 42,
        frees in proptest::collection::vec(any::<prop::sample::Index>(), APIS.len() * ROUTES.len()),
    ) {
        let free = |place: &prop::sample::Index| place.index(usize::try_from(total).unwrap()) as u64;
        let calls = ROUTES.into_iter().flat_map(|route| compared().map(move |api| (api.name, route)));
        let rows: Vec<AskedRow> = calls
            .zip(&frees)
            .map(|((api, route), place)| asked(api, route, total, free(place)))
            .collect();
        let verdict = judge(&rows, None);
        prop_assert_eq!(&verdict.disagreements, &Vec::<String>::new());
        prop_assert_eq!(verdict.devices[0].memory.len(), 1);
    }

    #[test]
    fn what_nvml_reserves_on_a_bare_card_is_taken_out(
        (total, free) in memory_strategy(),
        reserved in 1u64..2 * GIB,
    ) {
        let mut rows = truth(total, free);
        for asked in rows.iter_mut().filter(|asked| is_nvml(&asked.row.api)) {
            let reading = &mut asked.row.reading;
            reading.total = Some(total + reserved);
            if asked.row.api == "nvmlDeviceGetMemoryInfo_v2" {
                reading.reserved = Some(reserved);
            } else {
                reading.used = reading.used.map(|used| used + reserved);
            }
        }
        // A function that reports whole MiB cannot express a reserve with a fraction of a MiB.
        rows.retain(|asked| asked.width() != Width::WholeMib);
        let verdict = judge(&rows, None);
        prop_assert_eq!(&verdict.disagreements, &Vec::<String>::new());
        prop_assert_eq!(verdict.devices[0].set_aside, Some(SetAside { bytes: reserved, told: true }));
    }

    #[test]
    fn a_reserve_that_does_not_explain_the_difference_is_a_disagreement(
        (total, free) in memory_strategy(),
        reserved in 1u64..2 * GIB,
        unexplained in 1u64..2 * GIB,
    ) {
        let mut rows = truth(total, free);
        for asked in rows.iter_mut().filter(|asked| asked.row.api == "nvmlDeviceGetMemoryInfo_v2") {
            asked.row.reading.total = Some(total + reserved + unexplained);
            asked.row.reading.reserved = Some(reserved);
        }
        let verdict = judge(&rows, None);
        prop_assert!(!verdict.disagreements.is_empty());
        prop_assert_eq!(verdict.devices[0].set_aside, None);
    }
}

/// A card without a slice, on a driver with or without the newer struct.
fn bare(reserved: u64, newer: bool) -> Vec<AskedRow> {
    let mut rows = truth(23 * GIB, 20 * GIB);
    rows.retain(|asked| asked.width() != Width::WholeMib);
    rows.retain(|asked| newer || asked.row.api != "nvmlDeviceGetMemoryInfo_v2");
    for asked in rows.iter_mut().filter(|asked| is_nvml(&asked.row.api)) {
        let reading = &mut asked.row.reading;
        reading.total = reading.total.map(|total| total + reserved);
        if asked.row.api == "nvmlDeviceGetMemoryInfo_v2" {
            reading.reserved = Some(reserved);
        } else {
            reading.used = reading.used.map(|used| used + reserved);
        }
    }
    rows
}

#[test]
fn an_unknown_driver_reserve_is_consistent_if_free_agrees() {
    let mut rows = bare(GIB / 2, false);
    let verdict = judge(&rows, None);
    assert_eq!(verdict.disagreements, Vec::<String>::new());
    assert_eq!(
        verdict.devices[0].set_aside,
        Some(SetAside {
            bytes: GIB / 2,
            told: false
        })
    );
    for asked in rows.iter_mut().filter(|asked| is_nvml(&asked.row.api)) {
        asked.row.reading.free = Some(20 * GIB + 1);
    }
    assert!(!judge(&rows, None).disagreements.is_empty());
}

#[test]
fn in_a_slice_nothing_is_taken_out() {
    let slice = parse(br#"{"version":1,"memory":25769803776}"#).unwrap();
    for newer in [false, true] {
        let said = judge(&bare(GIB / 2, newer), Some(&slice)).disagreements;
        assert!(!said.is_empty(), "newer: {newer}");
    }
}

#[test]
fn a_spark_without_us_is_told_in_words() {
    let (total, free) = (127_600_748 * 1024, 100 * GIB);
    let rows = [
        asked("cuMemGetInfo_v2", "dlsym-local", total, free),
        failing("nvmlDeviceGetMemoryInfo", "NVML_ERROR_NOT_SUPPORTED"),
        failing("nvmlDeviceGetMemoryInfo_v2", "NVML_ERROR_NOT_SUPPORTED"),
        asked("cuDeviceTotalMem_v2", "dlsym-local", total, free),
    ];
    assert_eq!(
        judge(&rows, None).disagreements,
        [format!(
            "{UUID}: nvmlDeviceGetMemoryInfo, nvmlDeviceGetMemoryInfo_v2 say \
             NVML_ERROR_NOT_SUPPORTED; cuMemGetInfo_v2, cuDeviceTotalMem_v2 say 121.69 GiB total, \
             100.00 GiB free, 21.69 GiB used"
        )]
    );
}

#[test]
fn a_route_past_the_library_is_named_even_if_the_total_agrees() {
    let ours = || asked("cuMemGetInfo_v2", "dlsym-local", 24 * GIB, 7 * GIB);
    let mut past = asked("cuMemGetInfo_v2", "dlmopen", 24 * GIB, 7 * GIB);
    past.row.reading = reading("cuMemGetInfo_v2", 24 * GIB, 23 * GIB);
    let said = judge(&[ours(), past, ours()], None).disagreements;
    assert_eq!(
        said,
        [format!(
            "{UUID}: cuMemGetInfo_v2 by dlmopen says 24.00 GiB total, 23.00 GiB free, 1.00 GiB \
             used; cuMemGetInfo_v2 by dlsym-local says 24.00 GiB total, 7.00 GiB free, 17.00 GiB \
             used"
        )]
    );
}

#[test]
fn an_integrated_device_that_one_function_calls_discrete_is_named() {
    let is = |integrated| Reading {
        integrated: Some(integrated),
        ..Reading::default()
    };
    let attribute = |api, route, integrated| saying(is(integrated), asked(api, route, GIB, 0));
    let rows = [
        asked("cuMemGetInfo_v2", "dlsym-local", GIB, 0),
        attribute("cuDeviceGetAttribute", "dlsym-local", true),
        attribute("cuDeviceGetAttribute", "dlmopen", true),
        attribute("cudaDeviceGetAttribute", "cudart-12", false),
    ];
    assert_eq!(
        judge(&rows, None).disagreements,
        [format!(
            "{UUID}: cudaDeviceGetAttribute says not integrated; cuDeviceGetAttribute says \
             integrated"
        )]
    );
}

#[test]
fn answers_that_agree_on_more_than_the_slice_are_inconsistent() {
    let slice = parse(br#"{"version":1,"memory":8589934592}"#).unwrap();
    let said = judge(&truth(24 * GIB, 20 * GIB), Some(&slice)).disagreements;
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("the slice is 8.00 GiB"), "{said:?}");
    assert!(said[0].contains("24.00 GiB total"), "{said:?}");
    let within = judge(&truth(8 * GIB, 7 * GIB), Some(&slice));
    assert_eq!(within.disagreements, Vec::<String>::new());
}

#[test]
fn a_device_of_which_nobody_says_anything_is_inconsistent() {
    let rows = [failing("cuMemGetInfo_v2", "CUDA_ERROR_UNKNOWN")];
    let said = judge(&rows, None).disagreements;
    assert_eq!(
        said,
        [format!("{UUID}: no function reports the total memory")]
    );
}

#[test]
fn what_would_not_hold_still_is_compared_by_totals() {
    let mut rows = truth(24 * GIB, 20 * GIB);
    for (steps, asked) in rows.iter_mut().enumerate() {
        asked.settled = false;
        let api = asked.row.api.clone();
        asked.row.reading = reading(&api, 24 * GIB, 20 * GIB + steps as u64 * MIB);
    }
    assert_eq!(judge(&rows, None).disagreements, Vec::<String>::new());
    rows.push(saying(
        reading("cudaMemGetInfo", 8 * GIB, 0),
        asked("cudaMemGetInfo", "cudart-12", 24 * GIB, 20 * GIB),
    ));
    assert!(!judge(&rows, None).disagreements.is_empty());
}

#[test]
fn a_crash_is_a_disagreement_of_its_own() {
    let mut crash = failing("cuInit", "crashed (SIGSEGV)");
    NO_DEVICE.clone_into(&mut crash.row.device);
    let mut rows = truth(GIB, MIB);
    rows.push(crash);
    let said = judge(&rows, None).disagreements;
    assert_eq!(said, ["cuInit by dlsym-local: crashed (SIGSEGV)"]);
}

#[test]
fn vulkan_and_opencl_are_compared_in_a_slice_only() {
    let slice = parse(br#"{"version":1,"memory":8589934592}"#).unwrap();
    for (api, route) in [
        ("vkGetPhysicalDeviceMemoryProperties2", "vulkan-driver"),
        ("clGetDeviceInfo", "opencl-loader"),
    ] {
        let rows = |total| {
            let cuda = asked("cuMemGetInfo_v2", "dlsym-local", 8 * GIB, GIB);
            [cuda, asked(api, route, total, GIB)]
        };
        let faults = |rows: &[AskedRow], slice| judge(rows, slice).disagreements.len();
        assert_eq!(faults(&rows(8 * GIB), Some(&slice)), 0);
        assert_eq!(faults(&rows(24 * GIB), Some(&slice)), 1);
        assert_eq!(faults(&rows(24 * GIB), None), 0);
        // A driver that crashes is no fault outside a slice.
        let mut crashed = rows(8 * GIB);
        crashed[1].row.device = NO_DEVICE.to_owned();
        crashed[1].row.error = Some("crashed (SIGSEGV)".to_owned());
        assert_eq!(faults(&crashed, Some(&slice)), 1);
        assert_eq!(faults(&crashed, None), 0);
        // A device that only this API lists is not judged outside a slice.
        assert_eq!(judge(&rows(24 * GIB)[1..], None).devices, []);
    }
}
