"""Steps about what the driver reports to the API server: the use of claims, taints, health, events.

Touches: the cluster; the guard's state and the list of GPUs in /run/gpuslice."""

import json
import os
import pathlib
import time

import api
from components import kubectl
from objects import (
    CHECK, GIB, claim, container, described, execute, pending, pod, pod_spec, record, remove, running, sees, slices, with_claim,
)
from steps_start import published

RUN = pathlib.Path("/run/gpuslice")
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"


def share(name):
    """The entry of a claim's `status.devices`, if there is one."""
    entries = api.get(api.CLAIMS, name).get("status", {}).get("devices", [])
    return entries[0] if entries else None


def status(cluster):
    """status.devices of a claim: the limit, the use and a refusal; nothing is left of it without a pod"""
    script = "ledger alloc 4096; exec ledger hold 3072 /tmp/held"
    claim("measured", "4Gi")
    pod("measured", cluster.gpus, ["measured"], command=("/usr/bin/sh", "-c", script))
    running("measured")
    result = api.get(api.CLAIMS, "measured")["status"]["allocation"]["devices"]["results"][0]

    def in_use():
        entry = share("measured")
        return entry if entry and entry["data"].get("used", "0") not in ("0", "0Gi") else None

    entry, seconds = api.wait("the claim has a status with its use", in_use)
    data, (condition,) = entry["data"], entry["conditions"]
    for key in ("driver", "pool", "device", "shareID"):
        assert entry[key] == result[key], (entry, result)
    assert (condition["type"], condition["status"], condition["reason"]) == ("Ready", "True", "InForce"), condition
    assert data["limit"] == "4Gi" and data["fence"] == "preload", data
    assert 3 * GIB <= size(data["used"]) <= size(data["peak"]) <= 4 * GIB, data
    assert data["refused"] >= 1, data
    record("status.json", json.dumps(api.get(api.CLAIMS, "measured")["status"], indent=2))
    # The claim outlives its pod, and is not allocated then.
    api.delete(api.PODS, "measured")
    api.wait("pod measured is gone", lambda: api.is_gone(api.PODS, "measured"))
    api.wait("the claim has no allocation", lambda: not api.get(api.CLAIMS, "measured").get("status", {}).get("allocation"))
    assert share("measured") is None, share("measured")
    remove("measured")
    return [f"status.devices {seconds:.1f} s after the pod ran: {json.dumps(data)}"]


def size(text):
    """The bytes of a quantity in whole MiB or GiB."""
    units = {"Mi": 1 << 20, "Gi": GIB}
    return int(text[:-2]) * units[text[-2:]]


def drained(cluster):
    """kubectl drain: the pod of a Deployment is evicted, waits for a node, and runs again with a new claim"""
    request = {"deviceClassName": "gpuslice.io", "capacity": {"requests": {"memory": "10Gi"}}}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": request}]}}
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
    api.create(TEMPLATES, {**kind, "metadata": {"name": "web"}, "spec": {"spec": spec}})
    inner = pod_spec([container("c", cluster.gpus, ["gpu"])])
    inner["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "web"}]
    labels = {"app": "web"}
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": inner}},
    }
    api.create(DEPLOYMENTS, body)

    def names():
        return {one["metadata"]["name"] for one in api.items(api.PODS) if one["metadata"]["name"].startswith("web-")}

    (first,) = api.wait("the Deployment has a pod", names)[0]
    running(first)
    sees(first, 10 * GIB)
    claims = {one["metadata"]["name"] for one in api.items(api.CLAIMS)}
    said = kubectl("drain", "node1", "--ignore-daemonsets", "--pod-selector=app=web")
    api.wait("the evicted pod is gone", lambda: api.is_gone(api.PODS, first))
    (second,) = api.wait("the Deployment has another pod", lambda: names() - {first})[0]
    sentence = pending(second)
    api.wait("the first claim is gone", lambda: not claims & {one["metadata"]["name"] for one in api.items(api.CLAIMS)})
    record("drained.txt", f"{said}\n{kubectl('get', 'pods,resourceclaims')}\n{sentence}\n")
    assert not slices(cluster), slices(cluster)
    kubectl("uncordon", "node1")
    seconds = running(second)
    sees(second, 10 * GIB)
    api.delete(DEPLOYMENTS, "web")
    api.wait("the Deployment's pods are gone", lambda: not names())
    api.wait("their claims are gone", lambda: not api.items(api.CLAIMS))
    api.delete(TEMPLATES, "web")
    return [f"waiting: {sentence}", f"ran {seconds:.1f} s after kubectl uncordon"]


