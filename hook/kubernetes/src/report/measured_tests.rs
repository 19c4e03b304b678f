//! The measurement of shares, by the files that the hook leaves on a node.

use super::*;
use gpuslice_config::ledger::{Ledger, Open, SetLimit};
use gpuslice_host::machine::process::InitProcess;
use gpuslice_host::slices::records::DeviceBudget;
use std::fs;

const CARD: &str = "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";

fn share() -> PreparedShare {
    PreparedShare {
        slice: "claim-a".to_owned(),
        id: None,
        uuid: CARD.parse().unwrap(),
        memory: Bytes::gib(8),
    }
}

/// A record of a container whose first process is this one.
fn record(id: &str, named: Option<&str>, budget: Option<Bytes>) -> SliceRecord {
    SliceRecord {
        version: SliceRecord::VERSION,
        slice: id.to_owned(),
        name: format!("team/{id}/c"),
        namespace: None,
        shared: true,
        sandbox: None,
        named: named.map(str::to_owned),
        devices: budget
            .map(|memory| DeviceBudget {
                uuid: CARD.parse().unwrap(),
                memory,
                integrated: false,
            })
            .into_iter()
            .collect(),
        promised: None,
        before_resize: None,
        containers: vec![Member {
            id: id.to_owned(),
            name: format!("team/{id}/c"),
            owner: InitProcess::of(i32::try_from(std::process::id()).unwrap()).unwrap(),
            bundle: "/bundle".into(),
            drops: Vec::new(),
            no_slice: None,
            not_limited: None,
            claims: None,
            pod: None,
        }],
    }
}

/// As the hook records a container that starts without a slice.
fn without_a_slice(id: &str, claims: &str) -> SliceRecord {
    let mut record = record(id, None, None);
    record.containers[0].no_slice = Some("no list of GPUs exists".to_owned());
    record.containers[0].claims = Some(claims.to_owned());
    record
}

#[test]
fn a_container_that_started_without_a_slice_is_found_by_its_claims() {
    let folder = tempfile::tempdir().unwrap();
    let host = HostPaths::below(folder.path());
    let of = |records: &[SliceRecord]| measure(&host, &share(), records, &mut Vec::new());
    assert_eq!(of(&[record("one", Some("claim-b"), None)]), None);
    assert_eq!(of(&[without_a_slice("one", "claim-b")]), None);
    let alone = of(&[without_a_slice("two", "claim-0,claim-a")]).unwrap();
    let why = Some("container team/two/c: no list of GPUs exists".to_owned());
    assert_eq!((alone.limit, &alone.without), (Bytes::gib(8), &why));
    // Another container of the claim has the slice: both are measured.
    let own = record("one", Some("claim-a"), Some(Bytes::gib(6)));
    let both = of(&[without_a_slice("two", "claim-a"), own]).unwrap();
    assert_eq!((both.limit, &both.without), (Bytes::gib(6), &why));
}

#[test]
fn a_limit_that_a_program_writes_into_its_ledger_is_not_reported() {
    let folder = tempfile::tempdir().unwrap();
    let host = HostPaths::below(folder.path());
    fs::create_dir_all(host.ledger("one")).unwrap();
    let path = std::ffi::CString::new(host.ledger_file("one").to_str().unwrap()).unwrap();
    let create = Open::Create {
        mode: 0o600,
        devices: 1,
    };
    let ledger = Ledger::open(&path, create).unwrap();
    let device = ledger.device(&CARD.parse().unwrap()).unwrap();
    assert!(ledger.set_limit(device, SetLimit::of(Bytes::gib(80)).unwrap()));
    let own = record("one", Some("claim-a"), Some(Bytes::gib(6)));
    let measured = measure(&host, &share(), &[own], &mut Vec::new()).unwrap();
    assert_eq!(measured.used, Some(Bytes::ZERO));
    assert_eq!(measured.limit, Bytes::gib(6));
}
