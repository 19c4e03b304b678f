//! The estimates of an engine's memory, from its command line.

use super::*;
use gpuslice_config::words::units::GIB;

fn words(command: &str) -> Vec<OsString> {
    command.split(' ').map(OsString::from).collect()
}

fn shows(total: u64, free: u64) -> MemoryView {
    MemoryView {
        total: Bytes::gib(total),
        free: Bytes::gib(free),
        used: Bytes::gib(total).minus(Bytes::gib(free)),
    }
}

/// Hundredths of a GiB.
fn hundredths(amount: Bytes) -> u64 {
    amount.get().saturating_mul(100) / GIB
}

/// The caches that `tests/engines` measures in a slice of 40 GiB: 20.8 GiB (vLLM) and 17.7 GiB
/// (SGLang), with weights of 14 GiB, a peak of 2 GiB and a context of 0.9 GiB.
#[test]
fn the_bound_holds_for_the_engines_that_were_measured() {
    let weights = Some(Bytes::gib(14));
    let of = |command: &str| estimate(&words(command), &shows(40, 40), weights).unwrap();
    let vllm = of("vllm serve MODEL");
    assert_eq!(hundredths(vllm.taken), 3680);
    // The peak of 2 GiB is what the bound does not know.
    assert_eq!(hundredths(vllm.cache.unwrap()), 2080 + 200);
    assert_eq!(
        (vllm.sizing, vllm.fault),
        (Sizing::Default(VLLM_DEFAULT), None)
    );
    let sglang = of("python3 -m sglang.launch_server --mem-fraction-static 0.81");
    // 0.81 of the context of 0.9 GiB is what it does not know.
    assert_eq!(hundredths(sglang.cache.unwrap()), 1840);
    assert!(hundredths(sglang.cache.unwrap()) >= 1767);
}

#[test]
fn a_share_of_the_device_that_exceeds_the_slice_does_not_start() {
    let estimate = estimate(&words("vllm serve MODEL"), &shows(121, 40), None).unwrap();
    assert_eq!(
        estimate.to_string(),
        "vLLM does not start: 0.92 of TOTAL 121.00 GiB is 111.32 GiB, and the slice has 40.00 GiB"
    );
}

#[test]
fn weights_that_leave_no_cache_are_a_fault() {
    let command = words("vllm serve MODEL --gpu-memory-utilization=0.5");
    let estimate = estimate(&command, &shows(12, 12), Some(Bytes::gib(6))).unwrap();
    assert_eq!(
        estimate.fault.unwrap(),
        "vLLM does not start: 0.5 of TOTAL 12.00 GiB is 6.00 GiB, and the weights take 6.00 GiB"
    );
}

#[test]
fn flags_are_found_in_every_spelling_and_the_last_one_counts() {
    for (command, fraction) in [
        ("vllm serve M --gpu-memory-utilization 0.9", Some(900_000)),
        ("vllm serve M --gpu_memory_utilization=.5", Some(500_000)),
        ("sh x --gpu-memory-utilization 1", Some(1_000_000)),
        (
            "v --mem-fraction-static 0.1 --mem-fraction-static 0.8123456",
            Some(812_345),
        ),
        ("/opt/bin/vllm serve M", Some(920_000)),
        (
            "python3 -m vllm.entrypoints.openai.api_server",
            Some(920_000),
        ),
        ("vllm bench", None),
        ("llama-server -m vllm", None),
        ("x --gpu-memory-utilization", None),
        ("x --gpu-memory-utilization 92", None),
        ("x --gpu-memory-utilization -1", None),
        ("x --gpu-memory-utilization auto", None),
        ("x --gpu-memory-utilization .", None),
    ] {
        let found = estimate(&words(command), &shows(12, 12), None);
        let found = found.map(|found| found.sizing.fraction().unwrap().0);
        assert_eq!(found, fraction, "{command}");
    }
}

#[test]
fn a_value_that_vllm_does_not_accept_is_a_fault() {
    for (flag, why) in [
        (
            "--gpu-memory-utilization 90",
            "--gpu-memory-utilization 90 is not a number above 0 and at most 1",
        ),
        (
            "--gpu-memory-utilization=nan",
            "--gpu-memory-utilization nan is not a number above 0 and at most 1",
        ),
        (
            "--gpu-memory-utilization 0",
            "--gpu-memory-utilization 0 is not a number above 0 and at most 1",
        ),
        (
            "--gpu-memory-utilization",
            "--gpu-memory-utilization has no value",
        ),
        (
            "--kv-cache-memory-bytes 3GiB",
            "--kv-cache-memory-bytes 3GiB is not a size",
        ),
    ] {
        let command = words(&format!("vllm serve M {flag}"));
        let estimate = estimate(&command, &shows(12, 12), None).unwrap();
        assert_eq!(estimate.to_string(), format!("vLLM does not start: {why}"));
    }
}

#[test]
fn a_cache_of_a_given_size_replaces_the_fraction() {
    let command = words("vllm serve M --gpu-memory-utilization 0.5 --kv_cache_memory_bytes 3G");
    let of = |weights| estimate(&command, &shows(12, 12), weights).unwrap();
    assert_eq!(
        of(Some(Bytes::gib(6))).to_string(),
        "the cache of vLLM is 3.00 GiB: --kv-cache-memory-bytes replaces the fraction\n  \
         cache and weights of 6.00 GiB: 9.00 GiB\n  all other allocations: at most 3.00 GiB"
    );
    assert_eq!(
        of(Some(Bytes::gib(10))).to_string(),
        "vLLM does not start: --kv-cache-memory-bytes is 3.00 GiB, with weights of 10.00 GiB it \
         is 13.00 GiB, and the slice has 12.00 GiB"
    );
    let sizes = ["2147483648", "2k", "2K", "25.6k", "2.5G", "G"].map(count);
    let wanted = [
        Some(1 << 31),
        Some(2000),
        Some(2048),
        Some(25_600),
        None,
        None,
    ];
    assert_eq!(sizes, wanted);
}

proptest::proptest! {
    #[test]
    fn a_fraction_is_never_more_than_the_whole(text in "[0-9.]{0,12}", amount: u64) {
        if let Some(fraction) = Fraction::parse(&text) {
            let taken = fraction.of(Bytes::new(amount));
            proptest::prop_assert!(taken.get() <= amount);
            let again = Fraction::parse(&fraction.to_string());
            proptest::prop_assert_eq!(again, Some(fraction));
        }
    }
}
