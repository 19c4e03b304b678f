//! The memory of graphs, when the driver no longer answers and when a device is reset.
//! Touches: Python in a slice of simulated machines.

use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::Counted;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

const MIB: u64 = 1 << 20;

/// Launches a graph of 64 MiB up to a hundred times, does what its argument says, prints how the last
/// launch ended, and waits.
const LAUNCHES: &str = r#"
import ctypes as c, sys
cuda = c.CDLL("libcuda.so.1")
context, stream, graph, runnable = c.c_void_p(), c.c_void_p(), c.c_void_p(), c.c_void_p()
address = c.c_uint64()
def must(code):
    assert code == 0, code
must(cuda.cuInit(0))
must(cuda.cuDevicePrimaryCtxRetain(c.byref(context), 0))
must(cuda.cuCtxSetCurrent(context))
must(cuda.cuStreamCreate(c.byref(stream), 0))
must(cuda.cuStreamBeginCapture_v2(stream, 0))
must(cuda.cuMemAllocAsync(c.byref(address), c.c_size_t(64 << 20), stream))
must(cuda.cuMemFreeAsync(address, stream))
must(cuda.cuStreamEndCapture(stream, c.byref(graph)))
must(cuda.cuGraphInstantiateWithFlags(c.byref(runnable), graph, c.c_ulonglong(0)))
must(cuda.cuGraphLaunch(runnable, stream))
for _ in range(100):
    code = cuda.cuGraphLaunch(runnable, stream)
if sys.argv[1:] == ["reset"]:
    must(cuda.cuDevicePrimaryCtxReset_v2(0))
print(code, flush=True)
sys.stdin.read()
"#;

/// The bytes that the slice counts after the program has said how its last launch ended.
fn after(slice: &Counted, argument: &str, faults: &str, last: &str) -> u64 {
    let run = slice.run("python3").args(["-c", LAUNCHES, argument]);
    let mut command = run.env("GPUSLICE_SIM_FAULTS", faults).into_command();
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = pipes.spawn().unwrap();
    let mut line = String::new();
    let out = program.stdout.take().unwrap();
    BufReader::new(out).read_line(&mut line).unwrap();
    assert_eq!(line.trim(), last);
    let counted = slice.counted();
    drop(program.stdin.take());
    program.wait().unwrap();
    counted
}

#[test]
fn the_memory_of_graphs_stays_charged_when_the_gpu_is_lost() {
    let slice = Counted::new("rtx3090", 8 * GIB);
    let held = after(&slice, "", "", "0");
    assert!(held >= 64 * MIB, "{held}");
    assert_eq!(after(&slice, "", "lost@200", "999"), held);
}

#[test]
fn a_reset_device_holds_no_memory_of_graphs() {
    let slice = Counted::new("rtx3090", 8 * GIB);
    assert_eq!(after(&slice, "reset", "", "0"), 0);
}
