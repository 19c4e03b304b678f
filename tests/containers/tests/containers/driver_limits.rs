//! The driver's own limit on a container's cgroup: it is removed however the container ends, and it
//! works with the limit of NVIDIA's toolkit. Both backends of the driver are simulated.

use gpuslice_containers::bundle::Oci;
use gpuslice_containers::check::Check;
use gpuslice_containers::engine::Engine;
use gpuslice_containers::host::Host;
use gpuslice_containers::place;
use gpuslice_containers::ready::ready;
use gpuslice_containers::slice::{GIB, assert_nothing_left};
use gpuslice_containers::spec::{Spec, hook};
use gpuslice_sim_machine::Machine;
use serde_json::{Value, json};
use std::time::Instant;

/// Cards whose driver limits cgroups, one for each of its two backends.
pub(super) const DMEM: &str = "rtx3090@615";
pub(super) const MISC: &str = "rtx3090@615-misc";
const RUNTIMES: [&str; 2] = ["runc", "crun"];
const NAME: &str = "limited";

/// Replaces gpuslice on the host. The hook clears the environment, so this script names the
/// simulated machine again. It can also kill a process before or after the limit is set. It dies with
/// the hook.
const COMMAND: &str = r#"#!/bin/sh
export GPUSLICE_SIM=@GPU GPUSLICE_SIM_STATE=/run/sim
way=$(cat /run/way)
if [ "$way" = hook-before ]; then
    kill -9 $PPID
    while :; do sleep 1; done
fi
/usr/bin/gpuslice "$@"
code=$?
read -r _ _ _ runtime _ </proc/$PPID/stat
case $way in
hook-after) kill -9 $PPID ;;
runtime)
    read -r comm </proc/$runtime/comm
    echo $comm >/run/killed
    kill -9 $runtime
    ;;
esac
exit $code
"#;

/// Makes a machine with cgroups of version 2 alone, as the driver's limits require.
pub(super) fn machine(gpu: &str) -> Host {
    let host = Host::with(gpu);
    host.sh("umount -l /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup && echo none >/run/way")
        .ok();
    host.write("/usr/bin/gpuslice-there", COMMAND.replace("@GPU", gpu));
    host.sh("chmod 755 /usr/bin/gpuslice-there").ok();
    host.write(
        "/etc/gpuslice/config.toml",
        "command = \"/usr/bin/gpuslice-there\"\n",
    );
    host
}

/// A container of 6 GiB whose cgroup has no device rules, because crun's rules need more rights
/// than the tests have.
pub(super) fn limited(
    host: &Host,
    oci: &Oci<'_>,
    gpu: &'static str,
    command: &[&str],
) -> (Spec, Value) {
    let mut spec = Spec::new(NAME).memory("6GiB").running(command);
    spec.gpus = gpu;
    let mut config = oci.config(&spec);
    config["linux"]["resources"] = json!({});
    config["linux"]["cgroupsPath"] = json!(format!("/{}/pods/{NAME}", host.name()));
    (spec, config)
}

/// Returns the driver's limits of a cgroup, soft and hard, and the sum of all dmem.min values below
/// it.
pub(super) fn kept(host: &Host, cgroup: &str) -> (Option<(u64, u64)>, u64) {
    let machine = Machine::open(&host.path("/run/sim")).expect("the simulated machine");
    let cgroup = format!("/{}{cgroup}", host.name());
    let limit = machine.limit(0, &cgroup);
    let limit = limit.map(|limit| (limit.soft, limit.hard));
    (limit, machine.guaranteed(0, &cgroup))
}

/// The ways in which a container ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Exit,
    InitKilled,
    RuntimeKilled,
    HookKilledBefore,
    HookKilledAfter,
    DeletedByForce,
}

const ENDS: [End; 6] = [
    End::Exit,
    End::InitKilled,
    End::RuntimeKilled,
    End::HookKilledBefore,
    End::HookKilledAfter,
    End::DeletedByForce,
];

