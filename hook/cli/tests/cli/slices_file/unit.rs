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

/// Starts systemd as process 1 of its own pid, mount and cgroup namespaces, with the units of the
/// folder `$1` only, and runs the shell script `$2` beside it. systemd ends with the script.
const SYSTEMD: &str = r#"
    UNITS=$1 BESIDE=$2 groups=
    export UNITS BESIDE
    for top in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/systemd; do
        [ -e $top/cgroup.procs ] || continue
        mkdir $top/gpuslice-test-$$ && echo $$ >$top/gpuslice-test-$$/cgroup.procs || exit 90
        groups="$groups $top/gpuslice-test-$$"
    done
    unshare --cgroup --mount --pid --fork --kill-child sh -c '
        mount --make-rprivate / && mount -t proc proc /proc || exit 91
        for folder in /run /dev/shm; do mount -t tmpfs tmpfs $folder; done
        umount -l /sys/fs/cgroup
        if grep -q name=systemd /proc/self/cgroup; then
            mount -t tmpfs tmpfs /sys/fs/cgroup
            mkdir /sys/fs/cgroup/systemd /sys/fs/cgroup/unified
            mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
            mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified
        else
            mount -t cgroup2 cgroup2 /sys/fs/cgroup
        fi
        mount -t tmpfs tmpfs /etc/gpuslice 2>/dev/null || { mount -t tmpfs tmpfs /etc; mkdir /etc/gpuslice; }
        cp "$UNITS/slices.toml" /etc/gpuslice/
        exec 3>&1
        (sh -c "$BESIDE" >&3 2>&1; exec systemctl --force exit) &
        export container=test SYSTEMD_UNIT_PATH="$UNITS" SYSTEMD_LOG_TARGET=null
        exec /lib/systemd/systemd --system --unit=test.target --show-status=no >/dev/null 2>&1'
    for top in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/systemd; do
        [ -e $top/cgroup.procs ] && echo $$ >$top/cgroup.procs
    done
    for group in $groups; do find $group -depth -type d -exec rmdir {} ';'; done
"#;

/// The service of a slice is stopped, restarted and accounted for as any other service.
#[test]
fn systemd_supervises_the_command_of_a_slice() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not run: only root can start systemd, in namespaces of its own too");
        return;
    }
    let text = "[llama]\nmemory = \"8GiB\"\ncommand = [\"sleep\", \"1000\"]\n";
    let place = Place::new("rtx3090", text);
    let units = place.folder.path();
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    fs::copy(
        own.join("gpuslice@.service"),
        units.join("gpuslice@.service"),
    )
    .unwrap();
    fs::write(
        units.join("test.target"),
        "[Unit]\nWants=gpuslice@llama.service\n",
    )
    .unwrap();
    // systemd restarts a service only if the targets are there on which every service depends.
    for target in ["sysinit.target", "basic.target", "shutdown.target"] {
        fs::write(units.join(target), "[Unit]\nDefaultDependencies=no\n").unwrap();
    }
    let changes = units.join("gpuslice@llama.service.d");
    fs::create_dir(&changes).unwrap();
    let gpuslice = HERE.executable().display().to_string();
    // As an administrator would with systemctl edit: the machine is simulated, and patience short.
    let change = format!(
        "[Service]\nExecStart=\nExecStart={gpuslice} run --sim rtx3090 --slice %i\nRestartSec=100ms\n"
    );
    fs::write(changes.join("test.conf"), change).unwrap();
    let beside = format!(
        r#"
        unit=gpuslice@llama
        main() {{ systemctl show --property MainPID --value $unit 2>/dev/null; }}
        slice() {{ {gpuslice} status --json | python3 -c "
import json, sys
for slice in json.load(sys.stdin)['slices']:
    print(slice['name'], slice['pid'], slice['command'])"; }}
        until_is() {{ for tenth in $(seq 300); do [ "$(slice)" = "$1" ] && break; sleep 0.1; done; slice; }}
        until_main() {{ for tenth in $(seq 300); do
            pid=$(main); [ "${{pid:-0}}" != 0 ] && [ "$pid" != "$1" ] && break; sleep 0.1; done; }}
        until_main; first=$pid
        until_is "llama $first ['sleep', '1000']" | sed "s/$first/MAIN/"
        kill -KILL $first; until_main $first
        until_is "llama $pid ['sleep', '1000']" | sed "s/$pid/MAIN/"
        systemctl stop $unit; systemctl show --property ActiveState,Result $unit
        until_is ""
        "#
    );
    let mut command = Command::new("sh");
    command.args(["-c", SYSTEMD, "sh"]).arg(units).arg(&beside);
    for name in ["LD_PRELOAD", "GPUSLICE_CONFIG", "CUDA_VISIBLE_DEVICES"] {
        command.env_remove(name);
    }
    let (out, err, _) = told(&mut command);
    let is_running = "llama MAIN ['sleep', '1000']\n";
    let is_stopped = "Result=success\nActiveState=inactive\n";
    assert_eq!(
        out,
        format!("{is_running}{is_running}{is_stopped}"),
        "{err}"
    );
}
