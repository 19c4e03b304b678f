"""Steps about claims: room, waiting, sharing, Jobs, debug containers, several GPUs.

Touches: the cluster."""

import json
import time

import api
import steps_start
from components import kubectl
from objects import GIB, claim, described, execute, identity, job, pending, pod, remove, running, sees, slices, with_claim

SENTENCE = "cannot allocate all claims"


def room(cluster):
    """8 GiB and 8 GiB run, 12 GiB wait; one is deleted, and 12 GiB run"""
    gpus = cluster.gpus
    for name in ("d1", "d2"):
        with_claim(name, "8Gi", gpus)
    seconds = running("d1", "d2")
    verdict = [sees(name, 8 * GIB) for name in ("d1", "d2")][0]
    with_claim("d3", "12Gi", gpus)
    sentence = pending("d3")
    assert SENTENCE in sentence, sentence
    assert sorted(slices(cluster).values()) == [8 * GIB, 8 * GIB], slices(cluster)
    # Still waiting, and not by chance: the scheduler tries again within 5 seconds.
    time.sleep(6)
    assert pending("d3") == sentence
    described("d3")
    api.delete(api.PODS, "d1")
    # The claim's memory is free when no pod uses the claim and the claim is deleted.
    api.delete(api.CLAIMS, "d1")
    api.wait("pod d1 is gone", lambda: api.is_gone(api.PODS, "d1"))
    after = running("d3")
    sees("d3", 12 * GIB)
    sees("d2", 8 * GIB)
    return [
        f"both ran after {seconds:.1f} s; in them: {verdict}",
        f"d3: {sentence}",
        f"d3 ran {after:.2f} s after d1 was gone",
    ]


def debug(cluster):
    """kubectl debug on a full card: the container runs, without a GPU, and takes no memory"""
    full = cluster_is_full(cluster)
    before = slices(cluster)
    kubectl(
        "debug", "full", "--image=localhost/debian:1", "--image-pull-policy=Never", "--container=debugger",
        "--attach=false", "--", "/usr/bin/sleep", "infinity",
    )

    def runs():
        statuses = api.get(api.PODS, "full")["status"].get("ephemeralContainerStatuses", [])
        return [one for one in statuses if "running" in one["state"]]

    api.wait("the debug container runs", runs)
    described("full")
    listed = execute("full", "/usr/bin/ls", "/dev", container="debugger")
    assert "nvidia" not in listed, listed
    assert "nvidia0" in execute("full", "/usr/bin/ls", "/dev").split(), "the container of the claim has no GPU"
    assert slices(cluster) == before, "the debug container is counted"
    remove("full")
    return [f"the card was full: {full} for the last claim"]


def cluster_is_full(cluster):
    """Takes all of the card that other pods have left, by a pod of the name `full`."""
    left = 24259 - sum(slices(cluster).values()) // (1 << 20)
    with_claim("full", f"{left}Mi", cluster.gpus)
    running("full")
    sees("full", left << 20)
    return f"{left} MiB"


def waiting_job(cluster):
    """a Job that may not fail waits for room, and then runs"""
    said = ("/usr/bin/sh", "-c", "/opt/gpuslice check")
    job("batch", "12Gi", cluster.gpus, said)

    def its_pod():
        pods = [one for one in api.items(api.PODS) if one["metadata"]["name"].startswith("batch-")]
        return pods[0]["metadata"]["name"] if pods else None

    name, _ = api.wait("the Job has a pod", its_pod)
    sentence = pending(name)
    assert SENTENCE in sentence, sentence
    assert not api.get(api.JOBS, "batch")["status"].get("failed"), "the Job's pod has failed"
    remove("d3")

    def complete():
        one = api.get(api.JOBS, "batch")
        assert not one["status"].get("failed"), f"the Job has failed: {api.events(name)}"
        return api.condition(one, "Complete")

    _, seconds = api.wait("the Job is complete", complete)
    log = kubectl("logs", name)
    assert "CONSISTENT" in log and "12.00 GiB" in log, log
    api.delete(api.JOBS, "batch")
    remove(name, "d2")
    remove("batch")
    return [f"complete {seconds:.1f} s after there was room"]


def shared(cluster):
    """two containers and another pod share one claim: it counts once"""
    gpus = cluster.gpus
    claim("team", "12Gi")
    pod("server", gpus, ["team"], containers=("engine", "reranker"))
    pod("notebook", gpus, ["team"])
    with_claim("other", "11Gi", gpus)
    running("server", "notebook", "other")
    for name, container in [("server", "engine"), ("server", "reranker"), ("notebook", "c")]:
        sees(name, 12 * GIB, container=container)
    sees("other", 11 * GIB)
    limits = sorted(slices(cluster).values())
    assert limits == [11 * GIB, 12 * GIB], limits
    # The slice exists as long as one of its containers.
    remove("server")
    sees("notebook", 12 * GIB)
    assert sorted(slices(cluster).values()) == limits
    remove("notebook", "other", "team")
    return ["12 GiB in three containers, and 11 GiB beside them"]


def two_gpus(cluster):
    """a node with two GPUs: four claims of 11 GiB run, two on each card; a fifth waits"""
    steps_start.label(None)
    api.wait("the driver's pod is gone", lambda: not api.items(api.DRIVERS))
    cluster.gpus = "2xrtx3090"
    cluster.simulate()
    steps_start.apply(cluster)
    steps_start.label("true")
    _, seconds = api.wait("both GPUs are published", lambda: len(steps_start.published()) == 2)
    names = ["f1", "f2", "f3", "f4"]
    for name in names:
        with_claim(name, "11Gi", cluster.gpus)
    running(*names)
    results = [api.get(api.CLAIMS, name)["status"]["allocation"]["devices"]["results"][0] for name in names]
    cards = [one["device"] for one in results]
    assert sorted(cards.count(card) for card in set(cards)) == [2, 2], cards
    report = json.loads(cluster.gpuslice("status", "--json"))
    on = [one["devices"][0]["device"].lower() for one in report["slices"]]
    assert sorted(on) == sorted(cards), (on, cards)
    for name, card in zip(names, cards):
        check = json.loads(execute(name, "/opt/gpuslice", "check", "--json"))
        assert check["consistent"], check
        limits = {one["device"].lower(): one["limit"] for one in check["slice"]["devices"]}
        assert limits == {card: 11 * GIB}, limits
    with_claim("f5", "11Gi", cluster.gpus)
    sentence = pending("f5")
    assert SENTENCE in sentence, sentence
    api.wait("the new driver is Ready", steps_start.ready_driver)
    ids = {name: identity(name) for name in names}
    assert all(restarts == 0 for one in ids.values() for _, restarts in one.values()), ids
    remove(*names, "f5")
    return [f"both GPUs were published {seconds:.1f} s after the driver's pod was created", f"f5: {sentence}"]


STEPS = [room, debug, waiting_job, shared]
LAST = [two_gpus]