impl End {
    /// The process that the script in place of gpuslice kills.
    fn way(self) -> &'static str {
        match self {
            End::RuntimeKilled => "runtime",
            End::HookKilledBefore => "hook-before",
            End::HookKilledAfter => "hook-after",
            End::Exit | End::InitKilled | End::DeletedByForce => "none",
        }
    }
}

/// Starts one container and ends it.
fn live_and_end(host: &Host, oci: &Oci<'_>, runtime: &str, end: End, case: &str) {
    host.write("/run/way", end.way());
    let done = oci.run(NAME);
    let started = end.way() == "none";
    if end == End::RuntimeKilled {
        // A detached crun has a second process, which reports success.
        let killed = std::fs::read_to_string(host.path("/run/killed"));
        assert!(killed.is_ok_and(|name| name.trim() == runtime), "{case}");
    } else {
        assert_eq!(done.code == 0, started, "{case}: {done:?}");
    }
    if started {
        let said = kept(host, &format!("/pods/{NAME}"));
        assert_eq!(said, (Some((0, 6 * GIB)), 0), "{case}");
    }
    let to_end = match end {
        End::Exit => "touch /run/sim/exit",
        End::InitKilled => "kill -9 $(cat $group/cgroup.procs)",
        _ => "true",
    };
    // An engine or systemd removes the remains of a killed runtime. The cgroup is removed last.
    let script = format!(
        "group=/sys/fs/cgroup/{name}/pods/{NAME}
         {to_end}
         if [ {end:?} = Exit ] || [ {end:?} = InitKilled ]; then
             for i in $(seq 1000); do {runtime} state {NAME} | grep -q '\"stopped\"' && break; sleep 0.01; done
             {runtime} delete {NAME} || exit 1
         else
             {runtime} delete -f {NAME} >/dev/null 2>&1
         fi
         rm -rf /run/sim/exit /run/killed /run/runc/{NAME} /run/crun/{NAME}
         if [ -d $group ]; then
             echo 1 >$group/cgroup.kill
             for i in $(seq 1000); do rmdir $group 2>/dev/null && break; sleep 0.01; done
         fi
         [ ! -d $group ] && gpuslice gc",
        name = host.name()
    );
    let done = host.sh(&script);
    assert_eq!(done.code, 0, "{case}: {done:?}");
    let left = ["", "/pods", "/pods/limited"].map(|cgroup| kept(host, cgroup));
    assert_eq!(left, [(None, 0); 3], "{case}");
}

/// The number of containers on each backend. By default each runtime meets each end once; `make
/// check-all` starts a thousand.
fn starts() -> usize {
    let wanted = std::env::var("GPUSLICE_LIMITED_STARTS");
    wanted.map_or(12, |starts| starts.parse().expect("a number"))
}

#[test]
fn no_guarantee_and_no_slice_is_left_however_containers_end() {
    if !ready() {
        return;
    }
    for gpu in [DMEM, MISC] {
        let host = machine(gpu);
        // The container ends on request, or with its machine.
        let wait = "until [ -e /state/exit ]; do /usr/bin/busybox usleep 1000; done";
        let oci = RUNTIMES.map(|runtime| Oci::new(&host, runtime, "createRuntime"));
        let (spec, config) = limited(&host, &oci[0], gpu, &["/usr/bin/bash", "-c", wait]);
        oci[0].prepare_as(&spec, &config);
        let begin = Instant::now();
        for round in 0..starts() {
            let at = round % 2;
            let end = ENDS[round / 2 % ENDS.len()];
            let case = format!("{gpu}, container {round}, {}: {end:?}", RUNTIMES[at]);
            live_and_end(&host, &oci[at], RUNTIMES[at], end, &case);
            if round < 2 * ENDS.len() || round % 50 == 0 {
                assert_nothing_left(&host);
            }
        }
        assert_nothing_left(&host);
        let seconds = begin.elapsed().as_secs();
        println!("{gpu}: {} containers in {seconds} s", starts());
    }
}

