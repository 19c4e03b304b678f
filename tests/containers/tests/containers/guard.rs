//! The guard on a host with containers: a container whose processes hold memory beyond their slice can
//! open no GPU until they have ended.

use super::driver_limits::{limited, machine};
use gpuslice_containers::bundle::Oci;
use gpuslice_containers::engine::Engine;
use gpuslice_containers::host::Host;
use gpuslice_containers::ready::ready;
use gpuslice_containers::slice::assert_nothing_left;

const GPU: &str = "rtx3090";
const NAME: &str = "limited";

/// Holds a GiB of device memory until it is ended.
const HOLDS: &str = r#"
import ctypes, signal
cuda = ctypes.CDLL("libcuda.so.1")
context, at = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(1 << 30)) == 0
signal.pause()
"#;

/// The kernel's list of devices. Terminals stand for GPUs: they have NVIDIA's name here.
const DEVICES: &str = "Character devices:\n  1 mem\n  5 nvidia\n\nBlock devices:\n  7 loop\n";

/// A script for a simulated machine.
fn on_gpu(script: &str) -> String {
    format!("export GPUSLICE_SIM={GPU} GPUSLICE_SIM_STATE=/run/sim; {script}")
}

fn says(host: &Host, line: &str) {
    host.wait_for(line, || host.sh("cat /run/guard.log").out.contains(line));
}

#[test]
fn a_container_that_escapes_its_slice_opens_no_gpu_until_the_process_has_ended() {
    if !ready() {
        return;
    }
    let host = machine(GPU);
    let mut oci = Oci::new(&host, "runc", "createRuntime");
    let (spec, config) = limited(&host, &oci, GPU, &["/usr/bin/sleep", "1000000"]);
    oci.prepare_as(&spec, &config);
    let done = oci.run(NAME);
    assert_eq!(done.code, 0, "{done:?}");
    host.write("/run/devices", DEVICES);
    host.write(
        "/etc/gpuslice/gpusliced.toml",
        "[guard]\nbypass = \"deny\"\nstep_seconds = 0.5\n",
    );
    let guard = "mount --bind /run/devices /proc/devices; ln -s gpuslice /usr/bin/gpusliced
         exec gpusliced --guard";
    let mut guard = host.spawn("bash", &["-c", &on_gpu(guard)], "/run/guard.log");
    says(&host, "compares what the driver reports");
    let opens = || {
        oci.exec(NAME, &["/usr/bin/bash", "-c", "exec 3</dev/ptmx"])
            .code
            == 0
    };
    assert!(opens());
    host.write("/run/holds.py", HOLDS);
    // Without the library, but in the container's cgroup.
    let escape = format!(
        "echo $$ >/sys/fs/cgroup/{}/pods/{NAME}/cgroup.procs && exec python3 /run/holds.py",
        host.name()
    );
    let mut escaped = host.spawn("bash", &["-c", &on_gpu(&escape)], "/run/escape.log");
    says(&host, "its container can no longer open a GPU");
    assert!(!opens());
    // The container and the process go on, and nobody else is affected.
    assert_eq!(host.sh("exec 3</dev/ptmx").code, 0);
    assert_eq!(escaped.try_wait().expect("its state"), None);
    assert_eq!(oci.exec(NAME, &["/usr/bin/true"]).code, 0);
    // The pattern does not match the shell that runs this line.
    host.sh("pkill -f '[/]run/holds.py'").ok();
    escaped.wait().expect("its end");
    says(&host, "the container of slice limited can open GPUs again");
    assert!(opens());
    host.sh("pkill gpusliced").ok();
    guard.wait().expect("its end");
    oci.remove(NAME);
    assert_nothing_left(&host);
}
