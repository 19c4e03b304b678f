//! The slices that the hooks in a config.json give, alone and beside annotations.
//! Touches: its arguments.

use super::*;
use crate::request::spec;
use gpuslice_config::slice::{Fence, Total};

const ONE: &str = "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";
const TWO: &str = "GPU-2b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";

/// A configuration with these hooks, each given by its stage and its options.
fn spec(hooks: &[(&str, &str)]) -> Spec {
    let mut stages = serde_json::Map::new();
    for (stage, options) in hooks {
        let words = ["gpuslice-hook"].into_iter();
        let words: Vec<&str> = words
            .chain(options.split_whitespace())
            .chain([*stage])
            .collect();
        let hook = serde_json::json!({"path": "/usr/bin/gpuslice-hook", "args": words});
        let listed = stages
            .entry(*stage)
            .or_insert_with(|| serde_json::json!([]));
        listed.as_array_mut().unwrap().push(hook);
    }
    let text = serde_json::json!({ "hooks": stages }).to_string();
    spec::parse(text.as_bytes()).unwrap()
}

fn given(hooks: &[&str]) -> Result<GivenSlice, SizeError> {
    let hooks: Vec<(&str, &str)> = hooks.iter().map(|hook| ("createRuntime", *hook)).collect();
    of(&spec(&hooks), &HookSlice::default()).map(Option::unwrap_or_default)
}

fn refused(hooks: &[&str]) -> String {
    given(hooks).unwrap_err().to_string()
}

/// The names, the size of every GPU, and the sizes of single GPUs.
fn sizes(given: &GivenSlice) -> (&str, Option<u64>, Vec<(String, u64)>) {
    let gib = |bytes: Bytes| bytes.get() >> 30;
    let devices = given.request.devices.iter();
    let devices = devices.map(|named| (named.selector.to_string(), gib(named.memory)));
    let names = given.named.as_deref().unwrap_or_default();
    (names, given.request.memory.map(gib), devices.collect())
}

fn of_gpus(list: &[(&str, u64)]) -> Vec<(String, u64)> {
    let each = list.iter().map(|(gpu, size)| ((*gpu).to_owned(), *size));
    each.collect()
}

#[test]
fn a_size_is_found_in_any_hook_of_ours_and_in_no_other() {
    let own = |memory: &str| {
        let mut own = HookSlice::default();
        own.set("memory", memory).unwrap();
        own
    };
    let mut spec = spec(&[
        ("createRuntime", ""),
        ("createRuntime", "--memory 8GiB"),
        ("poststop", "--memory 2GiB"),
    ]);
    let found = |spec: &Spec, own: &HookSlice| of(spec, own).map(|it| it.unwrap().request.memory);
    assert_eq!(found(&spec, &HookSlice::default()), Ok(Some(Bytes::gib(8))));
    assert_eq!(found(&spec, &own("8192MiB")), Ok(Some(Bytes::gib(8))));
    assert!(of(&spec, &own("2GiB")).is_err());
    for hooks in spec
        .hooks
        .iter_mut()
        .flat_map(|all| all.values_mut().flatten())
    {
        for hook in hooks {
            hook.path = "/usr/bin/other".into();
            hook.args[0] = "other".to_owned();
        }
    }
    for spec in [spec, Spec::default()] {
        assert!(of(&spec, &HookSlice::default()).unwrap().is_none());
    }
}

#[test]
fn two_devices_of_different_sizes_are_refused_with_both_sizes() {
    let said = refused(&["--memory 8GiB", "--memory 2GiB"]);
    assert!(said.contains("8.00 GiB and 2.00 GiB"), "{said}");
    // One says all GPUs, and the other one of them.
    let said = refused(&["--memory 8GiB", &format!("--memory {ONE}=2GiB")]);
    assert!(said.contains("8.00 GiB and 2.00 GiB"), "{said}");
}

#[test]
fn the_hooks_of_one_claim_at_several_stages_are_one_slice() {
    let claim = format!("--slice c-1 --memory {ONE}=8GiB --memory {TWO}=4GiB --total device");
    let spec = spec(&[
        ("createRuntime", &claim),
        ("createContainer", &claim),
        ("poststop", &claim),
    ]);
    let given = of(&spec, &HookSlice::default()).unwrap().unwrap();
    let both = of_gpus(&[(ONE, 8), (TWO, 4)]);
    assert_eq!(sizes(&given), ("c-1", None, both));
    assert_eq!(given.request.total, Some(Total::Device));
    // A size for every GPU, beside one for a GPU.
    let claim = format!("--slice c-1 --memory 8GiB --memory {ONE}=4GiB");
    let given = self::given(&[&claim, &claim]).unwrap();
    assert_eq!(sizes(&given), ("c-1", Some(8), of_gpus(&[(ONE, 4)])));
}

