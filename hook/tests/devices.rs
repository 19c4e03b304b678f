//! The list of GPUs that the OCI hook reads.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]
mod support;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use support::{Installation, told};

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
    let said = format!("gpuslice: 2 GPUs listed in {}\n", file.display());
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
    // A second time replaces it; nothing else is left in the folder.
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
    // A driver that is not there, also where this machine has one.
    let empty = place.path().join("libcuda.so.1");
    fs::write(empty, "").unwrap();
    command.env("LD_LIBRARY_PATH", place.path());
    assert_eq!(told(&mut command).2, 2);
    assert!(!file.exists());
}
