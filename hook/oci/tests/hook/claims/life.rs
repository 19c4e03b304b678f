//! Slices of claims from their options to their end: unified memory, the driver's limit, kills, events, resizes.
//! Touches: as the other tests of claims.

use super::{GIB, claim, ledger, record, refused, starts, stops, using};
use crate::events::{events, is_refused};
use crate::resized::{limit, resize};
use crate::support::{CARD, Container, Host, SPARK, is_root};
use gpuslice_config::words::units::Bytes;
use gpuslice_hook::base::crash_points::CRASH_POINTS;
use serde_json::Value;
use std::fs;
use std::os::unix::process::ExitStatusExt;

#[test]
fn options_of_a_claim_are_those_of_annotations() {
    if !is_root() {
        return;
    }
    let host = Host::spark();
    let mut words = claim("c-1", SPARK, "10GiB");
    let options = [
        ("total", "device"),
        ("present-as", "discrete"),
        ("headroom", "1GiB"),
        ("page-cache", "keep"),
        ("fence", "preload"),
    ];
    for (option, value) in options {
        words.extend([format!("--{option}"), value.to_owned()]);
    }
    let claims = [words];
    let memory = format!("gpuslice.io/memory.{SPARK}");
    let keys = options.map(|(option, value)| (format!("gpuslice.io/{option}"), value));
    let mut annotations: Vec<(&str, &str)> = vec![(&memory, "10GiB")];
    annotations.extend(keys.iter().map(|(key, value)| (key.as_str(), *value)));
    let slice = |container: &Container<'_>| {
        let text = fs::read(container.inside(".gpuslice/slice.json")).unwrap();
        let mut slice: Value = serde_json::from_slice(&text).unwrap();
        let members = slice.as_object_mut().unwrap();
        members.retain(|key, _| key != "name" && key != "ledger_id");
        slice
    };
    let (by_claim, by_annotation) = (
        using(&host, "p1", &[], &claims),
        using(&host, "p2", &annotations, &[]),
    );
    starts(&by_claim, &claims);
    by_annotation.is_given_its_slice();
    assert_eq!(slice(&by_claim), slice(&by_annotation));
}

#[test]
fn a_claim_of_unified_memory_is_promised_once() {
    if !is_root() {
        return;
    }
    let host = Host::spark();
    host.policy("reserve = \"8GiB\"");
    let claims = [claim("c-1", SPARK, "60GiB")];
    let (one, two) = (
        using(&host, "p1", &[], &claims),
        using(&host, "p2", &[], &claims),
    );
    starts(&one, &claims);
    starts(&two, &claims);
    assert_eq!(fs::read_dir(host.run("promises")).unwrap().count(), 1);
    fs::write(one.inside(".gpuslice/promise"), "spent").unwrap();
    assert!(
        fs::read(two.inside(".gpuslice/promise"))
            .unwrap()
            .starts_with(b"spent")
    );
    stops(&one, &claims);
    assert_eq!(fs::read_dir(host.run("promises")).unwrap().count(), 1);
    stops(&two, &claims);
    assert_eq!(host.left(), Vec::<String>::new());
}

#[test]
fn a_claim_that_the_driver_holds_has_one_container() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let words = |fence: &str| {
        let mut words = claim("c-1", CARD, "8GiB");
        words.extend(["--fence".to_owned(), fence.to_owned()]);
        [words]
    };
    fs::write(host.path("etc/gpuslice/config.toml"), "").unwrap();
    let (driver, library) = (words("driver"), words("preload"));
    // No driver limits these containers, because they have no cgroups.
    let said = refused(&using(&host, "p1", &[], &driver), &driver[0]);
    assert!(
        said.contains("the driver cannot enforce the limit"),
        "{said}"
    );
    let one = using(&host, "p1", &[], &library);
    starts(&one, &library);
    let said = refused(&using(&host, "p2", &[], &driver), &driver[0]);
    assert!(
        said.contains("slice c-1 is used by team/p1/c alone"),
        "{said}"
    );
    // The record of a slice that the driver holds, as the first container's hook writes it.
    let held = record(&host);
    let path = host.run(&format!("slices/{}.json", held["slice"].as_str().unwrap()));
    fs::write(
        path,
        held.to_string()
            .replace("\"shared\":true", "\"shared\":false"),
    )
    .unwrap();
    let said = refused(&using(&host, "p2", &[], &library), &library[0]);
    assert!(
        said.contains("slice c-1 is used by team/p1/c alone"),
        "{said}"
    );
    stops(&one, &library);
    assert_eq!(host.left(), Vec::<String>::new());
}

