//! The time that a slice adds to the start of a container, and the time that the hook itself takes.
//! Touches: machines of their own, in namespaces.

use super::Setting;
use crate::measure::figure::{Measured, Unit};
use crate::measure::readings::Reading;
use crate::measure::rounds::interleave;
use anyhow::{Context, Result, bail, ensure};
use gpuslice_containers::bundle::Oci;
use gpuslice_containers::host::Host;
use gpuslice_containers::ready;
use gpuslice_containers::spec::Spec;
use serde_json::{Value, json};
use std::time::Instant;

const HOOK: &str = "/usr/bin/gpuslice-hook";
const NOTHING: &str = "/run/build/containers/static/bin/hello";

pub(crate) fn starts(setting: &Setting) -> Result<Measured> {
    if let Some(reason) = ready::obstacle().or_else(ready::missing_step) {
        bail!(reason);
    }
    let mut measured = Measured::default();
    for runtime in ["runc", "crun"] {
        measured.join(started_by(setting, runtime)?);
    }
    measured.join(own_time(setting)?);
    Ok(measured)
}

/// The hooks of a container: a program at a stage, and at poststop if `stop` is set.
fn hooked(stage: &str, program: &str, stop: bool) -> Value {
    let hook = |stage: &str| json!([{"path": program, "args": [program, stage], "env": ["PATH=/usr/bin"]}]);
    let mut hooks = serde_json::Map::new();
    hooks.insert(stage.to_owned(), hook(stage));
    if stop {
        hooks.insert("poststop".to_owned(), hook("poststop"));
    }
    Value::Object(hooks)
}

/// A container whose program ends at once.
fn container(name: &str) -> Spec {
    Spec::new(name)
        .memory("1GiB")
        .running(&["/usr/bin/busybox", "true"])
}

fn started_by(setting: &Setting, runtime: &'static str) -> Result<Measured> {
    let host = Host::new();
    let variants = [
        ("no hook", json!({})),
        (
            "a static hook that does nothing",
            hooked("createRuntime", NOTHING, false),
        ),
        (
            "gpuslice-hook, createRuntime",
            hooked("createRuntime", HOOK, false),
        ),
        (
            "gpuslice-hook, createRuntime and poststop",
            hooked("createRuntime", HOOK, true),
        ),
        (
            "gpuslice-hook, createContainer and poststop",
            hooked("createContainer", HOOK, true),
        ),
    ];
    for (place, (_, hooks)) in variants.iter().enumerate() {
        let mut oci = Oci::without_hooks(&host, runtime);
        oci.hooks = hooks.clone();
        oci.prepare(&container(&format!("start{place}")));
    }
    let names: Vec<String> = variants
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .collect();
    interleave(&names, setting.effort.plan(100), |place| {
        let name = format!("start{place}");
        let bundle = Oci::bundle(&name);
        let quiet = ">/dev/null 2>&1 </dev/null";
        let start = format!("{runtime} run -d -b {bundle} {name} {quiet}");
        let removal = format!("{runtime} delete -f {name} {quiet}");
        let mut readings = Vec::new();
        for (what, line) in [("start", start), ("removal", removal)] {
            let began = Instant::now();
            let done = host.sh(&line);
            let nanoseconds = began.elapsed().as_secs_f64() * 1e9;
            ensure!(done.code == 0, "{line}: {}", done.err);
            let figure = format!("{runtime}: {what} of a container");
            readings.push(Reading::one(figure, Unit::Nanoseconds, nanoseconds));
        }
        Ok(readings)
    })
}

/// The hook from fork to exit, as a runtime waits for it.
fn own_time(setting: &Setting) -> Result<Measured> {
    let host = Host::new();
    let stages = ["createRuntime", "createContainer"];
    for stage in stages {
        let mut oci = Oci::new(&host, "crun", stage);
        let (timed, file) = ("/run/build/containers/timed", format!("/run/times-{stage}"));
        let hook = json!([{"path": timed, "args": ["timed", file, HOOK, stage], "env": ["PATH=/usr/bin"]}]);
        if let Some(hooks) = oci.hooks.as_object_mut() {
            hooks.insert(stage.to_owned(), hook);
        }
        oci.prepare(&container(stage));
    }
    let names = stages.map(|stage| format!("gpuslice-hook, {stage}"));
    let each = setting.effort.of(20, 3);
    let mut plan = setting.effort.plan(25);
    plan.compares = false;
    interleave(&names, plan, |place| {
        let stage = stages.get(place).context("a stage")?;
        let bundle = Oci::bundle(stage);
        let done = host.sh(&format!(
            "rm -f /run/times-{stage}; for i in $(seq {each}); do crun run -b {bundle} {stage} </dev/null >/dev/null || exit 1; done"
        ));
        ensure!(done.code == 0, "crun: {}", done.err);
        let text = std::fs::read_to_string(host.path(&format!("/run/times-{stage}")))?;
        let column = |figure: &str, index: usize| {
            let field = |line: &str| line.split(' ').nth(index)?.parse::<f64>().ok();
            Reading {
                figure: figure.to_owned(),
                unit: Unit::Nanoseconds,
                count: None,
                values: text.lines().filter_map(field).collect(),
            }
        };
        Ok(vec![
            column("the hook itself", 0),
            column("the hook itself, processor time", 1),
        ])
    })
}