#[test]
fn two_claims_add_up_on_one_gpu_and_keep_apart_on_two() {
    let one = format!("--slice b --memory {ONE}=4GiB");
    let other = format!("--slice a --memory {ONE}=2GiB --memory {TWO}=3GiB");
    let both = given(&[&one, &other]).unwrap();
    let expected = ("a,b", None, of_gpus(&[(ONE, 6), (TWO, 3)]));
    assert_eq!(sizes(&both), expected);
    // The order of the hooks does not change the sum.
    let turned = given(&[&other, &one]).unwrap();
    assert_eq!(turned.request, both.request);
    let all = given(&["--slice a --memory 1GiB", &one, "--slice c --memory 2GiB"]).unwrap();
    assert_eq!(sizes(&all), ("a,b,c", Some(3), of_gpus(&[(ONE, 7)])));
    // Devices without names limit different GPUs.
    let apart = given(&[
        &format!("--memory {ONE}=4GiB"),
        &format!("--memory {TWO}=2GiB"),
    ]);
    let expected = ("", None, of_gpus(&[(ONE, 4), (TWO, 2)]));
    assert_eq!(sizes(&apart.unwrap()), expected);
}

#[test]
fn a_claim_has_one_size_on_a_gpu_and_one_value_of_an_option() {
    let size = |size: &str| format!("--slice c-1 --memory {ONE}={size}");
    assert_eq!(
        refused(&[&size("8GiB"), &size("6GiB")]),
        "two hooks in config.json give different slices of the same GPU, 8.00 GiB and 6.00 GiB: request \
         only one CDI device or runtime of gpuslice, or claims of one size"
    );
    let said = refused(&[&size("8GiB"), "--memory 18GiB"]);
    assert!(said.contains("18.00 GiB"), "{said}");
    // A runtime that says the same of every GPU changes nothing, in either order.
    let hooks = [size("8GiB"), "--memory 8GiB".to_owned()];
    let (one, other) = (
        given(&[&hooks[0], &hooks[1]]),
        given(&[&hooks[1], &hooks[0]]),
    );
    let expected = ("c-1", Some(8), of_gpus(&[(ONE, 8)]));
    assert_eq!(
        (sizes(&one.unwrap()), sizes(&other.unwrap())),
        (expected.clone(), expected)
    );
    let plain = ["--memory 8GiB".to_owned(), format!("--memory {ONE}=8GiB")];
    let (one, other) = (
        given(&[&plain[0], &plain[1]]),
        given(&[&plain[1], &plain[0]]),
    );
    assert_eq!(sizes(&one.unwrap()), sizes(&other.unwrap()));
    let fence = |fence: &str| format!("{} --fence {fence}", size("8GiB"));
    assert_eq!(
        refused(&[&fence("auto"), &fence("preload")]),
        "two hooks in config.json give different values of --fence"
    );
    let spelled = given(&[&fence("auto"), &size("8192MiB")]).unwrap();
    assert_eq!(spelled.request.fence, Some(Fence::Auto));
}

#[test]
fn a_malformed_hook_is_refused_by_its_option() {
    for (options, said) in [
        ("--memory 12Q", "--memory 12Q: not a size: unknown unit"),
        ("--memory", "--memory createRuntime: not a size"),
        ("--memory 0=8GiB", "--memory 0=8GiB: not a device uuid"),
        (
            "--memory GPU-x=8GiB",
            "--memory GPU-x=8GiB: not a device uuid",
        ),
        (
            "--slice c-1",
            "the options of a slice need its size (add --memory)",
        ),
        ("--total device", "the options of a slice need its size"),
        (
            "--slice ../x --memory 1GiB",
            "--slice \"../x\" is a second name, or not a name",
        ),
        (
            "--slice a --slice b --memory 1GiB",
            "--slice \"b\" is a second name, or not a name",
        ),
        ("--memory 1GiB --memory 2GiB", "1.00 GiB and 2.00 GiB"),
        (
            "--memory 1GiB --total some",
            "--total: \"some\" is not one of slice, device",
        ),
        (
            "--memory 1GiB --headroom 12Q",
            "--headroom: \"12Q\": not a size",
        ),
    ] {
        let refused = refused(&[options]);
        assert!(refused.contains(said), "{options}: {refused}");
    }
}

