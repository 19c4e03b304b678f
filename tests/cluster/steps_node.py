"""Steps about failures of the node: the driver, the kubelet, a reboot.

Touches: the cluster; its processes, by their ids."""

import os
import pathlib
import signal
import time

import api
import steps_reports
import steps_start
from components import kubectl, run
from objects import GIB, described, identity, kill_container, record, remove, running, sees, slices, with_claim


def process(program):
    """The ids of the processes of a program on this machine."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0].endswith(b"/" + program.encode()):
                found.append(int(folder.name))
    return found


def claim_files():
    return sorted(path.name for path in pathlib.Path("/run/cdi").glob("k8s.gpuslice.io-claim-*"))


def driver_is_killed(cluster):
    """SIGKILL of the driver: it comes back, pods keep their slices, and a new pod gets one"""
    with_claim("r1", "8Gi", cluster.gpus)
    with_claim("r2", "6Gi", cluster.gpus)
    running("r1", "r2")
    before = identity("r1"), identity("r2"), slices(cluster)
    (driver,) = process("gpuslice-dra")
    os.kill(driver, signal.SIGKILL)
    start = time.monotonic()
    with_claim("r3", "4Gi", cluster.gpus)
    running("r3")
    seconds = time.monotonic() - start
    sees("r3", 4 * GIB)
    remove("r3")
    assert (identity("r1"), identity("r2"), slices(cluster)) == before, "the other pods were touched"
    return [f"a pod that was created after the kill ran after {seconds:.1f} s"]


def driver_is_away(cluster):
    """no driver on the node: new pods wait, containers restart with their slices, the GPU is withdrawn"""
    before = identity("r1")
    steps_start.label(None)
    api.wait("the driver's pod is gone", lambda: not api.items(api.DRIVERS))
    start = time.monotonic()
    with_claim("r3", "4Gi", cluster.gpus)

    def prepares():
        return next((event for event in api.events("r3") if "FailedPrepareDynamicResources" in event), None)

    event, _ = api.wait("the kubelet cannot prepare the claim", prepares)
    described("r3")
    kill_container("r1")
    api.wait("r1's container has started again", lambda: identity("r1") != before)
    running("r1")
    sees("r1", 8 * GIB)
    described("r1")
    api.wait("the kubelet deletes the ResourceSlices", lambda: not steps_start.published())
    withdrawn = time.monotonic() - start
    steps_start.label("true")
    back = time.monotonic()
    api.wait("the ResourceSlice is published again", steps_start.published)
    running("r3")
    waited = time.monotonic() - back
    sees("r3", 4 * GIB)
    remove("r3")
    return [event, f"the ResourceSlice was gone after {withdrawn:.0f} s; with a driver again, the pod ran after {waited:.1f} s"]


def kubelet_restarts(cluster):
    """the kubelet is killed and started again: containers go on, and a new pod gets its slice"""
    before = identity("r1"), identity("r2"), slices(cluster)
    cluster.kill("kubelet")
    versions = {one["metadata"]["uid"] for one in api.items(api.SLICES)}
    cluster.kubelet()

    def published_anew():
        now = {one["metadata"]["uid"] for one in api.items(api.SLICES)}
        return now and not now & versions

    _, seconds = api.wait("the ResourceSlice is published anew", published_anew)
    with_claim("r3", "4Gi", cluster.gpus)
    running("r3")
    sees("r3", 4 * GIB)
    remove("r3")
    assert (identity("r1"), identity("r2"), slices(cluster)) == before, "the other pods were touched"
    return [f"the ResourceSlice was published anew after {seconds:.1f} s"]


def machine_reboots(cluster):
    """all processes are killed and /run is emptied: both pods are back, each with its slice, and nothing else"""
    before = {name: identity(name)["c"] for name in ("r1", "r2")}
    files = claim_files()
    assert len(files) == 2, files
    cluster.reboot()
    start = time.monotonic()
    for name, (identifier, _) in before.items():
        api.wait(f"{name} has a new container", lambda: identity(name)["c"][0] not in ("", identifier))
    running("r1", "r2")
    seconds = time.monotonic() - start
    sees("r1", 8 * GIB)
    sees("r2", 6 * GIB)
    assert claim_files() == files, claim_files()
    assert sorted(slices(cluster).values()) == [6 * GIB, 8 * GIB], slices(cluster)
    record("rebooted.txt", kubectl("get", "pods") + cluster.gpuslice("status"))
    api.wait("the driver is Ready", steps_start.ready_driver)
    with_claim("r3", "9Gi", cluster.gpus)
    running("r3")
    remove("r1", "r2", "r3")
    run("ctr", "version")
    return [f"both ran {seconds:.1f} s after the kubelet had started"]


# A taint of the guard stays for five minutes, or until the driver starts again.
STEPS = [driver_is_killed, driver_is_away, kubelet_restarts, *steps_reports.NODE, machine_reboots]
