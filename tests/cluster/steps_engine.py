"""Steps about the engine and the policies: config.json, annotations, the driver's own limits.

Touches: the cluster; /etc/containerd, by `gpuslice runtime configure`."""

import json

import api
import steps_start
from components import STATE, kubectl, run
from objects import GIB, claim, config, described, execute, pod, remove, running, sees, with_claim

CHART = "/mnt/tree/packaging/helm/gpuslice"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"


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
    # The kubelet gives the variables in any order.
    made["process"]["env"].sort()
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


def compiled():
    """The chart's policies, once the cluster has checked the types of all their expressions."""
    policies = api.items(POLICIES)
    is_checked = lambda one: one.get("status", {}).get("observedGeneration") == one["metadata"]["generation"]
    return policies if policies and all(map(is_checked, policies)) else None


def checked():
    """The names of the policies, none of which has an expression of a wrong type."""
    found, _ = api.wait("the types of the policies are checked", compiled)
    warnings = {one["metadata"]["name"]: one["status"].get("typeChecking") for one in found}
    assert not any(warnings.values()), warnings
    return list(warnings)


def rendered(templates, *values):
    """The chart's objects of some of its templates."""
    chosen = [word for name in templates for word in ("--show-only", f"templates/{name}.yaml")]
    set_to = [word for value in values for word in ("--set", value)]
    words = ["-n", "gpuslice", *set_to, "--kube-version", "1.37.0", *chosen]
    helm = "/mnt/build/kube-tools/helm"
    return run(helm, "template", "gpuslice", CHART, *words, environment={"HOME": str(STATE)})


def policies(cluster):
    """the chart's policies compile, and refuse annotations and what a driver must not write, by name"""
    found = checked()
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
    about = {"apiVersion": "v1", "kind": "Node", "name": "node1"}
    event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "involvedObject": about, "reason": "R"}
    events = refused(
        lambda: api.create(api.EVENTS, event, token),
        "the driver on node node1 can only write events of gpuslice.io about pods, from this node",
    )
    entries = foreign_entry(token)
    refused(lambda: api.call("GET", "/api/v1/namespaces/default/secrets", token=token), "cannot list resource")
    return [f"{len(found)} policies: {', '.join(found)}", annotation, elsewhere, events, *entries]


def foreign_entry(token):
    """The driver of node1 may not write the status of another node's part of a claim, nor the allocation."""
    claim("foreign", "1Gi")
    result = {"request": "gpu", "driver": "gpuslice.io", "pool": "node2", "device": "gpu-x"}
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node1"]}]}
    allocation = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [here]}}
    status = f"{api.CLAIMS}/foreign/status"
    api.call("PATCH", status, {"status": {"allocation": allocation}})
    entry = {key: result[key] for key in ("driver", "pool", "device")} | {"data": {"limit": "1Gi"}}
    entries = refused(
        lambda: api.call("PATCH", status, {"status": {"devices": [entry]}}, token),
        "the driver on node node1 can only change the entries of gpuslice.io for this node in status.devices",
    )
    allocated = refused(lambda: api.call("PATCH", status, {"status": {"allocation": None}}, token))
    remove("foreign")
    return [entries, allocated]


def limits(cluster):
    """the chart's limits of namespaces: a claim or a template that exceeds one, or states no amount, is refused"""
    values = ["limits.enabled=true", "limits.namespaces.default=8Gi", "limits.every=1Gi"]
    kubectl("apply", "-f", "-", given=rendered(["policies", "limits"], *values))
    assert "gpuslice-limits" in checked()

    def exceeds():
        # Until the API server has read the policy, it admits the claim.
        try:
            claim("large", "8193Mi")
        except api.Refused as refusal:
            return refusal.message
        api.delete(api.CLAIMS, "large")
        return None

    larger, _ = api.wait("the policy is in force", exceeds)
    assert "a claim in namespace default may request at most 8Gi of GPU memory" in larger, larger
    refused(lambda: claim("whole", None), "each request must state its capacity memory")
    request = {"deviceClassName": "gpuslice.io", "capacity": {"requests": {"memory": "5Gi"}}}
    spec = {"devices": {"requests": [{"name": name, "exactly": request} for name in ("a", "b")]}}
    two = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "two"}}
    templates = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
    refused(lambda: api.create(templates, two | {"spec": {"spec": spec}}), "may request at most 8Gi of GPU memory")
    claim("fitting", "8Gi")
    remove("fitting")
    kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", "gpuslice-limits")

    def is_admitted():
        try:
            return claim("large", "8193Mi")
        except api.Refused:
            return None

    api.wait("the policy is gone", is_admitted)
    remove("large")
    return [larger]


def annotation_against_claim(cluster):
    """with the RuntimeClass: an annotation that differs from the claim is refused, and one that agrees is not"""
    run("/opt/gpuslice/bin/gpuslice", "runtime", "configure", "--runtime", "containerd")
    cluster.kill("containerd")
    cluster.engine()
    # The chart for annotated pods: its policies and its RuntimeClass.
    kubectl("apply", "-f", "-", given=rendered(["policies", "runtimeclass"], "annotations.by=runtimeClass"))
    checked()
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
    described("enlarged")
    remove("enlarged")
    pod("agreeing", cluster.gpus, ["little"], annotations={"gpuslice.io/memory": "1024MiB"}, **known)
    running("agreeing")
    sees("agreeing", GIB)
    remove("agreeing", "little")
    return [event.partition("gpuslice: ")[2] or event]


def refused_on_the_node(cluster):
    """an annotated pod holds memory that the scheduler does not count: the hook refuses a claim, and says so"""
    # A container without a GPU is not counted. This one can make the node of any device.
    more = {"runtimeClassName": "gpuslice", "privileged": True}
    pod("annotated", cluster.gpus, annotations={"gpuslice.io/memory": "20GiB"}, **more)
    running("annotated")
    with_claim("late", "8Gi", cluster.gpus)
    wanted = "no room for default/late/c: GPU 0 (NVIDIA GeForce RTX 3090, 23.69 GiB) has 3.69 GiB left, 8.00 GiB"
    holder = "held by default/annotated/c 20.00 GiB"

    def event(reason):
        return next((one for one in api.events("late") if one.startswith(reason) and wanted in one and holder in one), None)

    api.wait("the kubelet's event has the reason", lambda: event("Failed:"))
    ours, _ = api.wait("the driver posts an event", lambda: event("SliceRefused:"))
    api.wait("the kubelet waits to try again", lambda: any(one.startswith("BackOff") for one in api.events("late")))
    described("late")
    remove("annotated")
    seconds = running("late")
    sees("late", 8 * GIB)
    remove("late")
    return [ours, f"ran {seconds:.0f} s after the annotated pod was gone"]


STEPS = [same_configuration, policies, limits]
LAST = [annotation_against_claim, refused_on_the_node]
