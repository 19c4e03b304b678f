//! `gpuslice status` for a container that started without its slice because the host failed
//! (`on-error` = `"start"`), on a simulated host.

use crate::support::{Home, Installation, told};
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::machine::process::InitProcess;
use gpuslice_host::slices::records::{Member, Registry, SliceRecord};
use serde_json::{Value, json};
use std::process::{Command, Stdio};

const WHY: &str = "no list of GPUs exists (run gpuslice devices --write)";

#[test]
fn a_container_that_started_because_the_host_failed_is_shown_without_a_slice() {
    let (home, here) = (Home::new(), Installation::new("unsliced"));
    let root = tempfile::tempdir_in("/dev/shm").unwrap();
    let places = HostPaths::below(root.path());
    let mut sleep = Command::new("sleep");
    let mut process = sleep.arg("1000").stdin(Stdio::null()).spawn().unwrap();
    let pid = process.id();
    let member = Member {
        id: "c1".to_owned(),
        name: "team/server".to_owned(),
        owner: InitProcess::of(i32::try_from(pid).unwrap()).unwrap(),
        bundle: "/bundle".into(),
        drops: Vec::new(),
        pod: None,
        no_slice: Some(WHY.to_owned()),
        not_limited: None,
        claims: None,
    };
    let record = SliceRecord {
        version: SliceRecord::VERSION,
        slice: "c1".to_owned(),
        name: "team/server".to_owned(),
        namespace: None,
        shared: false,
        sandbox: None,
        named: None,
        devices: Vec::new(),
        promised: None,
        before_resize: None,
        containers: vec![member],
    };
    Registry::lock(&places).unwrap().write(&record).unwrap();
    let said = |words: &[&str]| {
        let mut command = here.gpuslice();
        command.args(words).arg("--root").arg(root.path());
        told(home.of(&mut command))
    };
    let warning =
        format!("! container c1 (team/server) has no slice: {WHY} (gpuslice doctor c1)\n");
    let status = said(&["status"]);
    let details = said(&["status", "c1"]).0;
    let json = said(&["status", "--json"]);
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!((status.1.as_str(), status.2), ("", 0));
    assert!(
        status.0.contains("  team/server  ") && status.0.ends_with(&warning),
        "{}",
        status.0
    );
    assert!(
        details.starts_with(&format!("team/server (container c1, pid {pid})\n")),
        "{details}"
    );
    assert!(details.ends_with(&format!("  {warning}")), "{details}");
    let slice: Value = serde_json::from_str(&json.0).unwrap();
    let slice = &slice["slices"][0];
    assert_eq!(
        json!([
            slice["name"],
            slice["no_slice"],
            slice["error"],
            slice["ledger"],
            slice["devices"]
        ]),
        json!(["team/server", WHY, null, null, []])
    );
    assert_eq!(slice["containers"][0]["no_slice"], WHY);
}
