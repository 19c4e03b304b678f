//! Tests a session: registration, configuration, the containers that are created, its end.
//! Touches: socket pairs, temporary folders.

use crate::engine::{Host, pod};
use gpuslice_dra::nri::api::{RegisterRequest, SynchronizeRequest};
use gpuslice_dra::nri::ttrpc::Status;
use gpuslice_dra::nri::{End, SessionError};
use std::io::Write;
#[test]
fn a_plugin_registers_subscribes_and_adjusts_what_asks_for_a_slice() {
    let host = Host::new("");
    let (mut engine, served) = host.session();
    let registration = engine.register(Ok(Vec::new()));
    assert_eq!(
        registration,
        RegisterRequest {
            plugin_name: "gpuslice".into(),
            plugin_idx: "10".into()
        }
    );
    engine.call("Configure", &RegisterRequest::default());
    engine.call("Synchronize", &SynchronizeRequest::default());
    let asking = pod(&[("gpuslice.io/memory", "8GiB"), ("other", "x")]);
    let adjustment = engine.create(&asking, "main").unwrap();
    assert_eq!(adjustment.annotations.len(), 1);
    assert_eq!(
        adjustment.hooks.unwrap().create_runtime[0].args,
        ["gpuslice-hook", "createRuntime"]
    );
    assert_eq!(engine.create(&pod(&[("other", "x")]), "main"), None);
    drop(engine);
    assert_eq!(served.join().unwrap().unwrap(), End::Closed);
}

#[test]
fn messages_arrive_whole_however_the_engine_cuts_its_frames() {
    let host = Host::new("");
    let (mut engine, _served) = host.configured();
    let long = "x".repeat(20_000);
    let pod = pod(&[
        ("gpuslice.io/memory", "8GiB"),
        ("gpuslice.io/unknown", &long),
    ]);
    for frame in [1, 7, 10, 4096, usize::MAX] {
        engine.frame = frame;
        let adjustment = engine.create(&pod, "main").unwrap();
        assert_eq!(
            adjustment.annotations["gpuslice.io/unknown"], long,
            "{frame}"
        );
    }
}

#[test]
fn the_policy_is_read_again_for_each_container() {
    let host = Host::new("");
    let (mut engine, _served) = host.configured();
    let kai = pod(&[("gpu-memory", "8192")]);
    assert_eq!(engine.create(&kai, "main"), None);
    let policy = host.folder.path().join("etc/gpuslice/config.toml");
    std::fs::write(&policy, "[dialects]\nkai = true").unwrap();
    assert!(engine.create(&kai, "main").is_some());
    // With a policy that cannot be used, the hook decides, and refuses what asks for a slice.
    std::fs::write(&policy, "nonsense").unwrap();
    assert!(engine.create(&kai, "main").is_some());
}

#[test]
fn a_call_that_is_not_understood_is_answered_with_an_error() {
    let host = Host::new("");
    let (mut engine, _served) = host.configured();
    let unknown = engine
        .call("Evict", &RegisterRequest::default())
        .status
        .unwrap();
    assert_eq!(unknown.code, 12);
    assert!(
        unknown.message.contains("Plugin.Evict"),
        "{}",
        unknown.message
    );
    // An argument of another type: an engine refuses the container then.
    let broken = engine.call(
        "CreateContainer",
        &RegisterRequest {
            plugin_name: "\u{1}".into(),
            plugin_idx: String::new(),
        },
    );
    let status = broken.status.unwrap();
    assert_eq!(status.code, 9);
    assert!(
        status.message.starts_with("gpuslice: CreateContainer: "),
        "{}",
        status.message
    );
    // The connection goes on.
    assert!(
        engine
            .create(&pod(&[("gpuslice.io/memory", "1GiB")]), "main")
            .is_some()
    );
}

#[test]
fn a_plugin_that_is_refused_says_why() {
    let host = Host::new("");
    let (mut engine, served) = host.session();
    engine.register(Err(Status {
        code: 2,
        message: "no plugins here".to_owned(),
    }));
    let error = served.join().unwrap().unwrap_err();
    assert!(
        matches!(&error, SessionError::Refused(why) if why == "no plugins here"),
        "{error}"
    );
}

#[test]
fn what_is_not_nri_ends_the_session() {
    let host = Host::new("");
    for bytes in [
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        [[0, 0, 0, 1, 0, 0, 0, 10].as_slice(), &[255; 10]].concat(),
    ] {
        let (mut engine, served) = host.session();
        let _ = engine.stream.write_all(&bytes);
        drop(engine);
        served.join().unwrap().unwrap_err();
    }
}

#[test]
fn a_shutdown_is_answered_and_ends_the_session() {
    let host = Host::new("");
    let (mut engine, served) = host.configured();
    assert_eq!(
        engine.call("Shutdown", &RegisterRequest::default()).status,
        None
    );
    assert_eq!(served.join().unwrap().unwrap(), End::Shutdown);
}
