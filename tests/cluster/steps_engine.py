"""Steps about the engine and the policies: config.json, annotations, the driver's own limits.

Touches: the cluster; /etc/containerd, by `gpuslice runtime configure`."""

import json

import api
import steps_start
from components import STATE, kubectl, run
from objects import GIB, claim, config, execute, pod, remove, running, sees, with_claim

CHART = "/mnt/tree/packaging/helm/gpuslice"


def refused(make, *parts):
    """Asserts that the API server refuses an object, and returns its message."""
    try:
        make()
    except api.Refused as refusal:
        for part in parts:
            assert part in refusal.message, refusal
        return refusal.message
    raise AssertionError(f"accepted, but wanted: {parts}")


def flat(value, path=""):
    """Every leaf of a configuration, by its path."""
    if isinstance(value, dict) and value:
        return {key: leaf for name, one in value.items() for key, leaf in flat(one, f"{path}.{name}").items()}
    if isinstance(value, list) and value:
        return {key: leaf for at, one in enumerate(value) for key, leaf in flat(one, f"{path}[{at}]").items()}
    return {path: value}


def settled(name):
    """A container's configuration without what differs between any two pods."""
    one = api.get(api.PODS, name)
    text = json.dumps(config(name))
    status = one["status"]["containerStatuses"][0]
    made = config(name)
    text = text.replace(status["containerID"].rpartition("/")[2], "ID").replace(one["metadata"]["uid"], "UID")
    text = text.replace(made["annotations"]["io.kubernetes.cri.sandbox-id"], "SANDBOX").replace(f'"{name}"', '"NAME"')
    text = text.replace(f"HOSTNAME={name}", "HOSTNAME=NAME")
    made = json.loads(text)
    # Paths with the number of the pod's first process, and the random name of the termination log.
    for namespace in made["linux"]["namespaces"]:
        namespace.pop("path", None)
    for mount in made["mounts"]:
        if "/containers/c/" in mount["source"]:
            mount["source"] = mount["source"].rpartition("/")[0]
    return made


def same_configuration(cluster):
    """config.json with and without a claim: only the hooks, the GPU and one variable differ"""
    pod("without", cluster.gpus)
    with_claim("claimed", "2Gi", cluster.gpus)
    running("without", "claimed")
    sees("claimed", 2 * GIB)
    claimed, plain = settled("claimed"), settled("without")
    rlimits = claimed["process"].get("rlimits")
    hooks = claimed.pop("hooks")
    assert sorted(hooks) == ["createRuntime", "poststop"], hooks
    for stage, entries in hooks.items():
        (entry,) = entries
        assert entry["path"] == "/opt/gpuslice/bin/gpuslice-hook" and entry["args"][-1] == stage, entry
    assert "hooks" not in plain, plain["hooks"]
    claimed["process"]["env"].remove("NVIDIA_VISIBLE_DEVICES=void")
    ours = [one for one in claimed["linux"].get("devices", []) if one["path"].startswith("/dev/nvidia")]
    # Besides the card's node, those that the machine below has for all cards.
    assert ("/dev/nvidia0", 195, 0) in [(one["path"], one["major"], one["minor"]) for one in ours], ours
    claimed["linux"]["devices"] = [one for one in claimed["linux"]["devices"] if one not in ours]
    rules = claimed["linux"]["resources"]["devices"]
    numbers = [(one["major"], one["minor"]) for one in ours]
    claimed["linux"]["resources"]["devices"] = [
        rule for rule in rules if (rule.get("major"), rule.get("minor")) not in numbers
    ]
    if not claimed["linux"]["devices"] and "devices" not in plain["linux"]:
        del claimed["linux"]["devices"]
    one, other = flat(claimed), flat(plain)
    differ = {path: (one.get(path), other.get(path)) for path in {*one, *other} if one.get(path) != other.get(path)}
    assert not differ, differ
    limit = execute("claimed", "/usr/bin/sh", "-c", "ulimit -Hn").strip()
    assert limit == execute("without", "/usr/bin/sh", "-c", "ulimit -Hn").strip(), limit
    remove("claimed", "without")
    return [f"{len(one)} keys are equal; rlimits {rlimits}; open files {limit}"]


def policies(cluster):
    """the chart's policies refuse annotations, and a driver that writes another node's slices, by name"""
    annotated = {"gpuslice.io/memory": "8GiB"}
    annotation = refused(
        lambda: pod("annotated", cluster.gpus, annotations=annotated),
        "gpuslice.io/ annotations have no effect in this cluster: use a ResourceClaim of class gpuslice.io",
    )
    pod("changed", cluster.gpus)
    refused(
        lambda: api.call("PATCH", f"{api.PODS}/changed", {"metadata": {"annotations": annotated}}),
        "gpuslice.io/ annotations of a pod cannot be changed",
    )
    remove("changed")
    one = steps_start.ready_driver()["metadata"]
    token = kubectl(
        "-n", "gpuslice", "create", "token", "gpuslice",
        "--bound-object-kind=Pod", f"--bound-object-name={one['name']}", f"--bound-object-uid={one['uid']}",
    ).strip()
    spec = {"driver": "gpuslice.io", "nodeName": "node2", "pool": {"name": "node2", "resourceSliceCount": 1}, "devices": []}
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "node2"}, "spec": spec}
    elsewhere = refused(
        lambda: api.create(api.SLICES, body, token),
        "the driver on node node1 can only change the ResourceSlices of this node",
    )
    refused(lambda: api.call("GET", "/api/v1/namespaces/default/secrets", token=token), "cannot list resource")
    return [annotation, elsewhere]


def annotation_against_claim(cluster):
    """with the RuntimeClass: an annotation that differs from the claim is refused, and one that agrees is not"""
    run("/opt/gpuslice/bin/gpuslice", "runtime", "configure", "--runtime", "containerd")
    cluster.kill("containerd")
    cluster.engine()
    # The chart for annotated pods: its policies and its RuntimeClass.
    templates = [word for name in ("policies", "runtimeclass") for word in ("--show-only", f"templates/{name}.yaml")]
    values = ["--set", "annotations.by=runtimeClass", "--kube-version", "1.37.0"]
    rendered = run(
        "/mnt/build/kube-tools/helm", "template", "gpuslice", CHART, "-n", "gpuslice", *values, *templates,
        environment={"HOME": str(STATE)},
    )
    kubectl("apply", "-f", "-", given=rendered)
    claim("little", "1Gi")
    known = {"runtimeClassName": "gpuslice"}

    def annotate():
        # The old policy is in force until the API server has read the new one.
        try:
            return pod("enlarged", cluster.gpus, ["little"], annotations={"gpuslice.io/memory": "18GiB"}, **known)
        except api.Refused as refusal:
            assert "have no effect in this cluster" in refusal.message, refusal
            return None

    api.wait("the new policy is in force", annotate)
    wanted = "gives a slice of 1.00 GiB, and annotation gpuslice.io/memory says 18.00 GiB"

    def sentence():
        return next((event for event in api.events("enlarged") if wanted in event), None)

    event, _ = api.wait("the hook refuses the annotation", sentence)
    remove("enlarged")
    pod("agreeing", cluster.gpus, ["little"], annotations={"gpuslice.io/memory": "1024MiB"}, **known)
    running("agreeing")
    sees("agreeing", GIB)
    remove("agreeing", "little")
    return [event.partition("gpuslice: ")[2] or event]


STEPS = [same_configuration, policies]
LAST = [annotation_against_claim]
