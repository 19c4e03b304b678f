//! Fuzzes the kubelet's calls, the claims of the API server, and the CDI files of prepared claims.
//! A claim's file is in its folder, and is read back as the claim that it was written from.
//! Touches: its input; a folder below TMPDIR.
#![no_main]

use gpuslice_config::words::units::Bytes;
use gpuslice_hook::request::arguments;
use gpuslice_readers::base::names::{Uid, subdomain};
use gpuslice_readers::claims::allocation::{self, Share};
use gpuslice_readers::claims::cdi::{self, Granted};
use gpuslice_readers::claims::gpu::Access;
use gpuslice_readers::claims::prepared;
use gpuslice_readers::messages::{Claim, Claims, Prepared, RegistrationStatus};
use k8s_openapi::api::resource::v1::ResourceClaim;
use prost::Message;
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

const GPU: &str = "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";

// The input is a message of the kubelet, a claim, or a CDI file.
libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Ok(claims) = Claims::decode(input) {
        assert_eq!(
            Claims::decode(claims.encode_to_vec().as_slice()),
            Ok(claims.clone())
        );
        claims.claims.iter().for_each(names);
    }
    let _ = (RegistrationStatus::decode(input), Prepared::decode(input));
    if let Ok(claim) = serde_json::from_slice::<ResourceClaim>(input) {
        prepare(&claim);
    }
    let uid: Uid = "4f8f2b6c-0a1b-4c3d-8e9f-001122334455"
        .parse()
        .expect("a uid");
    let folder = folder();
    fs::write(cdi::file(&folder, &uid), input).expect("the file is written");
    for claim in prepared::read(&folder) {
        assert_eq!(claim.uid, uid);
        assert!(subdomain("namespace", &claim.namespace).is_ok());
        for share in &claim.shares {
            assert!(share.slice.starts_with(uid.as_str()));
        }
    }
});

/// An empty folder.
fn folder() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("kubelet-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).expect("the folder is made");
    folder
}

fn names(claim: &Claim) {
    if let Ok(uid) = claim.uid.parse::<Uid>() {
        assert_eq!(uid.as_str(), claim.uid);
        let file = cdi::file(Path::new("/cdi"), &uid);
        assert_eq!(file.parent(), Some(Path::new("/cdi")));
    }
    for name in [&claim.namespace, &claim.name] {
        if subdomain("name", name).is_ok() {
            let mut parts = Path::new(name).components();
            assert!(matches!(
                (parts.next(), parts.next()),
                (Some(Component::Normal(_)), None)
            ));
        }
    }
}

fn prepare(claim: &ResourceClaim) {
    let Ok(uid) = claim
        .metadata
        .uid
        .as_deref()
        .unwrap_or_default()
        .parse::<Uid>()
    else {
        return;
    };
    let Ok(shares) = allocation::shares(claim, &uid, "node") else {
        return;
    };
    assert!(!shares.is_empty());
    let granted = |share: Share| {
        assert!(share.memory >= Bytes::mib(1) && share.pool == "node");
        Granted {
            share,
            uuid: GPU.parse().expect("a uuid"),
            access: Access::Nodes(Vec::new()),
        }
    };
    let granted: Vec<Granted> = shares.into_iter().map(granted).collect();
    let text = cdi::text(
        &uid,
        "team/chat",
        &granted,
        Path::new("/usr/bin/gpuslice-hook"),
    );
    // The largest file that is read: a claim has at most 32 devices.
    if text.len() > 1 << 20 {
        return;
    }
    let folder = folder();
    fs::write(cdi::file(&folder, &uid), &text).expect("the file is written");
    let read = prepared::read(&folder);
    let [read] = read.as_slice() else {
        panic!("{} claims are read of {text}", read.len())
    };
    assert_eq!(
        (&read.uid, &*read.namespace, &*read.name),
        (&uid, "team", "chat")
    );
    let memory = read.shares.iter().map(|share| share.memory);
    assert!(memory.eq(granted.iter().map(|one| one.share.memory)));
    let ids = read.shares.iter().map(|share| share.id.as_ref());
    assert!(ids.eq(granted.iter().map(|one| one.share.id.as_ref())));
    let file: serde_json::Value = serde_json::from_str(&text).expect("a CDI file is JSON");
    for device in file["devices"].as_array().expect("devices") {
        for hook in device["containerEdits"]["hooks"].as_array().expect("hooks") {
            let words = hook["args"].as_array().expect("arguments").iter().skip(1);
            let words = words.map(|word| OsString::from(word.as_str().expect("a text")));
            let read = arguments::parse(words);
            assert!(read.is_ok(), "the hook refuses {hook}: {read:?}");
        }
    }
}