#[test]
fn killed_at_any_step_a_container_leaves_the_claims_slice_to_others() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let claims = [claim("c-1", CARD, "24GiB")];
    let die = |container: &Container<'_>, step: &str| {
        let words: Vec<&str> = claims[0].iter().map(String::as_str).collect();
        let said = container.hook(&[&words[..], &["--die-at", step, "createRuntime"]].concat());
        assert_eq!(said.status.signal(), Some(9), "{step}: {said:?}");
    };
    for step in CRASH_POINTS {
        // The first container of the claim is killed: the next one has the slice, and nothing else.
        let mut killed = using(&host, "killed", &[], &claims);
        die(&killed, step);
        let second = using(&host, "second", &[], &claims);
        starts(&second, &claims);
        killed.dies();
        let third = using(&host, "third", &[], &claims);
        starts(&third, &claims);
        assert_eq!(ledger(&second), ledger(&third), "{step}");
        // A later one is killed: the others keep their ledger.
        let mut killed = using(&host, "later", &[], &claims);
        match step {
            // It mounts no ledger, because there is one.
            "ledger-mounted" => starts(&killed, &claims),
            step => die(&killed, step),
        }
        killed.dies();
        host.collect();
        assert_eq!(
            record(&host)["containers"].as_array().unwrap().len(),
            2,
            "{step}"
        );
        assert!(
            host.container("late").is_refused().contains("0 B left"),
            "{step}"
        );
        stops(&second, &claims);
        stops(&third, &claims);
        assert_eq!(host.left(), Vec::<String>::new(), "{step}");
        // The same container can be tried again.
        let again = using(&host, "again", &[], &claims);
        die(&again, step);
        starts(&again, &claims);
        stops(&again, &claims);
        assert_eq!(host.left(), Vec::<String>::new(), "{step}");
    }
}

#[test]
fn the_events_of_a_claims_slice_name_its_containers() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let claims = [claim("c-1", CARD, "8GiB")];
    let (one, two) = (
        using(&host, "p1", &[], &claims),
        using(&host, "p2", &[], &claims),
    );
    starts(&one, &claims);
    starts(&two, &claims);
    let slice = record(&host)["slice"].as_str().unwrap().to_owned();
    is_refused(&host, &slice, Bytes::mib(38));
    stops(&one, &claims);
    stops(&two, &claims);
    let told: Vec<String> = events(&host)
        .iter()
        .map(|event| format!("{} {}", event.slice, event.message))
        .collect();
    let refused = "ended; one allocation of the claim's slice was refused";
    let expected = [
        "team/p1/c started".to_owned(),
        "team/p2/c started".to_owned(),
        format!("team/p1/c {refused}"),
        format!("team/p2/c {refused}"),
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_claims_slice_is_resized_for_all_its_containers() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let claims = [claim("c-1", CARD, "8GiB")];
    let (one, two) = (
        using(&host, "p1", &[], &claims),
        using(&host, "p2", &[], &claims),
    );
    starts(&one, &claims);
    let (_, err, status) = resize(&host, &["team/p1/c", "10GiB"]);
    assert_eq!((err.as_str(), status), ("", 0));
    // A container that joins asks for the claim's size, and has the slice's.
    starts(&two, &claims);
    assert_eq!(limit(&host, "p2"), 10 * GIB);
    stops(&one, &claims);
    let (_, err, status) = resize(&host, &["p2", "12GiB"]);
    assert_eq!((err.as_str(), status), ("", 0));
    assert_eq!(record(&host)["named"], "c-1");
    let late = host.asking("late", &[("gpuslice.io/memory", "13GiB")]);
    assert!(late.is_refused().contains("held by team/p2/c 12.00 GiB"));
    stops(&two, &claims);
    assert_eq!(host.left(), Vec::<String>::new());
}
