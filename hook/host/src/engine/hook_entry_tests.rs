//! The hooks are added to a configuration, and the rest of it is kept.

use super::*;

const OURS: Ours<'static> = Ours {
    path: "/usr/bin/gpuslice-hook",
    options: &[],
    bundle: None,
    is_again: false,
};

fn hook(stage: &str) -> String {
    format!(
        r#"{{"path":"/usr/bin/gpuslice-hook","args":["gpuslice-hook","{stage}"],"env":["{ENVIRONMENT}"]}}"#
    )
}

#[test]
fn a_configuration_without_hooks_gets_ours_and_keeps_the_rest() {
    let (create, stop) = (hook("createRuntime"), hook("poststop"));
    let expected =
        format!(r#"{{"x":1e999,"hooks":{{"createRuntime":[{create}],"poststop":[{stop}]}}}}"#);
    assert_eq!(add(r#"{"x":1e999}"#, &OURS).unwrap(), expected);
    assert_eq!(add(r#"{"x":1e999,"hooks":null}"#, &OURS).unwrap(), expected);
    // A hook that is added a second time is listed only once.
    assert_eq!(add(&expected, &OURS).unwrap(), expected);
}

#[test]
fn the_hooks_of_others_stay_in_front_of_ours() {
    let config = r#"{ "hooks": { "prestart": [ {"path": "/n"} ], "createRuntime": [ {"path": "/o"} ], "poststop": null } }"#;
    let (create, stop) = (hook("createRuntime"), hook("poststop"));
    assert_eq!(
        add(config, &OURS).unwrap(),
        format!(
            r#"{{ "hooks": {{ "prestart": [ {{"path": "/n"}} ], "createRuntime": [ {{"path": "/o"}}, {create} ], "poststop": [{stop}] }} }}"#
        )
    );
}

const SIZED: Ours<'static> = Ours {
    bundle: Some("/b"),
    ..OURS
};

fn memory(size: &str) -> Vec<String> {
    ["--memory", size].map(str::to_owned).to_vec()
}

/// The hook that a CDI device adds to a configuration.
fn device(size: &str) -> String {
    let hook = |stage: &str| {
        format!(
            r#"{{"path":"/usr/bin/gpuslice-hook","args":["gpuslice-hook","--memory","{size}","{stage}"],"env":["{ENVIRONMENT}"]}}"#
        )
    };
    format!(
        r#"{{"hooks":{{"createRuntime":[{}],"poststop":[{}]}}}}"#,
        hook("createRuntime"),
        hook("poststop")
    )
}

#[test]
fn a_hook_without_options_makes_room_for_one_with_a_size() {
    let before = add("{}", &OURS).unwrap();
    let options = memory("8GiB");
    let wanted = Ours {
        options: &options,
        ..OURS
    };
    let after = add(&before, &wanted).unwrap();
    assert_eq!(after, add("{}", &wanted).unwrap());
    assert!(after.contains(r#""args":["gpuslice-hook","--memory","8GiB","poststop"]"#));
}

#[test]
fn the_hook_of_a_cdi_device_keeps_its_size() {
    assert_eq!(add(&device("8GiB"), &OURS).unwrap(), device("8GiB"));
    let with_bundle = add(&device("8GiB"), &SIZED).unwrap();
    let wanted = device("8GiB").replace(
        r#""gpuslice-hook","--memory""#,
        r#""gpuslice-hook","--bundle","/b","--memory""#,
    );
    assert_eq!(with_bundle, wanted);
    assert_eq!(add(&with_bundle, &SIZED).unwrap(), wanted);
    // The other bundle is made from a copy of the first.
    let moved = Ours {
        bundle: Some("/c"),
        ..SIZED
    };
    assert_eq!(
        add(&with_bundle, &moved).unwrap(),
        wanted.replace("\"/b\"", "\"/c\"")
    );
}

#[test]
fn a_cdi_device_and_a_runtime_of_different_sizes_are_refused() {
    let (eight, two) = (memory("8GiB"), memory("2GiB"));
    let runtime = |options| Ours { options, ..SIZED };
    let said = add(&device("8GiB"), &runtime(&two)).unwrap_err();
    assert!(said.to_string().contains("2.00 GiB and 8.00 GiB"), "{said}");
    let same = add(&device("8GiB"), &runtime(&eight)).unwrap();
    assert_eq!(same.matches("createRuntime\"]").count(), 2, "{same}");
    let malformed = memory("12Q");
    assert!(add("{}", &runtime(&malformed)).is_err());
}

#[test]
fn the_hooks_of_claims_are_kept_and_learn_the_bundle() {
    let claim = |name: &str, size: &str| {
        let gpu = "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";
        format!(
            r#"{{"path":"/opt/gpuslice-hook","args":["gpuslice-hook","--slice","{name}","--memory","{gpu}={size}","createRuntime"]}}"#
        )
    };
    // Each claim has a size of its own: the hooks add them up.
    let both = [claim("a", "4GiB"), claim("b", "2GiB")].join(",");
    let config = format!(r#"{{"hooks":{{"createRuntime":[{both}]}}}}"#);
    let changed = add(&config, &SIZED).unwrap();
    let wanted = both.replace(r#""--slice""#, r#""--bundle","/b","--slice""#);
    assert!(changed.contains(&wanted), "{changed}");
    assert_eq!(changed.matches("createRuntime\"]").count(), 2, "{changed}");
}

#[test]
fn a_bundle_that_is_run_again_with_another_size_has_that_size() {
    let (eight, two) = (memory("8GiB"), memory("2GiB"));
    let runtime = |options| Ours { options, ..SIZED };
    let first = add("{}", &runtime(&eight)).unwrap();
    let second = add(&first, &runtime(&two)).unwrap();
    assert_eq!(second, add("{}", &runtime(&two)).unwrap());
    assert_eq!(add(&second, &SIZED).unwrap(), add("{}", &SIZED).unwrap());
}

#[test]
fn a_size_stays_where_the_runtime_below_executes_gpuslice_runtime_again() {
    let (eight, two) = (memory("8GiB"), memory("2GiB"));
    let runtime = |options| Ours { options, ..SIZED };
    let first = add("{}", &runtime(&eight)).unwrap();
    let again = |options| Ours {
        is_again: true,
        ..runtime(options)
    };
    assert_eq!(add(&first, &again(&[])).unwrap(), first);
    assert!(add(&first, &again(&two)).is_err());
    let plain = add("{}", &SIZED).unwrap();
    assert_eq!(add(&plain, &again(&[])).unwrap(), plain);
}

#[test]
fn two_cdi_devices_of_different_sizes_are_refused() {
    let two = device("2GiB");
    let one = device("8GiB").replace("createRuntime", "prestart");
    let both = format!(
        "{},{}",
        one.trim_end_matches("}}"),
        two.trim_start_matches(r#"{"hooks":{"#)
    )
    .replacen(r#","poststop":"#, r#","poststart":"#, 1);
    let said = add(&both, &SIZED).unwrap_err().to_string();
    assert!(
        said.contains("8.00 GiB") && said.contains("2.00 GiB"),
        "{said}"
    );
}

#[test]
fn a_key_that_runc_would_read_as_hooks_is_refused() {
    for config in [
        r#"{"hooks":{},"hook\u0073":{"createRuntime":[]}}"#,
        r#"{"hook\u0073":{"createRuntime":[]}}"#,
        r#"{"Hooks":null}"#,
        r#"{"hoo\u212as":{}}"#,
        r#"{"hook\u017f":{}}"#,
        r#"{"hooks":{"createruntime":[]}}"#,
        r#"{"hooks":{"createRuntime":[{"path":"/o","Path":"/usr/bin/gpuslice-hook"}]}}"#,
    ] {
        let refused = add(config, &OURS).unwrap_err();
        assert_eq!(
            refused.to_string(),
            JsonError::Twice.to_string(),
            "{config}"
        );
    }
}

#[test]
fn a_configuration_that_is_none_is_refused() {
    for config in [
        "[]",
        "{",
        "{}x",
        r#"{"hooks":[]}"#,
        r#"{"hooks":{"createRuntime":{}}}"#,
        r#"{"hooks":{},"hooks":{}}"#,
        r#"{"hooks":{"poststop":[1]}}"#,
    ] {
        assert!(add(config, &OURS).is_err(), "{config}");
    }
}
