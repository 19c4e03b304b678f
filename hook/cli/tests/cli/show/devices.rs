//! The list of GPUs that the OCI hook reads.

use crate::support::{Installation, told};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

fn write(here: &Installation, machine: &str, file: &Path) -> Command {
    let mut command = here.gpuslice();
    command
        .args(["devices", "--sim", machine])
        .arg(format!("--write={}", file.display()));
    command
}

#[test]
fn the_list_says_what_each_gpu_and_each_instance_has() {
    let here = Installation::new("devices");
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("run/gpuslice/devices.json");
    let made = file.parent().unwrap().display();
    let said = format!(
        "gpuslice: made the folder {made}\ngpuslice: 2 GPUs listed in {}\n",
        file.display()
    );
    let answer = told(&mut write(&here, "rtx3090+gb10", &file));
    assert_eq!(answer, (String::new(), said, 0));
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        r#"{
  "version": 1,
  "devices": [
    {
      "uuid": "GPU-3090aaaa-1111-4222-8333-444455550000",
      "index": 0,
      "name": "NVIDIA GeForce RTX 3090",
      "memory": 25438126080,
      "integrated": false,
      "minor": 0,
      "driver_limits": false,
      "mig": []
    },
    {
      "uuid": "GPU-b10aaaaa-4444-4555-8666-777788880000",
      "index": 1,
      "name": "NVIDIA GB10",
      "memory": 130663165952,
      "integrated": true,
      "minor": 1,
      "driver_limits": false,
      "mig": []
    }
  ]
}
"#
    );
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    let folder = file.parent().unwrap();
    assert_eq!((mode(&file), mode(folder)), (0o644, 0o711));
    // A second call replaces the list and leaves no other file in the folder.
    let said = format!("gpuslice: 1 GPU listed in {}\n", file.display());
    let answer = told(&mut write(&here, "h200-mig", &file));
    assert_eq!(answer, (String::new(), said, 0));
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        r#"{
  "version": 1,
  "devices": [
    {
      "uuid": "GPU-200aaaaa-2222-4333-8444-777788880000",
      "index": 0,
      "name": "NVIDIA H200",
      "memory": 150754820096,
      "integrated": false,
      "minor": 0,
      "driver_limits": false,
      "mig": [
        {
          "uuid": "MIG-a1111111-3333-5444-8555-666677770000",
          "memory": 74763468800
        },
        {
          "uuid": "MIG-b2222222-3333-5444-8555-666677770000",
          "memory": 17179869184
        },
        {
          "uuid": "MIG-c3333333-3333-5444-8555-666677770000",
          "memory": 17179869184
        }
      ]
    }
  ]
}
"#
    );
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1);
}

#[test]
fn a_machine_without_a_driver_has_no_list() {
    let here = Installation::new("devices-none");
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("devices.json");
    let mut command = here.gpuslice();
    command.args(["devices", &format!("--write={}", file.display())]);
    // An empty file stands for a missing driver, also on a machine that has one.
    let empty = place.path().join("libcuda.so.1");
    fs::write(empty, "").unwrap();
    command.env("LD_LIBRARY_PATH", place.path());
    assert_eq!(told(&mut command).2, 2);
    assert!(!file.exists());
}

#[test]
fn the_gpus_of_a_simulated_machine_are_not_written_to_this_hosts_files() {
    let here = Installation::new("devices-simulated");
    let refused = |file: &str| {
        format!(
            "gpuslice: {file} is for the GPUs of this host, and rtx3090 is a simulated machine: name a file in \
             another folder\n"
        )
    };
    let cases: [(&[&str], &str); 5] = [
        (
            &["devices", "--sim=rtx3090", "--write"],
            "/run/gpuslice/devices.json",
        ),
        (
            &[
                "devices",
                "--sim=rtx3090",
                "--write=/run/../run/gpuslice/a/other.json",
            ],
            "/run/gpuslice/a/other.json",
        ),
        (
            &[
                "cdi",
                "generate",
                "--hook=/bin/true",
                "--sim=rtx3090",
                "--output",
            ],
            "/etc/cdi/gpuslice.yaml",
        ),
        (
            &[
                "cdi",
                "generate",
                "--hook=/bin/true",
                "--sim=rtx3090",
                "--output",
                "/var/run/cdi/a.json",
            ],
            "/run/cdi/a.json",
        ),
        (
            &[
                "run",
                "--sim=rtx3090",
                "--bare",
                "--",
                "gpuslice",
                "devices",
                "--write",
            ],
            "/run/gpuslice/devices.json",
        ),
    ];
    for (words, file) in cases {
        let mut command = here.gpuslice();
        let path = format!(
            "{}:{}",
            here.folder.display(),
            std::env::var("PATH").unwrap()
        );
        let (out, err, status) = told(command.env("PATH", path).args(words));
        assert_eq!(
            (out.as_str(), err, status),
            ("", refused(file), 125),
            "{words:?}"
        );
    }
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("cdi/slices.yaml");
    let mut command = here.gpuslice();
    command.args([
        "cdi",
        "generate",
        "--hook=/bin/true",
        "--sim=rtx3090",
        "--output",
    ]);
    let (_, err, status) = told(command.arg(&file));
    let said = format!(
        "gpuslice: made the folder {}\ngpuslice: 23 devices of gpuslice.io/slice in {}\n",
        file.parent().unwrap().display(),
        file.display()
    );
    // The output may also name a containerd of this machine.
    assert!(err.starts_with(&said) && status == 0, "{err}");
}

