//! `gpuslice run --config`: slice files that a person has written, with and without a ledger.
//! Touches: children on simulated machines.

use super::start::{HERE, SLICED};
use crate::support::machine::{Machine, end};
use crate::support::told;
use std::fs;
use std::io::Write;
use std::time::{Duration, Instant};

#[test]
fn a_slice_file_that_is_no_file_is_refused_at_once() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let huge = fs::File::create(path("huge")).unwrap();
    huge.set_len(1 << 40).unwrap();
    fs::create_dir(path("folder")).unwrap();
    for (name, why) in [
        ("fifo", "is not a regular file"),
        ("folder", "is not a regular file"),
        (
            "huge",
            "is 1099511627776 bytes, more than a slice file can be (64 KiB)",
        ),
    ] {
        let start = Instant::now();
        let config = path(name);
        let mut command = HERE.gpuslice();
        command
            .args(["run", "--config"])
            .arg(&config)
            .args(["--", "true"]);
        let message = format!("gpuslice: slice file {} {why}\n", config.display());
        assert_eq!(told(&mut command), (String::new(), message, 125));
        // Reading a tebibyte takes longer than that.
        assert!(start.elapsed() < Duration::from_secs(60), "{name} was read");
    }
}

/// Writes a slice file with these keys after its version.
pub(super) fn slice_file(keys: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(file, "{{\"version\":1,{keys}}}").unwrap();
    file
}

#[test]
fn a_slice_file_that_names_a_ledger_is_used_as_it_is() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let ledger = place.path().join("ledger");
    let file = slice_file(&format!(
        "\"memory\":8589934592,\"ledger\":\"{}\"",
        ledger.display()
    ));
    let path = file.path().to_str().unwrap();
    let options = ["--sim=rtx3090", "--config", path];
    let mut command = HERE.run(&options, "echo $GPUSLICE_CONFIG");
    assert_eq!(told(&mut command).0.trim(), path);
    let mut command = HERE.run(&["--sim=rtx3090"], "echo $GPUSLICE_CONFIG");
    assert_eq!(told(command.env("GPUSLICE_CONFIG", path)).0.trim(), path);
    let options = [&options[..], &["--overcommit"]].concat();
    let (out, err, status) = told(&mut HERE.run(&options, "echo started"));
    let warning = "gpuslice: warning: --overcommit has no effect: a slice file that names a ledger is \
                   not checked against the memory that other slices leave\n";
    assert_eq!(
        (out.as_str(), err.as_str(), status),
        ("started\n", warning, 0)
    );
}

/// Requests 3 GiB three times and prints the three result codes.
pub(super) const THREE_TIMES_THREE_GIB: &str = "import ctypes; c = ctypes.CDLL('libcuda.so.1'); c.cuInit(0); \
    context = ctypes.c_void_p(); c.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0); \
    c.cuCtxSetCurrent(context); at = ctypes.c_uint64(); \
    print(*[c.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(3 << 30)) for _ in range(3)])";

#[test]
fn a_slice_file_without_a_ledger_limits_its_program() {
    let script = format!("python3 -c \"{THREE_TIMES_THREE_GIB}\"");
    let card = "GPU-3090aaaa-1111-4222-8333-444455550000";
    for keys in [
        "\"memory\":8589934592".to_owned(),
        format!("\"devices\":[{{\"uuid\":\"{card}\",\"memory\":8589934592}}]"),
    ] {
        let file = slice_file(&keys);
        let path = file.path().to_str().unwrap();
        let options = ["--sim=rtx3090", "--strict", "--config", path];
        let refused = ("0 0 2\n".to_owned(), String::new(), 0);
        assert_eq!(told(&mut HERE.run(&options, &script)), refused, "{keys}");
        let mut command = HERE.run(&["--sim=rtx3090"], &script);
        let seen = told(command.env("GPUSLICE_CONFIG", path));
        assert_eq!(seen, refused, "{keys}");
    }
}

#[test]
fn a_limit_over_the_card_is_refused_by_option_and_by_slice_file() {
    let card = "GPU-3090aaaa-1111-4222-8333-444455550000";
    let more = "is more than GPU 0 (NVIDIA GeForce RTX 3090, 23.69 GiB) has; give at most 24259MiB";
    let limit = 40u64 << 30;
    let refused = |options: &[&str], message: &str| {
        let seen = told(&mut HERE.run(&[&["--sim=rtx3090"], options].concat(), "echo started"));
        let message = format!("gpuslice: {message}\n");
        assert_eq!(seen, (String::new(), message, 125));
    };
    refused(&["--memory=40GiB"], &format!("--memory 40.00 GiB {more}"));
    for keys in [
        format!("\"memory\":{limit}"),
        format!("\"devices\":[{{\"uuid\":\"{card}\",\"memory\":{limit}}}]"),
        format!("\"memory\":1073741824,\"devices\":[{{\"uuid\":\"{card}\",\"memory\":{limit}}}]"),
        format!("\"ledger\":\"/dev/shm/none\",\"memory\":{limit}"),
    ] {
        let file = slice_file(&keys);
        let path = file.path().display();
        let message = format!("slice file {path}: \"memory\" 40.00 GiB {more}");
        refused(&["--config", &path.to_string()], &message);
    }
}

