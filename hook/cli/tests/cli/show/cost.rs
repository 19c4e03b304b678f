//! What `gpuslice status` costs, as a number of reads: it does not grow faster than the number of
//! slices and processes, and each costs little. `make report REPORT_SECTIONS=status` measures the time.
//! Touches: a pid namespace of its own, in which no other test's processes are.

use super::status::HERE;
use crate::support::told;
use std::process::Command;

/// Starts slices of three processes that hold memory, in two steps, and prints after each how many
/// reads a status takes. The kernel counts them; the count of a process that has ended can be read
/// until its parent has waited for it. Then invents the process ids in all ledgers, as a tenant can,
/// and prints the count again, and the number of processes.
const COUNTED: &str = r#"
import mmap, os, subprocess, sys
gpuslice, state = sys.argv[1:]
takes = """
import ctypes, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, place = ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(2 << 20)) == 0
os.write(1, b"holds\\n")
sys.stdin.read()
"""
environment = {**os.environ, "XDG_RUNTIME_DIR": state, "XDG_STATE_HOME": state, "GPUSLICE_SIM_STATE": state + "/gpu"}
script = 'for one in 1 2 3; do python3 -S -c "$0" <&3 & done 3<&0; wait'
slices = []

def start(number):
    words = [gpuslice, "run", "--sim=rtx3090", "--memory=1GiB", f"--name=worker-{number}", "--"]
    child = subprocess.Popen(words + ["sh", "-c", script, takes], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    slices.append(child)
    for _ in range(3):
        assert child.stdout.readline() == b"holds\n"

def reads():
    child = subprocess.Popen([gpuslice, "status", "--json"], env=environment, stdout=subprocess.PIPE)
    shown = child.stdout.read()
    assert shown.count(b'"linear": 2097152') >= 3 * len(slices), shown
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    lines = open(f"/proc/{child.pid}/io").read().splitlines()
    assert child.wait() == 0
    return dict(line.split(": ") for line in lines)["syscr"]

# No other word of a ledger has the value of one of these process ids.
open("/proc/sys/kernel/ns_last_pid", "w").write("20000")
for until in (4, 12):
    for number in range(len(slices), until):
        start(number)
    print(reads(), flush=True)
visible = [int(name) for name in os.listdir("/proc") if name.isdigit()]
changed = 0
for folder, _, names in os.walk(state):
    for name in names:
        if not name.startswith("ledger"):
            continue
        with open(os.path.join(folder, name), "r+b") as ledger, mmap.mmap(ledger.fileno(), 0) as mapped:
            words = memoryview(mapped).cast("I")
            for at, word in enumerate(words):
                if word in visible and word > 20000:
                    words[at] += 4000000
                    changed += 1
            words.release()
assert changed >= 3 * len(slices), changed
print(reads())
print(len(visible), flush=True)
for child in slices:
    child.stdin.close()
    child.wait()
"#;

/// The most reads for a slice with three processes. 16 of about 35 read its ledger, and the others
/// its files and what /proc says of its processes.
const BUDGET: u64 = 50;

#[test]
fn each_slice_costs_a_bounded_number_of_reads() {
    let state = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut command = Command::new("unshare");
    command
        .args([
            "--map-root-user",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ])
        .args(["python3", "-c", COUNTED])
        .args([HERE.executable().as_path(), state.path()])
        .env_remove("LD_PRELOAD");
    let (out, err, status) = told(&mut command);
    assert_eq!(status, 0, "{out}{err}");
    let counts: Vec<u64> = out.lines().map(|line| line.parse().unwrap()).collect();
    let [four, twelve, invented, processes] = counts.as_slice() else {
        panic!("{out}");
    };
    let each = (twelve - four) / 8;
    assert!(each <= BUDGET, "{each} reads for each slice: {out}");
    // Nothing is read once for each pair of slices or processes.
    assert!(*twelve <= 3 * four, "{out}");
    // A process that cannot be found is looked for in one list of all processes.
    assert!(*invented <= twelve + 4 * processes, "{out}");
}