/// The hooks of a container with a limit of NVIDIA's toolkit. The toolkit's hook runs before or
/// after ours.
pub(super) fn with_toolkit(gpu: &str, first: bool) -> Value {
    let theirs = json!({
        "path": "/usr/bin/nvidia-cdi-hook",
        "args": ["nvidia-cdi-hook", "apply-cuda-memory-limits", "--gpu-id", UUID],
        "env": ["PATH=/usr/bin:/bin", format!("GPUSLICE_SIM={gpu}"), "GPUSLICE_SIM_STATE=/run/sim"],
    });
    let mut create = vec![theirs, hook("createRuntime")];
    if !first {
        create.reverse();
    }
    json!({"createRuntime": create, "poststop": [hook("poststop")]})
}

const UUID: &str = "GPU-3090aaaa-1111-4222-8333-444455550000";

/// The toolkit sets its limit without regard to ours. If its hook runs first, the lower of the two
/// limits holds. If it runs last and sets a higher limit, the driver allows more than the slice,
/// and the host's log says so. The toolkit leaves its guarantees in ancestor cgroups, as NVIDIA
/// documents; none of them is ours.
#[test]
fn beside_nvidias_toolkit_the_lower_limit_holds_or_the_log_says_why_not() {
    if !ready() {
        return;
    }
    for gpu in [DMEM, MISC] {
        let host = machine(gpu);
        let stand_in = place::package().join("nvidia-memory-limits.py");
        let stand_in = std::fs::read(stand_in).expect("the stand-in");
        host.write("/usr/bin/nvidia-cdi-hook", stand_in);
        // Runtimes discard the output of a hook that succeeds.
        let hook = "#!/bin/sh\nexec /usr/bin/gpuslice-hook.own \"$@\" 2>>/run/hook.err\n";
        host.sh("mv /usr/bin/gpuslice-hook /usr/bin/gpuslice-hook.own")
            .ok();
        host.write("/usr/bin/gpuslice-hook", hook);
        host.sh("chmod 755 /usr/bin/nvidia-cdi-hook /usr/bin/gpuslice-hook")
            .ok();
        for runtime in RUNTIMES {
            for (theirs, first) in [(4, true), (8, true), (4, false), (8, false)] {
                let case = format!("{gpu}, {runtime}: {theirs} GiB, first: {first}");
                let mut oci = Oci::new(&host, runtime, "createRuntime");
                oci.hooks = with_toolkit(gpu, first);
                let sleeps = ["/usr/bin/sleep", "1000000"];
                let (spec, mut config) = limited(&host, &oci, gpu, &sleeps);
                let mib = theirs << 10;
                for name in ["REQUEST", "LIMIT"] {
                    let env = config["process"]["env"].as_array_mut().expect("it");
                    env.push(json!(format!("NVIDIA_GPU_MEMORY_{name}={mib}")));
                }
                let before = kept(&host, "/pods").1;
                oci.prepare_as(&spec, &config);
                let done = oci.run(NAME);
                assert_eq!(done.code, 0, "{case}: {done:?}");
                let log = host.sh("cat /run/hook.err; rm /run/hook.err").ok();
                let raised = !first && theirs > 6;
                let held = if raised { theirs } else { theirs.min(6) } * GIB;
                let said = kept(&host, &format!("/pods/{NAME}")).0;
                assert_eq!(said, Some((held, held)), "{case}");
                // Programs see the lower of the two limits in either order.
                let check = Check::run(&oci, NAME);
                assert!(check.consistent(), "{case}: {}", check.json());
                assert_eq!(check.totals(), [theirs.min(6) * GIB], "{case}");
                let line = "nvidia-cdi-hook runs after gpuslice-hook and raises the driver's limit to \
                            8.00 GiB";
                assert_eq!(log.contains(line), raised, "{case}: {log}");
                oci.remove(NAME);
                let left = kept(&host, "/pods").1 - before;
                assert_eq!(left, if gpu == DMEM { held } else { 0 }, "{case}");
                assert_nothing_left(&host);
            }
        }
    }
}