#[test]
fn a_slice_file_without_a_ledger_is_admitted_as_the_options_are() {
    let machine = Machine::new(&HERE, "rtx3090");
    let spark = Machine::new(&HERE, "gb10");
    let card = slice_file("\"name\":\"mine\",\"memory\":12884901888");
    let unified = slice_file("\"name\":\"mine\",\"memory\":64424509440");
    for (machine, file, full) in [
        (
            machine,
            card,
            "has 11.69 GiB left, 12.00 GiB requested; held by mine (pid ",
        ),
        (
            spark,
            unified,
            "a slice of 60.00 GiB does not fit on this host",
        ),
    ] {
        let options = ["--config", file.path().to_str().unwrap()];
        let (child, _) = machine.slice(&options);
        let (out, err, status) = told(&mut machine.run(&options, "echo started"));
        assert!(
            err.contains(full) && (out.as_str(), status) == ("", 125),
            "{err}"
        );
        let options = [&options[..], &["--overcommit"]].concat();
        let (out, err, status) = told(&mut machine.run(&options, "echo started"));
        assert!(
            err.contains(full) && (out.as_str(), status) == ("started\n", 0),
            "{err}"
        );
        end(child);
        assert_eq!(told(&mut machine.run(&options[..2], "echo started")).2, 0);
    }
}

#[test]
fn a_slice_file_cannot_turn_an_empty_file_into_a_ledger() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = |name: &str| place.path().join(name).display().to_string();
    fs::write(path("empty.conf"), "").unwrap();
    let run = |ledger: &str| {
        let text = format!(
            "{{\"version\":1,\"memory\":8589934592,\"ledger\":\"{}\"}}",
            path(ledger)
        );
        fs::write(path("slice.json"), text).unwrap();
        let config = format!("--config={}", path("slice.json"));
        told(&mut HERE.run(&["--sim=rtx3090", &config], "echo started"))
    };
    let message = format!(
        "gpuslice: cannot make {}, the ledger of the slice: it is an empty file that gpuslice has \
         not made (remove it, or name another)\n",
        path("empty.conf")
    );
    assert_eq!(run("empty.conf"), (String::new(), message, 125));
    assert_eq!(fs::metadata(path("empty.conf")).unwrap().len(), 0);
    // A ledger that does not exist is created. The second run uses it again.
    for _ in 0..2 {
        assert_eq!(run("ledger"), ("started\n".to_owned(), String::new(), 0));
    }
}

#[test]
fn a_program_stays_in_its_slice_when_the_file_becomes_unreadable() {
    let ask = "import ctypes; c = ctypes.CDLL('libcuda.so.1'); c.cuInit(0); \
        total = ctypes.c_size_t(); c.cuDeviceTotalMem_v2(ctypes.byref(total), 0); print(total.value)";
    let whole = "8589934592\n";
    let removed = format!("rm $GPUSLICE_CONFIG; python3 -c \"{ask}\"");
    assert_eq!(told(&mut HERE.run(&SLICED, &removed)).0, whole);
    for damage in [
        "echo x >",
        ": >",
        "echo '{}' >",
        "echo '{\"memroy\":1}' >",
        "truncate -s 1M",
    ] {
        let damaged = format!("{damage} $GPUSLICE_CONFIG; python3 -c \"{ask}\"");
        assert_eq!(told(&mut HERE.run(&SLICED, &damaged)).0, whole, "{damage}");
    }
    if nix::unistd::geteuid().is_root() {
        // A server that is started as root and continues as another user.
        let state = tempfile::tempdir().unwrap();
        let script = format!(
            "chmod -R a+rwX $GPUSLICE_SIM_STATE; \
             exec setpriv --reuid 65534 --regid 65534 --clear-groups /usr/bin/python3 -c \"{ask}\""
        );
        let mut command = HERE.run(&SLICED, &script);
        assert_eq!(
            told(command.env("GPUSLICE_SIM_STATE", state.path())).0,
            whole
        );
    }
}

#[test]
fn a_slice_file_that_limits_nothing_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("slice.json");
    fs::write(&file, "{\"version\":1}").unwrap();
    let option = format!("--config={}", file.display());
    let (out, err, status) = told(&mut HERE.run(&["--sim=rtx3090", &option], "echo started"));
    let expected = format!(
        "gpuslice: warning: slice file {} limits no device (--strict refuses to start it)\n",
        file.display()
    );
    assert_eq!((out.as_str(), err, status), ("started\n", expected, 0));
}