/// Runs a command on a host with a simulated driver and a list of GPUs from another machine.
/// Returns its output.
fn on_a_host(here: &Installation, listed: &str, words: &[&str]) -> (String, String, i32) {
    let place = tempfile::tempdir().unwrap();
    let list = place.path().join("list.json");
    assert_eq!(told(&mut write(here, listed, &list)).2, 0);
    let driver = place.path().join("driver");
    fs::create_dir(&driver).unwrap();
    for name in ["libcuda.so.1", "libnvidia-ml.so.1"] {
        let library = here.folder.with_file_name("sim").join(name);
        std::os::unix::fs::symlink(library, driver.join(name)).unwrap();
    }
    let script = "mount -t tmpfs tmpfs /run && mkdir /run/gpuslice && cp \"$0\" /run/gpuslice/devices.json && \
                  exec \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["--map-root-user", "--mount", "sh", "-c", script])
        .arg(&list)
        .arg(here.executable())
        .args(words)
        .current_dir(place.path())
        .env("XDG_RUNTIME_DIR", place.path())
        .env_remove("COLUMNS")
        .env("LD_LIBRARY_PATH", driver)
        .env("GPUSLICE_SIM", "2xh200");
    told(&mut command)
}

#[test]
fn a_list_of_gpus_that_is_out_of_date_is_named_with_its_differences() {
    let here = Installation::new("devices-stale");
    for name in ["gpuslice-hook", "gpuslice-runtime"] {
        std::os::unix::fs::symlink("/bin/true", here.folder.join(name)).unwrap();
    }
    let stale = "/run/gpuslice/devices.json, the list of GPUs that containers are given slices of, is out of \
                 date: GPU-3090aaaa-1111-4222-8333-444455550000 is listed but not on this host; \
                 GPU-200aaaaa-2222-4333-8444-555566660000 has index 0, but the list says 1; \
                 GPU-200aaaaa-2222-4333-8444-555566660000 has minor 0, but the list says 1; \
                 GPU-200aaaaa-2222-4333-8444-555566660001 is not listed; run gpuslice devices --write";
    let listed = "rtx3090+h200";
    let (out, err, status) = on_a_host(&here, listed, &["status"]);
    assert_eq!((err.as_str(), status), ("", 0));
    let end = format!("\n\nno slices are running\n\n! {stale}\n");
    assert!(
        out.starts_with("GPU 0  NVIDIA H200  ") && out.ends_with(&end),
        "{out}"
    );
    let (out, _, _) = on_a_host(&here, listed, &["status", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["device_list"], stale);
    let (out, _, _) = on_a_host(&here, listed, &["check", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(
        json["notes"].as_array().unwrap().contains(&stale.into()),
        "{out}"
    );
    let configure = [
        "runtime",
        "configure",
        "--runtime=docker",
        "--config=daemon.json",
    ];
    let (out, err, _) = on_a_host(&here, listed, &configure);
    assert!(out.ends_with(&format!("result: {stale}\n")), "{out}{err}");
    let (out, err, status) = on_a_host(&here, "2xh200", &["status"]);
    assert_eq!((err.as_str(), status), ("", 0));
    assert!(
        out.ends_with("\nno slices are running\n") && !out.contains('!'),
        "{out}"
    );
    let (out, err, _) = on_a_host(&here, "2xh200", &configure);
    assert!(!out.contains("devices.json"), "{out}{err}");
}
