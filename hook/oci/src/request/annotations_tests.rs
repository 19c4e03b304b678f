//! The meaning of annotations.
//! Touches: its arguments.

use super::*;

fn read_as(
    name: Option<&str>,
    pairs: &[(&str, &str)],
) -> Result<AnnotatedRequest, AnnotationError> {
    let who = Identity {
        id: "id".into(),
        name: name.map(str::to_owned),
        ..Identity::default()
    };
    let owned = |(key, value): &(&str, &str)| (format!("{PREFIX}{key}"), (*value).to_owned());
    read(&pairs.iter().map(owned).collect(), &who)
}

fn request(name: Option<&str>, pairs: &[(&str, &str)]) -> SliceRequest {
    match read_as(name, pairs) {
        Ok(AnnotatedRequest::Slice(request)) => request,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_annotation_of_the_contract_is_read() {
    let uuid = "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";
    let by_uuid = format!("memory.{uuid}");
    let read = request(
        Some("a"),
        &[
            ("memory", "24GiB"),
            ("memory.1", "8Gi"),
            (&by_uuid, "4G"),
            ("total", "device"),
            ("present-as", "discrete"),
            ("headroom", "0"),
            ("maximum", "30GiB"),
            ("host-allowance", "2GiB"),
            ("managed", "allow"),
            ("pressure", "release"),
            ("page-cache", "drop-behind"),
            ("meminfo", "mount"),
            ("fence", "driver"),
            ("share", "pod"),
            ("containers", "b, a"),
        ],
    );
    let named = |selector, gib| Named {
        selector,
        memory: Bytes::gib(gib),
        own: false,
    };
    let expected = SliceRequest {
        memory: Some(Bytes::gib(24)),
        portion: None,
        devices: vec![
            named(Selector::Index(1), 8),
            named(Selector::Uuid(uuid.parse().unwrap()), 4),
        ],
        total: Some(Total::Device),
        present_as: Some(PresentAs::Discrete),
        headroom: Some(Bytes::ZERO),
        maximum: Some(Bytes::gib(30)),
        host_allowance: Some(Bytes::gib(2)),
        managed: Some(Managed::Allow),
        pressure: Some(Pressure::Release),
        page_cache: Some(PageCache::DropBehind),
        meminfo: Some(ShownBy::Mount),
        fence: Some(Fence::Driver),
        shared: true,
    };
    assert_eq!(read, expected);
}

#[test]
fn a_containers_own_annotation_beats_the_pods() {
    let pairs = [("memory", "8GiB"), ("container.big.memory", "16GiB")];
    assert_eq!(request(Some("big"), &pairs).memory, Some(Bytes::gib(16)));
    assert_eq!(request(Some("small"), &pairs).memory, Some(Bytes::gib(8)));
}

#[test]
fn a_containers_own_size_for_all_gpus_beats_its_pods_for_one() {
    let pairs = [
        ("memory.0", "20GiB"),
        ("memory", "8GiB"),
        ("container.small.memory", "4GiB"),
        ("container.one.memory.1", "2GiB"),
    ];
    let small = request(Some("small"), &pairs);
    assert_eq!((small.memory, small.devices), (Some(Bytes::gib(4)), vec![]));
    let of = |name| -> Vec<(String, Bytes, bool)> {
        let all = request(Some(name), &pairs).devices.into_iter();
        all.map(|it| (it.selector.to_string(), it.memory, it.own))
            .collect()
    };
    let pods = || ("0".to_owned(), Bytes::gib(20), false);
    assert_eq!(of("other"), [pods()]);
    assert_eq!(of("one"), [pods(), ("1".to_owned(), Bytes::gib(2), true)]);
    let own = [
        ("memory.0", "20GiB"),
        ("container.small.memory", "4GiB"),
        ("container.small.memory.1", "2GiB"),
    ];
    let small = request(Some("small"), &own).devices;
    assert!(matches!(small.as_slice(), [it] if it.own), "{small:?}");
}

#[test]
fn a_container_that_is_not_listed_has_its_own_keys_alone() {
    let pairs = [
        ("containers", "a"),
        ("memory", "16GiB"),
        ("memory.1", "8GiB"),
        ("managed", "allow"),
        ("share", "pod"),
        ("container.b.memory", "1GiB"),
        ("container.c.total", "device"),
    ];
    let own = SliceRequest {
        memory: Some(Bytes::gib(1)),
        ..SliceRequest::default()
    };
    assert_eq!(request(Some("b"), &pairs), own);
    assert!(request(Some("a"), &pairs).shared);
    let nobody = read_as(Some("d"), &pairs);
    assert_eq!(nobody, Ok(AnnotatedRequest::NotThisContainer));
    assert_eq!(
        read_as(Some("c"), &pairs).unwrap_err().to_string(),
        "annotation gpuslice.io/container.c.total needs a size: gpuslice.io/containers does not list c, so \
         the pod's keys are not for it (add gpuslice.io/container.c.memory)"
    );
    // The pod's keys are checked all the same.
    let wrong = [("containers", "a"), ("memroy", "1GiB")];
    assert!(read_as(Some("b"), &wrong).is_err());
}

#[test]
fn a_sidecar_that_nobody_names_has_no_slice() {
    let listed = [("memory", "8GiB"), ("containers", "server")];
    assert_eq!(
        read_as(Some("log"), &listed),
        Ok(AnnotatedRequest::NotThisContainer)
    );
    let own = [("container.server.memory", "8GiB")];
    assert_eq!(
        read_as(Some("log"), &own),
        Ok(AnnotatedRequest::NotThisContainer)
    );
    assert_eq!(read_as(Some("log"), &[]), Ok(AnnotatedRequest::Nothing));
}

#[test]
fn a_container_that_is_listed_without_a_size_is_refused() {
    let listed = [("containers", "main, other")];
    let error = read_as(Some("main"), &listed).unwrap_err();
    assert_eq!(error, AnnotationError::NoMemory("containers"));
    assert_eq!(
        error.to_string(),
        "annotation gpuslice.io/containers needs a size (add gpuslice.io/memory)"
    );
    let own = [("containers", "main"), ("container.side.memory", "8GiB")];
    assert_eq!(read_as(Some("main"), &own).unwrap_err(), error);
    assert!(request(Some("side"), &own).limits_something());
    for pairs in [&listed[..], &own[..]] {
        let log = read_as(Some("log"), pairs);
        assert_eq!(log, Ok(AnnotatedRequest::NotThisContainer));
    }
}

/// podman passes no container names, so a key with a name would limit no container.
#[test]
fn where_containers_have_no_names_none_is_meant_by_its_name() {
    for named in [
        ("containers", "server"),
        ("container.server.memory", "8GiB"),
    ] {
        let error = read_as(None, &[("memory", "8GiB"), named]).unwrap_err();
        assert_eq!(error, AnnotationError::NoName(named.0.to_owned()));
    }
}

#[test]
fn what_is_not_understood_is_refused_by_its_name() {
    for (pairs, said) in [
        (
            &[("memroy", "8GiB")][..],
            "unknown annotation gpuslice.io/memroy",
        ),
        (
            &[("memory", "12Q")],
            "annotation gpuslice.io/memory: \"12Q\": not a size: unknown unit",
        ),
        (&[("memory", "0")], "a size must not be zero"),
        (&[("memory", "8")], "a number without a unit counts bytes"),
        (
            &[("memory.00", "8GiB")],
            "\"00\" is neither the index nor the uuid of a GPU",
        ),
        (&[("memory", "-1")], "cannot be negative"),
        (
            &[("memory.first", "8GiB")],
            "\"first\" is neither the index nor the uuid of a GPU",
        ),
        (
            &[("memory", "8GiB"), ("total", "all")],
            "\"all\" is not one of slice, device",
        ),
        (&[("memory", "8GiB"), ("share", "node")], "pod, container"),
        (
            &[("memory", "8GiB"), ("managed", "never")],
            "gpuslice.io/managed: \"never\" is not one of count, allow",
        ),
        (
            &[("memory", "8GiB"), ("pressure", "high")],
            "\"high\" is not one of refuse, release",
        ),
        (
            &[("pressure", "release")],
            "gpuslice.io/pressure needs a size (add gpuslice.io/memory)",
        ),
        (
            &[("total", "slice")],
            "gpuslice.io/total needs a size (add gpuslice.io/memory)",
        ),
        (&[("share", "pod")], "needs a size (add gpuslice.io/memory)"),
        (&[("container.log.memroy", "8GiB")], "unknown annotation"),
        (&[("container.log", "8GiB")], "unknown annotation"),
    ] {
        let error = read_as(Some("a"), pairs).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

proptest::proptest! {
    #[test]
    fn any_annotations_are_read_or_refused_without_a_panic(
        pairs in proptest::collection::btree_map(
            "(gpuslice.io/)?(memory|share|containers|container)?[.a-z0-9]{0,12}", ".{0,12}", 0..6,
        ),
    ) {
        let _ = read(&pairs, &Identity::default());
    }
}

#[test]
fn what_an_error_shows_of_an_annotation_is_short_and_one_line() {
    let long = "9".repeat(1 << 20);
    for pairs in [
        [("memory", long.as_str())],
        [("total", "a\u{1b}[2J\nb")],
        [(long.as_str(), "8GiB")],
        [("memory.\n", "8GiB")],
    ] {
        let said = read_as(None, &pairs).unwrap_err().to_string();
        assert!(said.len() < 400, "{} bytes", said.len());
        assert!(!said.chars().any(char::is_control), "{said:?}");
    }
}