#[test]
fn an_annotation_that_differs_from_a_claim_is_refused_by_its_name() {
    let devices = gpuslice_host::machine::devices::parse(
        format!(
            r#"{{"version":1,"devices":[
            {{"uuid":"{ONE}","index":0,"name":"Card","memory":25769803776}},
            {{"uuid":"{TWO}","index":1,"name":"Card","memory":25769803776}}]}}"#
        )
        .as_bytes(),
    )
    .unwrap();
    let claim = format!("--slice c-1 --memory {ONE}=1GiB --headroom 100MiB --fence preload");
    let claim = given(&[&claim]).unwrap();
    let with = |pairs: &[(&str, &str)]| {
        let mut annotated = SliceRequest::default();
        for (key, value) in pairs {
            annotations::set(&mut annotated, key, key, value).unwrap();
        }
        claim.with(annotated, &devices)
    };
    let by_uuid = format!("memory.{ONE}");
    let other = format!("memory.{TWO}");
    for (pair, said) in [
        (
            ("memory", "18GiB"),
            "slice of 1.00 GiB, and annotation gpuslice.io/memory says 18.00 GiB",
        ),
        (
            ("memory.0", "18GiB"),
            "1.00 GiB, and annotation gpuslice.io/memory.0 says 18.00 GiB",
        ),
        (
            (&by_uuid, "2GiB"),
            "1.00 GiB, and annotation gpuslice.io/memory.GPU-1",
        ),
        // The claim gives nothing of the other GPU.
        (
            ("memory.1", "1GiB"),
            "0 B, and annotation gpuslice.io/memory.1 says 1.00 GiB",
        ),
        (
            (&other, "1GiB"),
            "0 B, and annotation gpuslice.io/memory.GPU-2",
        ),
        (
            ("headroom", "0"),
            "annotation gpuslice.io/headroom contradicts a hook",
        ),
        (
            ("fence", "driver"),
            "annotation gpuslice.io/fence contradicts a hook",
        ),
        (
            ("share", "pod"),
            "annotation gpuslice.io/share contradicts a hook",
        ),
    ] {
        let refused = with(&[pair]).unwrap_err().to_string();
        assert!(refused.contains(said), "{pair:?}: {refused}");
    }
    let equal = [
        ("memory", "1024MiB"),
        ("memory.0", "1GiB"),
        (&by_uuid, "1GiB"),
        ("headroom", "100MiB"),
        ("total", "device"),
    ];
    let request = with(&equal).unwrap();
    assert_eq!(request.total, Some(Total::Device));
    assert_eq!(request.fence, Some(Fence::Preload));
    assert_eq!(
        (request.memory, request.devices),
        (Some(Bytes::gib(1)), claim.request.devices.clone())
    );
}

#[test]
fn a_claim_is_named_by_its_namespace_and_its_name() {
    let claim = given(&["--slice a --claim team/c.1 --memory 1GiB"]).unwrap();
    assert_eq!(claim.namespace.as_deref(), Some("team"));
    assert_eq!(given(&["--memory 1GiB"]).unwrap().namespace, None);
    for wrong in ["team", "/c1", "team/", "team/../c1", "te_am/c1"] {
        let said = refused(&[&format!("--slice a --claim {wrong} --memory 1GiB")]);
        assert_eq!(said, format!("--claim {wrong:?} is not NAMESPACE/NAME"));
    }
}

/// Slices by their names: a size on every GPU, on the first and on the second.
type Sizes = [Option<u64>; 3];

/// The options of a hook that gives these sizes.
fn options_of(name: usize, sizes: &Sizes) -> String {
    let mut text = format!("--slice s{name}");
    for (size, gpu) in sizes.iter().zip(["", ONE, TWO]) {
        let equals = if gpu.is_empty() { "" } else { "=" };
        if let Some(size) = size {
            text.push_str(&format!(" --memory {gpu}{equals}{size}GiB"));
        }
    }
    text
}

proptest::proptest! {
    #[test]
    fn slices_of_different_names_always_add_up(
        slices in proptest::collection::vec(
            proptest::array::uniform3(proptest::option::of(1..9_u64)),
            1..5,
        ),
        order in proptest::collection::vec(0..5_usize, 0..9),
    ) {
        let slices: Vec<Sizes> = slices.into_iter().filter(|sizes| sizes.iter().any(Option::is_some)).collect();
        proptest::prop_assume!(!slices.is_empty());
        // In any order, and any of them again: at other stages, or by other devices.
        let again = order.iter().filter_map(|at| at.checked_rem(slices.len()));
        let hooks: Vec<String> = again
            .chain(0..slices.len())
            .map(|name| options_of(name, &slices[name]))
            .collect();
        let hooks: Vec<&str> = hooks.iter().map(String::as_str).collect();
        let given = given(&hooks).unwrap();
        for (at, gpu) in [(1, ONE), (2, TWO)] {
            let wanted: u64 = slices.iter().filter_map(|sizes| sizes[at].or(sizes[0])).sum();
            let size = given.request.size_of(Selector::Uuid(gpu.parse().unwrap()));
            proptest::prop_assert_eq!(size.map_or(0, |size| size.get() >> 30), wanted);
        }
        let names: Vec<String> = (0..slices.len()).map(|name| format!("s{name}")).collect();
        proptest::prop_assert_eq!(given.named, Some(names.join(",")));
    }
}
