//! Claims that are refused: other sizes, annotations beside a claim, malformed arguments.
//! Touches: as the other tests of claims.

use super::{GIB, OTHER, claim, limits, record, refused, starts, stops, using};
use crate::support::{CARD, Host, is_root};

#[test]
fn a_claim_of_1_gib_with_an_annotation_of_18_gave_18() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let claims = [claim("c-1", CARD, "1GiB")];
    for (key, value, said) in [
        ("gpuslice.io/memory", "18GiB", "memory says 18.00 GiB"),
        ("gpuslice.io/memory.0", "18GiB", "memory.0 says 18.00 GiB"),
        (
            "gpuslice.io/container.c.memory",
            "18GiB",
            "memory says 18.00 GiB",
        ),
        (
            "gpuslice.io/share",
            "pod",
            "gpuslice.io/share contradicts a hook",
        ),
    ] {
        let container = using(&host, "p1", &[(key, value)], &claims);
        let told = refused(&container, &claims[0]);
        assert!(told.contains(said), "{told}");
        // The hook of the class runs as well, before or after the claim's.
        let told = refused(&container, &[]);
        assert!(told.contains(said), "{told}");
    }
    let equal = [
        ("gpuslice.io/memory", "1024MiB"),
        ("gpuslice.io/total", "device"),
        ("gpuslice.io/containers", "others"),
    ];
    let container = using(&host, "p1", &equal, &claims);
    starts(&container, &claims);
    assert_eq!(limits(&container), [(CARD.to_owned(), GIB)]);
    stops(&container, &claims);
    assert_eq!(host.left(), Vec::<String>::new());
}

#[test]
fn a_claim_is_used_with_one_size_and_the_other_is_named() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let claims = [claim("c-1", CARD, "8GiB")];
    let one = using(&host, "p1", &[], &claims);
    starts(&one, &claims);
    let other = [claim("c-1", CARD, "6GiB")];
    assert_eq!(
        refused(&using(&host, "p2", &[], &other), &other[0]),
        format!(
            "gpuslice: slice c-1 is shared with team/p1/c, which has another budget: 8.00 GiB of {CARD}, \
             and not 6.00 GiB of {CARD}\n"
        )
    );
    stops(&one, &claims);
    assert_eq!(host.left(), Vec::<String>::new());
}

#[test]
fn no_annotation_joins_the_slice_of_a_claim() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let claims = [claim("c-1", CARD, "20GiB")];
    let owner = using(&host, "p1", &[], &claims);
    starts(&owner, &claims);
    let slice = record(&host)["slice"].as_str().unwrap().to_owned();
    let stranger =
        |id: &str, annotations: &[(&str, &str)]| host.asking(id, annotations).is_refused();
    let memory = ("gpuslice.io/memory", "20GiB");
    let said = stranger("s1", &[memory, ("gpuslice.io/slice", "c-1")]);
    assert!(
        said.contains("unknown annotation gpuslice.io/slice"),
        "{said}"
    );
    // Its id on this host is no secret.
    let said = stranger(&slice, &[memory]);
    assert!(
        said.contains("is reserved for gpuslice's own slices"),
        "{said}"
    );
    // A pod that calls itself the claim's pod.
    let sandbox = format!("{:0>32}", "p1");
    let said = stranger(
        "s2",
        &[
            memory,
            ("gpuslice.io/share", "pod"),
            ("io.kubernetes.cri.sandbox-namespace", "team"),
            ("io.kubernetes.cri.sandbox-id", &sandbox),
        ],
    );
    assert!(said.contains("no room for"), "{said}");
    // A claim belongs to one namespace.
    let elsewhere = [("io.kubernetes.cri.sandbox-namespace", "another")];
    let said = refused(&using(&host, "p2", &elsewhere, &claims), &claims[0]);
    assert!(
        said.contains("slice c-1 is used by team/p1/c alone"),
        "{said}"
    );
    stops(&owner, &claims);
    assert_eq!(host.left(), Vec::<String>::new());
}

#[test]
fn a_malformed_argument_starts_no_container() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    // Not even where the policy lets a container start without its slice.
    host.policy("[on-error]\nannotated = \"start\"\nothers = \"start\"");
    let memory = format!("{CARD}=1GiB");
    let container = using(&host, "p1", &[], &[]);
    for (words, expected) in [
        (
            &["--slices", "a"][..],
            "unknown option --slices (see --help)",
        ),
        (
            &["--slice", "a"],
            "the options of a slice need its size (add --memory)",
        ),
        (
            &["--total", "slice"],
            "the options of a slice need its size (add --memory)",
        ),
        (
            &["--slice", "a/b", "--memory", &memory],
            "--slice \"a/b\" is a second name, or not a name",
        ),
        (
            &["--memory", "1GiB", "--slice", "a", "--slice", "b"],
            "--slice \"b\" is a second name",
        ),
        (
            &["--memory", "0=1GiB"],
            "--memory 0=1GiB: not a device uuid",
        ),
        (
            &["--memory", &memory, "--fence", "kernel"],
            "--fence: \"kernel\" is not one of",
        ),
        (
            &["--memory", &memory, "--headroom", "x"],
            "--headroom: \"x\": not a size",
        ),
    ] {
        let said = container.hook(&[words, &["createRuntime"]].concat());
        let told = String::from_utf8(said.stderr).unwrap();
        assert_eq!(said.status.code(), Some(2), "{told}");
        assert!(told.contains(expected), "{words:?}: {told}");
        // Another hook of the same container, such as that of its class, does not start it either.
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        if words[0] != "--slices" {
            let other = using(&host, "p2", &[], &[words]);
            assert!(refused(&other, &[]).contains(expected));
        }
    }
    let wrong = [claim("c", OTHER, "1GiB")];
    let said = refused(&using(&host, "p3", &[], &wrong), &wrong[0]);
    assert!(said.contains(&format!("there is no GPU {OTHER}")), "{said}");
    assert_eq!(host.left(), Vec::<String>::new());
}
