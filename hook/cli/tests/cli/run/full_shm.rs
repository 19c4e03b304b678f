//! A simulated machine keeps its files on a file system that is full.
//! Touches: a mount namespace of its own. Needs root.

use crate::support::{Home, Installation, told};
use std::process::Command;

#[test]
fn a_simulated_machine_on_a_full_file_system_names_the_cause() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let (home, here) = (Home::new(), Installation::new("full-shm"));
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().display();
    let gpuslice = here.executable();
    // Without a free page the machine's file cannot grow. With one free page its meminfo is cut
    // off.
    for free in [0, 1] {
        let script = format!(
            "mount -t tmpfs -o size=64k none {folder} || exit 1
            dd if=/dev/zero of={folder}/fill bs=4096 count={} 2>/dev/null
            mkdir {folder}/state
            GPUSLICE_SIM_STATE={folder}/state exec {} run --sim gb10 --memory 8GiB -- true",
            16 - free,
            gpuslice.display()
        );
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &script]);
        let (_, err, status) = told(home.of(&mut command));
        assert_eq!(status, 125, "{free}: {err}");
        assert!(
            err.starts_with("gpuslice: cannot start the simulated machine: "),
            "{free}: {err}"
        );
        let full = format!("{folder}/state is full");
        assert!(err.contains(&full), "{free}: {err}");
    }
}
