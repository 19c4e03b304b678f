//! Runs whose first process has ended, and whose other processes have overwritten their
//! environment: they keep their memory until they end.

use crate::support::machine::{Machine, end};
use crate::support::{Installation, eventually, spawn, told};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

static HERE: LazyLock<Installation> = LazyLock::new(|| Installation::new("orphans"));

/// Allocates GPU memory, overwrites its environment as setproctitle does, prints its process id to
/// the file that its first argument names, and waits. The test kills it; the minute ends it only if
/// the test has failed.
const ENGINE: &str = "
import ctypes, os, sys, time
cu = ctypes.CDLL('libcuda.so.1')
context, place = ctypes.c_void_p(), ctypes.c_uint64()
cu.cuInit(0)
cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cu.cuCtxSetCurrent(context)
assert cu.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(1 << 30)) == 0
fields = open('/proc/self/stat').read().rsplit(')', 1)[1].split()
first, last = int(fields[47]), int(fields[48])
ctypes.memset(first, 0, last - first)
open(sys.argv[1], 'w').write(f'{os.getpid()}\\n')
time.sleep(60)
";

/// `gpuslice run` of a shell script that leaves an engine in the background, and prints the process
/// id of the engine and the path of the slice file. `then` follows.
fn leaves_an_engine(machine: &Machine, memory: &str, place: &Path, then: &str) -> Command {
    let fifo = place.join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let script = format!(
        "python3 -c \"$0\" $1 <&- >&- 2>&- & read pid < $1; echo $pid; echo $GPUSLICE_CONFIG; {then}"
    );
    let mut command = machine.run(&[memory], &script);
    command.arg(ENGINE).arg(fifo);
    command
}

fn pid(line: &str) -> Pid {
    Pid::from_raw(line.trim().parse().unwrap())
}

#[test]
fn an_engine_that_has_overwritten_its_environment_keeps_its_memory() {
    for (sim, memory, folder) in [
        ("rtx3090", "--memory=20GiB", "tenants"),
        ("gb10", "--memory=100GiB", "promises"),
    ] {
        let (machine, place) = (Machine::new(&HERE, sim), tempfile::tempdir().unwrap());
        let (out, err, status) = told(&mut leaves_an_engine(
            &machine,
            memory,
            place.path(),
            "true",
        ));
        assert_eq!((err.as_str(), status), ("", 0), "{sim}");
        let lines: Vec<&str> = out.lines().collect();
        let (engine, config) = (pid(lines[0]), PathBuf::from(lines[1]));
        // Each refused run has waited for two seconds: long enough for a watcher that misses the
        // engine.
        let (_, err, status) = told(&mut machine.run(&["--memory=20GiB"], "echo started"));
        let found = (status, config.exists(), machine.records(folder).len());
        kill(engine, Signal::SIGKILL).unwrap();
        assert_eq!(found, (125, true, 1), "{sim}: {err}");
        machine.is_empty(folder);
        eventually("removed", || !config.parent().unwrap().exists());
        machine.starts(&[memory]);
    }
}

#[test]
fn a_command_that_removes_the_folder_of_its_run_gives_its_memory_back() {
    for (sim, memory, folder) in [
        ("rtx3090", "--memory=20GiB", "tenants"),
        ("gb10", "--memory=100GiB", "promises"),
    ] {
        let machine = Machine::new(&HERE, sim);
        let script = "rm -r $(dirname $GPUSLICE_CONFIG)";
        assert_eq!(told(&mut machine.run(&[memory], script)).2, 0, "{sim}");
        machine.is_empty(folder);
    }
}

#[test]
fn a_second_run_of_a_process_does_not_get_the_memory_of_an_engine_it_left() {
    for (sim, memory, folder) in [
        ("rtx3090", "--memory=20GiB", "tenants"),
        ("gb10", "--memory=100GiB", "promises"),
    ] {
        let (machine, place) = (Machine::new(&HERE, sim), tempfile::tempdir().unwrap());
        let gpuslice = HERE.executable().display().to_string();
        let next = |memory: &str, script: &str| {
            format!(
                "exec {gpuslice} run --bare -- {gpuslice} run --memory={memory} -- sh -c '{script}'"
            )
        };
        let script = next("20GiB", "echo started");
        let mut command = leaves_an_engine(&machine, memory, place.path(), &script);
        let (out, err, status) = told(&mut command);
        kill(pid(out.lines().next().unwrap()), Signal::SIGKILL).unwrap();
        assert_eq!(status, 125, "{sim}: {out}{err}");
        machine.is_empty(folder);
        // Both slices of the process have a record while both have a process.
        let place = tempfile::tempdir().unwrap();
        let script = next("1GiB", "echo started; read line");
        let mut command = leaves_an_engine(&machine, memory, place.path(), &script);
        let mut child = spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let engine = pid(&lines.next().unwrap().unwrap());
        let started = lines.nth(1).unwrap().unwrap();
        let records = machine.records(folder).len();
        kill(engine, Signal::SIGKILL).unwrap();
        assert_eq!((started.as_str(), records), ("started", 2), "{sim}");
        end(child);
        machine.is_empty(folder);
    }
}

#[test]
fn an_engine_of_a_second_run_of_a_process_keeps_its_memory() {
    for (sim, memory, folder) in [
        ("rtx3090", "--memory=20GiB", "tenants"),
        ("gb10", "--memory=100GiB", "promises"),
    ] {
        let (machine, place) = (Machine::new(&HERE, sim), tempfile::tempdir().unwrap());
        let fifo = place.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let gpuslice = HERE.executable().display().to_string();
        let script = "python3 -c \"$0\" $1 <&- >&- 2>&- & read pid < $1; echo $pid";
        let words = [
            &gpuslice, "run", "--bare", "--", &gpuslice, "run", memory, "--", "sh", "-c", script,
            ENGINE,
        ];
        let mut command = machine.run_command(&[memory], &words);
        let (out, err, status) = told(command.arg(fifo));
        assert_eq!((err.as_str(), status), ("", 0), "{sim}");
        let engine = pid(&out);
        // Each refused run has waited for two seconds, in which the watcher of the first run ends.
        let (_, err, status) = told(&mut machine.run(&["--memory=20GiB"], "echo started"));
        let found = (status, machine.records(folder).len());
        kill(engine, Signal::SIGKILL).unwrap();
        assert_eq!(found, (125, 1), "{sim}: {err}");
        machine.is_empty(folder);
    }
}
