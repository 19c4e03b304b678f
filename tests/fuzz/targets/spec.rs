//! Fuzzes config.json, which may hold any text. A plan that is made of it stays in its folders.
//! Touches: its input.
#![no_main]

use gpuslice_hook::plan::{Decision, PlanInput, decide};
use gpuslice_hook::request::hook_slices::HookSlice;
use gpuslice_hook::request::spec;
use gpuslice_hook::request::state;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::machine::devices;
use gpuslice_host::machine::policy::Policy;

const STATE: &[u8] = br#"{"id":"c","pid":7,"bundle":"/b"}"#;
const DEVICES: &[u8] = br#"{"version":1,"devices":[{"uuid":"GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4",
    "index":0,"minor":0,"name":"Card","memory":25769803776,"integrated":true},
    {"uuid":"GPU-2b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4","index":1,"minor":1,"name":"Card","memory":25769803776}]}"#;

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let Ok(spec) = spec::parse(text) else { return };
    let (Ok(state), Ok(devices)) = (state::parse(STATE), devices::parse(DEVICES)) else {
        unreachable!("both are right")
    };
    let paths = HostPaths::default();
    let policy = Policy::default();
    let own = HookSlice::default();
    let given = PlanInput {
        state: &state,
        spec: &spec,
        policy: &policy,
        devices: &devices,
        paths: &paths,
        own: &own,
    };
    let Ok(Decision::Slice(plan)) = decide(&given) else {
        return;
    };
    assert!(state::is_id(&plan.slice));
    for file in &plan.files {
        assert!(file.path.starts_with("/run/gpuslice/containers/c/root"));
    }
    for mount in &plan.mounts {
        assert!(
            mount.target.starts_with("/.gpuslice") || mount.target.ends_with("etc/ld.so.preload")
        );
    }
});
