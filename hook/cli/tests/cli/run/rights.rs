//! `gpuslice run` of programs that change their user, and `gpuslice run` inside containers and
//! slices.
//! Touches: children on simulated machines.

use super::slice_file::THREE_TIMES_THREE_GIB;
use super::start::{HERE, SLICED};
use crate::support::told;
use std::process::Command;

#[test]
fn in_a_container_that_has_a_slice_another_is_refused() {
    // Builds a root folder like this machine's, with a slice mounted as the hook mounts it.
    let container = "set -e; cd $0; mount -t tmpfs none .
        for entry in /*; do
            if [ -L $entry ]; then cp -P $entry .
            elif [ -d $entry ]; then mkdir .$entry; mount --rbind $entry .$entry; fi
        done
        mkdir .gpuslice; echo '{\"version\":1}' > .gpuslice/slice.json
        exec chroot . \"$@\"";
    for options in [&["--memory=8GiB"][..], &[]] {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", container]);
        let place = tempfile::tempdir().unwrap();
        command.arg(place.path());
        command
            .arg(HERE.executable())
            .arg("run")
            .args(options)
            .args(["--", "true"]);
        let message = "gpuslice: this container already has a slice, which takes precedence: \
                       /.gpuslice/slice.json\n";
        assert_eq!(told(&mut command), (String::new(), message.to_owned(), 125));
    }
}

#[test]
fn a_program_that_gives_up_root_is_still_counted_and_refused() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    // The program allocates 3 GiB three times in a slice of 8 GiB. Two requests are granted, the
    // third is out of memory.
    let ask = THREE_TIMES_THREE_GIB;
    let script = format!(
        "chmod -R a+rwX $GPUSLICE_SIM_STATE; stat -c %a $GPUSLICE_CONFIG; \
         exec setpriv --reuid 65534 --regid 65534 --clear-groups /usr/bin/python3 -c \"{ask}\""
    );
    for umask in ["022", "077"] {
        let run = HERE.run(&SLICED, &script);
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(format!("umask {umask}; exec \"$0\" \"$@\""));
        command.arg(run.get_program()).args(run.get_args());
        command
            .env_remove("GPUSLICE_CONFIG")
            .env_remove("LD_PRELOAD");
        let command = command.env("GPUSLICE_SIM_STATE", state.path());
        let (out, err, status) = told(command.env("GPUSLICE_LOG", "warn"));
        assert_eq!(
            (out.as_str(), status),
            ("600\n0 0 2\n", 0),
            "umask {umask}: {err}"
        );
    }
}

/// Its promise belonged to root alone, so all of the slice counted as unspent, beside the memory that
/// it had taken.
#[test]
fn a_program_that_gives_up_root_spends_its_promise() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let spent = "import ctypes, glob, os, struct; \
        c = ctypes.CDLL('libcuda.so.1'); c.cuInit(0); context = ctypes.c_void_p(); \
        c.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0); c.cuCtxSetCurrent(context); \
        at = ctypes.c_uint64(); code = c.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(3 << 30)); \
        [promise] = glob.glob(os.environ['GPUSLICE_SIM_STATE'] + '/promises/*'); \
        print(code, struct.unpack('Q', open(promise, 'rb').read(8))[0] >> 30)";
    // The promise itself keeps the rights that gpuslice gave it.
    let script = format!(
        "find $GPUSLICE_SIM_STATE -path '*/promises/*' -prune -o -exec chmod a+rwX {{}} +; \
         exec setpriv --reuid 65534 --regid 65534 --clear-groups /usr/bin/python3 -c \"{spent}\""
    );
    for umask in ["022", "077"] {
        let run = HERE.run(&["--sim=gb10", "--memory=8GiB"], &script);
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(format!("umask {umask}; exec \"$0\" \"$@\""));
        command.arg(run.get_program()).args(run.get_args());
        command
            .env_remove("GPUSLICE_CONFIG")
            .env_remove("LD_PRELOAD");
        let seen = told(command.env("GPUSLICE_SIM_STATE", state.path()));
        assert_eq!(
            seen,
            ("0 3\n".to_owned(), String::new(), 0),
            "umask {umask}"
        );
    }
}

#[test]
fn a_stranger_cannot_find_the_ledger_of_roots_slice() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let script = "cd $(dirname $GPUSLICE_CONFIG) && ls -d ledger.* | wc -c && stat -c %a ledger.*; \
        exec setpriv --reuid 65534 --regid 65534 --clear-groups \
        sh -c 'ls $0; cat $0/slice.json; echo > $0/ledger' $(dirname $GPUSLICE_CONFIG)";
    let (out, err, _) = told(&mut HERE.run(&SLICED, script));
    // The name has 128 random bits, and the folder can be traversed but not listed.
    assert_eq!(out, "40\n666\n");
    assert_eq!(err.matches("Permission denied").count(), 3, "{err}");
}

#[test]
fn a_program_whose_slice_has_lost_its_name_is_not_started_without_it() {
    let inner = format!(
        "unset GPUSLICE_CONFIG; {} run -- echo started",
        HERE.executable().display()
    );
    let (out, err, status) = told(&mut HERE.run(&SLICED, &inner));
    assert_eq!((out.as_str(), status), ("", 125));
    let message =
        "gpuslice: this program is in a slice (GPUSLICE_SLICE is set), but GPUSLICE_CONFIG, ";
    assert!(err.starts_with(message), "{err}");
}

#[test]
fn a_slice_inside_a_slice_is_refused_with_the_two_ways_on() {
    let inner = format!(
        "{} run --memory=4GiB -- echo started",
        HERE.executable().display()
    );
    let (out, err, status) = told(&mut HERE.run(&SLICED, &inner));
    assert_eq!((out.as_str(), status), ("", 125));
    let start = "gpuslice: this program is in a slice already (GPUSLICE_CONFIG names ";
    assert!(
        err.starts_with(start) && err.contains("gpuslice run --bare -- gpuslice run"),
        "{err}"
    );
    let gpuslice = HERE.executable().display().to_string();
    let inner = format!(
        "echo $GPUSLICE_CONFIG; {gpuslice} run -- sh -c 'echo $GPUSLICE_CONFIG'; \
         {gpuslice} run --bare -- {gpuslice} run --sim=rtx3090 --memory=4GiB -- sh -c 'echo $GPUSLICE_CONFIG'"
    );
    let (out, err, status) = told(&mut HERE.run(&SLICED, &inner));
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!((lines.len(), status), (3, 0), "{err}");
    assert!(lines[0] == lines[1] && lines[1] != lines[2], "{out}");
}
