//! Names that would leave their folder, and calls of services that do not exist.

use crate::claims::{CARD, UID, claim, result, simple};
use crate::driver::Node;
use crate::kubelet::{V1, named};
use gpuslice_dra::kubelet::messages::Claim;
use std::fs;

const BAD: [&str; 7] = [
    "",
    "..",
    "../../../etc/passwd",
    "4f8f2b6c-0a1b-4c3d-8e9f-001122334455/../x",
    "4F8F2B6C-0A1B-4C3D-8E9F-001122334455",
    "a\u{0}b",
    "a?watch=true",
];

#[test]
fn a_name_that_is_no_name_reaches_neither_a_path_nor_a_request() {
    let (node, kubelet) = Node::registered();
    let asked = |node: &Node| {
        let kept = node.api.kept();
        let claims = kept.asked.iter().filter(|one| one.contains("claims"));
        claims.count()
    };
    fs::create_dir_all(node.path("cdi")).unwrap();
    fs::write(node.path("x"), "kept").unwrap();
    for bad in BAD {
        let claim = |namespace: &str, name: &str, uid: &str| Claim {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
        };
        for named in [
            claim(bad, "c1", UID),
            claim("default", bad, UID),
            claim("default", "c1", bad),
        ] {
            let answer = kubelet.prepare_one(&named);
            assert!(answer.error.starts_with("gpuslice: "), "{named:?}");
        }
        let taken_back = kubelet.unprepare(&[claim("default", "c1", bad)]);
        assert!(
            taken_back.claims[bad].error.starts_with("gpuslice: uid "),
            "{bad:?}"
        );
    }
    assert_eq!(asked(&node), 0);
    assert!(node.cdi_files().is_empty());
    assert_eq!(fs::read_to_string(node.path("x")).unwrap(), "kept");
}

#[test]
fn a_share_id_that_is_no_uid_is_refused() {
    let (node, kubelet) = Node::registered();
    for bad in BAD {
        node.api
            .add_claim(claim("c1", UID, &[result("r", CARD, "8Gi", bad)], &[]));
        let error = kubelet.prepare_one(&named("c1", UID)).error;
        assert!(error.contains("is not a uid"), "{bad:?}: {error}");
    }
    assert!(node.cdi_files().is_empty());
}

#[test]
fn a_link_in_the_place_of_a_cdi_file_is_replaced_not_followed() {
    let (node, kubelet) = Node::registered();
    node.api.add_claim(simple());
    fs::create_dir_all(node.path("cdi")).unwrap();
    fs::write(node.path("victim"), "kept").unwrap();
    for end in ["json", "new"] {
        let link = node
            .path("cdi")
            .join(format!("k8s.gpuslice.io-claim-{UID}.{end}"));
        std::os::unix::fs::symlink(node.path("victim"), link).unwrap();
    }
    assert_eq!(kubelet.prepare_one(&named("c1", UID)).error, "");
    assert_eq!(fs::read_to_string(node.path("victim")).unwrap(), "kept");
    assert_eq!(node.cdi(UID)["kind"], "k8s.gpuslice.io/claim");
    assert_eq!(node.cdi_files().len(), 1);
}

#[test]
fn an_unknown_service_is_refused_and_the_driver_goes_on() {
    let (node, kubelet) = Node::registered();
    node.api.add_claim(simple());
    for (service, method) in [("x.Y", "Z"), (V1, "Nothing")] {
        assert_eq!(kubelet.refusal(service, method), "status 12");
    }
    assert_eq!(kubelet.prepare_one(&named("c1", UID)).error, "");
}
