//! Measures the time that a slice adds to the start of a container, and the time that the hook
//! itself takes.
//! Touches: a machine of its own. Asserts nothing, because timings vary from run to run.
//!
//! Budget: the hook itself p50 <= 1 ms, p99 <= 5 ms; a start with the hook takes at most 3 ms
//! longer than one without. A start is measured until the container's program runs. The poststop
//! hook is measured as part of the removal. Starts are paired: every round starts one container of
//! each kind, and the report gives the median of the differences.

use gpuslice_containers::bundle::Oci;
use gpuslice_containers::host::Host;
use gpuslice_containers::ready::ready;
use gpuslice_containers::spec::Spec;
use serde_json::{Value, json};
use std::time::Instant;

const ROUNDS: usize = 120;

fn main() {
    if !ready() {
        return;
    }
    for binary in ["runc", "crun"] {
        starts(binary);
    }
    own_time();
}

/// The hooks of a container: this program at a stage, and at poststop if `stop` is set.
fn hooked(stage: &str, program: &str, stop: bool) -> Value {
    let hook = |stage: &str| json!([{"path": program, "args": [program, stage], "env": ["PATH=/usr/bin"]}]);
    let mut hooks = json!({ stage: hook(stage) });
    if stop {
        hooks["poststop"] = hook("poststop");
    }
    hooks
}

fn starts(binary: &'static str) {
    let host = Host::new();
    let variants: Vec<(&str, Value)> = vec![
        ("no hook", json!({})),
        (
            "a static hook that does nothing, createRuntime",
            hooked(
                "createRuntime",
                "/run/build/containers/static/bin/hello",
                false,
            ),
        ),
        (
            "gpuslice-hook, createRuntime",
            hooked("createRuntime", "/usr/bin/gpuslice-hook", false),
        ),
        (
            "gpuslice-hook, createRuntime and poststop",
            hooked("createRuntime", "/usr/bin/gpuslice-hook", true),
        ),
        (
            "gpuslice-hook, createContainer and poststop",
            hooked("createContainer", "/usr/bin/gpuslice-hook", true),
        ),
    ];
    let mut bundles = Vec::new();
    for (index, (_, hooks)) in variants.iter().enumerate() {
        let mut oci = Oci::without_hooks(&host, binary);
        oci.hooks = hooks.clone();
        let name = format!("start{index}");
        oci.prepare(
            &Spec::new(&name)
                .memory("1GiB")
                .running(&["/usr/bin/busybox", "true"]),
        );
        bundles.push((name.clone(), Oci::bundle(&name)));
    }
    let mut times: Vec<Times> = vec![Times::default(); variants.len()];
    for _ in 0..ROUNDS {
        for ((name, bundle), times) in bundles.iter().zip(&mut times) {
            let quiet = ">/dev/null 2>&1 </dev/null";
            times.start.push(timed(
                &host,
                &format!("{binary} run -d -b {bundle} {name} {quiet}"),
            ));
            times
                .delete
                .push(timed(&host, &format!("{binary} delete -f {name} {quiet}")));
        }
    }
    println!(
        "\n{binary}, {ROUNDS} rounds, interleaved: milliseconds, and what is added to the same round without a hook"
    );
    let bare = times.first().cloned().unwrap_or_default();
    for ((name, _), times) in variants.iter().zip(&times) {
        let row = |own: &[f64], bare: &[f64]| {
            let mut added: Vec<f64> = own.iter().zip(bare).map(|(own, bare)| own - bare).collect();
            format!(
                "p50 {:>6.2}  added {:>5.2}",
                at(&mut own.to_vec(), 50),
                at(&mut added, 50)
            )
        };
        println!(
            "  {name:<48} start {}   delete {}",
            row(&times.start, &bare.start),
            row(&times.delete, &bare.delete)
        );
    }
}

/// The times of one variant: until its program runs, and for its removal.
#[derive(Clone, Default)]
struct Times {
    start: Vec<f64>,
    delete: Vec<f64>,
}

fn timed(host: &Host, line: &str) -> f64 {
    let start = Instant::now();
    let done = host.sh(line);
    let took = start.elapsed();
    assert_eq!(done.code, 0, "{line}: {done:?}");
    took.as_secs_f64() * 1e3
}

/// Measures the hook from fork to exit, as a runtime waits for it.
fn own_time() {
    let host = Host::new();
    for stage in ["createRuntime", "createContainer"] {
        let file = format!("/run/times-{stage}");
        let mut oci = Oci::new(&host, "crun", stage);
        let timed = "/run/build/containers/timed";
        oci.hooks[stage] = json!([{"path": timed, "args": ["timed", file, "/usr/bin/gpuslice-hook", stage], "env": ["PATH=/usr/bin"]}]);
        oci.prepare(
            &Spec::new("own")
                .memory("1GiB")
                .running(&["/usr/bin/busybox", "true"]),
        );
        let bundle = Oci::bundle("own");
        host.sh(&format!(
            "for i in $(seq 500); do crun run -b {bundle} own </dev/null || exit 1; done"
        ))
        .ok();
        let text = std::fs::read_to_string(host.path(&file)).unwrap_or_default();
        let column = |index: usize| -> Vec<f64> {
            let field = |line: &str| line.split(' ').nth(index)?.parse::<f64>().ok();
            text.lines().filter_map(field).map(|ns| ns / 1e6).collect()
        };
        let (mut clock, mut processor) = (column(0), column(1));
        println!(
            "\nthe hook itself, {stage}, {} starts: p50 {:.2} ms (budget 1), p99 {:.2} ms (budget 5), least {:.2} ms; of a processor p50 {:.2} ms",
            clock.len(),
            at(&mut clock, 50),
            at(&mut clock, 99),
            at(&mut clock, 0),
            at(&mut processor, 50),
        );
    }
}

/// Returns a percentile.
fn at(all: &mut [f64], percent: usize) -> f64 {
    all.sort_by(f64::total_cmp);
    let index = (all.len() * percent / 100).min(all.len().saturating_sub(1));
    all.get(index).copied().unwrap_or(f64::NAN)
}
