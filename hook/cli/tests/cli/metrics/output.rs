//! What `gpuslice metrics` prints and writes.

use super::{HERE, LLAMA, end, metrics, program, samples, slice, status, sum};
use crate::support::member::{GPU, Member, ledger_of};
use crate::support::{Home, told};
use gpuslice_config::ledger::Kind;
use gpuslice_config::words::units::Bytes;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

/// Lets promtool judge a text, with its rules on names and types.
fn check(text: &str) {
    let mut promtool = Command::new(program("promtool"))
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = promtool.stdin.take().unwrap();
    input.write_all(text.as_bytes()).unwrap();
    drop(input);
    let output = promtool.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.is_empty(), "{said}\n{text}");
}

#[test]
fn the_numbers_are_those_of_status() {
    let home = Home::new();
    let (child, config) = slice(&home, &[&LLAMA[..], &["--headroom=1GiB"]].concat());
    let member = Member::of(&config);
    member.take(Bytes::gib(3), Kind::Linear);
    member.take(Bytes::mib(256), Kind::Context);
    member.is_refused(Bytes::mib(41));
    member.is_refused(Bytes::mib(143));
    let text = metrics(&home, &[]);
    let all = samples(&text);
    let found = status(&home);
    let of_slice = &found["slices"][0];
    let device = &of_slice["devices"][0];
    let of_gpu = [
        r#"slice="llama""#,
        &format!(r#"gpu_uuid="{GPU}""#),
        r#"gpu="0""#,
    ];
    let number = |value: &serde_json::Value| value.as_f64();
    for (name, value) in [
        ("gpuslice_limit_bytes", &device["limit"]),
        ("gpuslice_used_bytes", &device["used"]),
        ("gpuslice_free_bytes", &device["left"]),
        ("gpuslice_headroom_bytes", &device["headroom"]),
        ("gpuslice_refusals_total", &device["refusals"]["count"]),
        (
            "gpuslice_refusal_shortfall_max_bytes",
            &device["refusals"]["worst_short_by"],
        ),
    ] {
        assert!(value.is_u64(), "{name}");
        assert_eq!(sum(&all, name, &of_gpu), number(value), "{name}");
    }
    let linear = [&of_gpu[..], &[r#"kind="linear""#]].concat();
    let bytes = 3.0 * f64::from(1u32 << 30);
    assert_eq!(sum(&all, "gpuslice_used_bytes", &linear), Some(bytes));
    assert_eq!(sum(&all, "gpuslice_usage_ratio", &of_gpu), Some(3.25 / 8.0));
    assert_eq!(sum(&all, "gpuslice_processes", &of_gpu), Some(1.0));
    let card = &found["cards"][0];
    let gpu = [format!(r#"gpu_uuid="{GPU}""#)];
    let gpu: Vec<&str> = gpu.iter().map(String::as_str).collect();
    for (name, key) in [
        ("gpuslice_gpu_total_bytes", "total"),
        ("gpuslice_gpu_used_bytes", "used"),
        ("gpuslice_gpu_in_slices_bytes", "in_slices"),
        ("gpuslice_gpu_outside_slices_bytes", "outside_slices"),
        ("gpuslice_gpu_left_bytes", "left_to_give"),
    ] {
        assert_eq!(
            sum(&all, name, &gpu),
            number(&card[key]),
            "{name} of {found}"
        );
    }
    check(&text);
    end(child);
}

#[test]
fn counters_grow_while_a_slice_lives_and_its_labels_stay() {
    let home = Home::new();
    let (child, config) = slice(&home, &LLAMA);
    let member = Member::of(&config);
    let mut before = samples(&metrics(&home, &[]));
    for _ in 0..3 {
        member.is_refused(Bytes::mib(1));
        let now = samples(&metrics(&home, &[]));
        let keys = |of: &std::collections::BTreeMap<String, f64>| {
            of.keys().cloned().collect::<Vec<String>>()
        };
        assert_eq!(keys(&before), keys(&now));
        let refusals = |of| sum(of, "gpuslice_refusals_total", &[]).unwrap();
        assert_eq!(refusals(&now), refusals(&before) + 1.0);
        before = now;
    }
    end(child);
}

#[test]
fn two_slices_of_one_name_are_told_apart() {
    let home = Home::new();
    let (one, _) = slice(&home, &LLAMA);
    let (two, _) = slice(&home, &LLAMA);
    // `samples` fails if a sample is there twice.
    let text = metrics(&home, &["--compatible", "hami,gpu-sharing"]);
    let all = samples(&text);
    let limits = |key: &&String| key.starts_with("gpuslice_limit_bytes{");
    assert_eq!(all.keys().filter(limits).count(), 2);
    // Another exporter's labels cannot tell them apart: there they are one.
    let both = 16.0 * f64::from(1u32 << 30);
    assert_eq!(sum(&all, "hami_vgpu_memory_limit_bytes", &[]), Some(both));
    check(&text);
    end(one);
    end(two);
}

#[test]
fn a_slice_that_cannot_be_read_is_reported_and_stops_nothing() {
    let home = Home::new();
    let (one, config) = slice(&home, &LLAMA);
    let (two, _) = slice(&home, &["--sim=rtx3090", "--memory=4GiB", "--name=other"]);
    fs::write(ledger_of(&config), "damaged").unwrap();
    let text = metrics(&home, &[]);
    let all = samples(&text);
    let readable = |name| sum(&all, "gpuslice_slice_readable", &[name]);
    assert_eq!(readable(r#"slice="llama""#), Some(0.0));
    assert_eq!(readable(r#"slice="other""#), Some(1.0));
    let unread = sum(&all, "gpuslice_warnings", &[r#"kind="unread""#]);
    assert_eq!(unread, Some(1.0));
    check(&text);
    end(one);
    end(two);
}

#[test]
fn other_exporters_names_have_their_labels() {
    let home = Home::new();
    let (child, config) = slice(&home, &LLAMA);
    let member = Member::of(&config);
    member.take(Bytes::gib(1), Kind::Linear);
    member.take(Bytes::mib(256), Kind::Context);
    member.take(Bytes::mib(16), Kind::Code);
    let all = samples(&metrics(
        &home,
        &["--compatible=hami", "--compatible=gpu-sharing"],
    ));
    let labels =
        format!(r#"{{pod="llama",container="llama",vdevice_index="0",device_uuid="{GPU}"}}"#);
    let mib = f64::from(1u32 << 20);
    for (name, size) in [
        ("used", 1296.0),
        ("limit", 8192.0),
        ("context", 256.0),
        ("module", 16.0),
        ("buffer", 1024.0),
    ] {
        let key = format!("hami_vgpu_memory_{name}_bytes{labels}");
        assert_eq!(all.get(&key), Some(&(size * mib)), "{key}");
    }
    let key =
        format!(r#"gpu_sharing_gpu_memory_used_bytes{{pod="llama",gpu="0",gpu_uuid="{GPU}"}}"#);
    assert_eq!(all.get(&key), Some(&(1296.0 * mib)), "{all:?}");
    let allocated = sum(&all, "hami_gpu_memory_allocated_bytes", &[GPU]);
    assert_eq!(allocated, Some(8192.0 * mib));
    end(child);
}

#[test]
fn the_file_of_a_textfile_collector_is_replaced_as_a_whole() {
    let home = Home::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gpuslice.prom");
    let path = file.to_str().unwrap();
    assert_eq!(metrics(&home, &["--output", path]), "");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.ends_with('\n') && !text.contains("# EOF"), "{text}");
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o644
    );
    check(&text);
    // Not even its name is there while it is written.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let mut command = HERE.gpuslice();
    let nowhere = folder.path().join("nowhere/a.prom");
    home.of(&mut command)
        .args(["metrics", "--output"])
        .arg(&nowhere);
    let (out, err, status) = told(&mut command);
    assert_eq!((out.as_str(), status), ("", 125));
    assert!(err.starts_with("gpuslice: cannot write "), "{err}");
}

#[test]
fn a_machine_without_gpus_and_slices_has_metrics() {
    let home = Home::new();
    let text = metrics(&home, &[]);
    let all = samples(&text);
    let version = format!(r#"version="{}""#, env!("CARGO_PKG_VERSION"));
    assert_eq!(sum(&all, "gpuslice_build_info", &[&version]), Some(1.0));
    assert!(sum(&all, "gpuslice_host_available_bytes", &[]).unwrap() > 0.0);
    assert_eq!(sum(&all, "gpuslice_limit_bytes", &[]), None);
    check(&text);
    let text = metrics(&home, &["--format", "openmetrics"]);
    assert!(text.ends_with("# EOF\n") && text.contains("# UNIT gpuslice_host_total_bytes bytes\n"));
}
