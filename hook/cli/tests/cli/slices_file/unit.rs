//! gpuslice@.service: its ExecStart, as systemd would run it for one slice of the host's file.

use super::{HERE, Place};
use crate::support::told;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The words of the unit's ExecStart for an instance.
fn exec_start(instance: &str) -> Vec<String> {
    let unit =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd/gpuslice@.service");
    let unit = fs::read_to_string(unit).unwrap();
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="));
    let words = line.unwrap().replace("%i", instance);
    words.split(' ').map(str::to_owned).collect()
}

/// systemd starts a unit with PATH, and without HOME.
#[test]
fn the_unit_of_a_slice_runs_its_command_from_the_file_of_the_host() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not run: only root can write to /etc, in a mount namespace too");
        return;
    }
    let place = Place::new(
        "rtx3090",
        "[llama-7b]\nmemory = \"8GiB\"\ncommand = [\"sh\", \"-c\", \"echo $GPUSLICE_CONFIG; exit 7\"]\n",
    );
    let words = exec_start("llama-7b");
    assert_eq!(words, ["/usr/bin/gpuslice", "run", "--slice", "llama-7b"]);
    // The machine is a simulated one, which the unit of a real host does not name.
    let start = "mount -t tmpfs tmpfs /etc && mkdir /etc/gpuslice && cp $0 /etc/gpuslice/ && \
                 unset HOME && exec \"$@\" --sim rtx3090";
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", start])
        .arg(place.file())
        .arg(HERE.executable())
        .args(words.iter().skip(1));
    for name in ["LD_PRELOAD", "GPUSLICE_CONFIG", "CUDA_VISIBLE_DEVICES"] {
        command.env_remove(name);
    }
    let (out, err, status) = told(place.on(&mut command));
    // The program's exit status is the unit's.
    assert_eq!((err.as_str(), status), ("", 7));
    assert!(out.ends_with("/slice.json\n"), "{out}");
}