def report(devices):
    """Writes the state of a guard that has seen memory outside of slices on these devices."""
    state = {"schema": 1, "seen": int(time.time()), "level": 0, "terminated": 0, "killed": 0, "named": len(devices)}
    file = RUN / "guard.new"
    file.write_text(json.dumps(state | {"beyond": {device: 5 * GIB for device in devices}}))
    os.rename(file, RUN / "guard.json")


def taints(device):
    return {(one["key"], one.get("value"), one["effect"]) for one in device.get("taints", [])}


def pressure(cluster):
    """a device under pressure has a taint: a new claim waits, one that tolerates it does not, running pods stay"""
    before = slices(cluster)
    (device,) = published()
    uuid = device["attributes"]["uuid"]["string"]

    def tainted():
        report([uuid])
        (one,) = published()
        return one if taints(one) else None

    start = time.monotonic()
    one, _ = api.wait("the device is tainted", tainted)
    seconds = time.monotonic() - start
    wanted = {("gpuslice.io/pressure", "memory-outside-slices", "NoSchedule")}
    assert taints(one) == wanted, one["taints"]
    record("taint.json", json.dumps(one["taints"], indent=2))
    with_claim("avoiding", "1Gi", cluster.gpus)
    sentence = pending("avoiding")
    described("avoiding")
    tolerations = [{"key": "gpuslice.io/pressure", "operator": "Exists", "effect": "NoSchedule"}]
    claim("tolerating", "1Gi", tolerations=tolerations)
    pod("tolerating", cluster.gpus, ["tolerating"])
    running("tolerating")
    sees("tolerating", GIB)
    assert pending("avoiding") == sentence
    remove("avoiding", "tolerating")
    assert slices(cluster) == before, "the other pods were touched"
    return [f"tainted {seconds:.1f} s after the guard's report; a new pod: {sentence}"]


def health(name):
    """The health of a container's devices, as the pod's status has it."""
    (one,) = api.get(api.PODS, name)["status"]["containerStatuses"]
    return [each["health"] for resource in one.get("allocatedResourcesStatus", []) for each in resource["resources"]]


def lost(cluster):
    """a GPU leaves the node's list: it is tainted, and the kubelet reports its pods' devices Unhealthy; it comes back"""
    with_claim("kept", "2Gi", cluster.gpus)
    running("kept")
    file = RUN / "devices.json"
    text = file.read_text()
    (gone,) = {one["device"] for one in api.get(api.CLAIMS, "kept")["status"]["allocation"]["devices"]["results"]}
    api.wait("the kubelet reports the device's health", lambda: health("kept") == ["Healthy"])
    listed = json.loads(text)
    listed["devices"] = [one for one in listed["devices"] if one["uuid"].lower() != gone]
    assert len(listed["devices"]) == 1, listed

    def write(text):
        new = RUN / "devices.new"
        new.write_text(text)
        os.rename(new, file)

    def its_taints():
        return next(taints(one) for one in published() if one["name"] == gone)

    write(json.dumps(listed))
    _, tainted = api.wait("the device is tainted", its_taints)
    assert its_taints() == {("gpuslice.io/unhealthy", "not-listed", "NoSchedule")}, its_taints()
    _, unhealthy = api.wait("the kubelet reports Unhealthy", lambda: health("kept") == ["Unhealthy"])
    record("unhealthy.json", json.dumps(api.get(api.PODS, "kept")["status"]["containerStatuses"], indent=2))
    check = json.loads(execute("kept", CHECK, "check", "--json"))
    limits = {one["device"].lower(): one["limit"] for one in check["slice"]["devices"]}
    assert check["consistent"] and limits == {gone: 2 * GIB}, check
    write(text)
    api.wait("the device has no taint", lambda: not its_taints())
    api.wait("the kubelet reports Healthy", lambda: health("kept") == ["Healthy"])
    remove("kept")
    return [f"tainted after {tainted:.1f} s; Unhealthy in the pod's status {unhealthy:.1f} s later"]


CLAIMS = [status, drained]
NODE = [pressure]
LAST = [lost]
