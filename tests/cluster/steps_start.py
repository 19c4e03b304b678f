"""The first and the last steps: the cluster, the driver by the chart's manifests, its permissions.

Touches: the cluster."""

import json
import pathlib

import api
from components import LOGS, STATE, kubectl

ACCOUNT = "system:serviceaccount:gpuslice:gpuslice"


def driver():
    """The driver's pod, once there is one that is not ending."""
    pods = [one for one in api.items(api.DRIVERS) if "deletionTimestamp" not in one["metadata"]]
    return pods[0] if len(pods) == 1 else None


def ready_driver():
    one = driver()
    return one if one and api.condition(one, "Ready") else None


def published():
    """The devices that the node's driver offers."""
    slices = api.items(api.SLICES)
    return [device for one in slices if one["spec"].get("nodeName") == "node1" for device in one["spec"]["devices"]]


def label(value):
    """Labels the node, or removes the label that the DaemonSet selects."""
    api.call("PATCH", api.NODE, {"metadata": {"labels": {"gpuslice.io/node": value}}})


def apply(cluster):
    """Applies the manifests of packaging/kustomize. The only change names the simulated GPUs."""
    variables = [{"name": "GPUSLICE_SIM", "value": cluster.gpus}, {"name": "GPUSLICE_SIM_STATE", "value": "/mnt/sim"}]
    template = {"containers": [{"name": name, "env": variables} for name in ("devices", "daemon")]}
    patch = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "gpuslice", "namespace": "gpuslice"},
        "spec": {"template": {"spec": template}},
    }
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["../../tree/packaging/kustomize/gpuslice"],
        "patches": [{"patch": json.dumps(patch)}],
    }
    folder = STATE / "overlay"
    folder.mkdir(exist_ok=True)
    (folder / "kustomization.yaml").write_text(json.dumps(overlay))
    kubectl("apply", "-k", folder)


def start(cluster):
    """a machine boots: etcd, the control plane, the container engine and the kubelet; the node is Ready"""
    cluster.prepare()
    cluster.boot()
    node, _ = api.wait("the node is Ready", lambda: api.condition(api.get(api.NODE), "Ready") and api.get(api.NODE))
    api.wait("the account of pods", lambda: api.get("/api/v1/namespaces/default/serviceaccounts", "default"))
    info = node["status"]["nodeInfo"]
    return [f"Kubernetes {info['kubeletVersion']}, {info['containerRuntimeVersion']}, kernel {info['kernelVersion']}"]


def install(cluster):
    """the manifests install the driver, which publishes the GPU with the permissions of its own account"""
    label("true")
    apply(cluster)
    _, seconds = api.wait("the driver's pod is Ready", ready_driver)
    (device,) = api.wait("the ResourceSlice", published)[0]
    assert device["name"].startswith("gpu-"), device
    assert device["allowMultipleAllocations"] is True, device
    memory = device["capacity"]["memory"]
    policy = {"default": "24259Mi", "validRange": {"min": "256Mi", "step": "1Mi"}}
    assert memory == {"value": "24259Mi", "requestPolicy": policy}, memory
    for name, value in [("productName", "NVIDIA GeForce RTX 3090"), ("type", "gpu")]:
        assert device["attributes"][name] == {"string": value}, device["attributes"]
    logs = kubectl("-n", "gpuslice", "logs", "daemonset/gpuslice", "-c", "driver")
    # The container that writes the list of GPUs starts beside the driver.
    early = ("gpuslice-dra has just started", "there is no list of GPUs")
    unready = [line for line in logs.splitlines() if "not ready" in line]
    assert all(any(reason in line for reason in early) for line in unready), logs
    return [f"driver Ready {seconds:.1f} s after kubectl apply -k; memory {memory['value']}"]


def used():
    """The driver's requests that the API server has recorded: verb and resource, with the answer's code."""
    found = {}
    for line in (LOGS / "audit.log").read_text().splitlines():
        event = json.loads(line)
        if "objectRef" not in event or event["user"]["username"] != ACCOUNT:
            continue
        agent = event.get("userAgent", "")
        if agent.startswith("Python"):
            continue  # The step that tries what the driver must not do.
        what = event["objectRef"]
        names = [what.get("apiGroup") or "core", what["resource"]]
        if "subresource" in what:
            names[1] += f"/{what['subresource']}"
        found.setdefault((" ".join(names), event["verb"]), set()).add(event["responseStatus"]["code"])
    return found


def granted():
    """What the ClusterRole in the cluster grants: pairs of resource and verb."""
    role = api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles", "gpuslice")
    return {
        (f"{group or 'core'} {resource}", verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def permissions(cluster):
    """the driver was refused nothing, and asked for nothing that its role does not grant"""
    requests = used()
    assert requests, "the API server has recorded no request of the driver"
    refused = {what: codes for what, codes in requests.items() if codes & {401, 403}}
    assert not refused, f"refused: {refused}"
    more = set(requests) - granted()
    assert not more, f"granted by something else: {more}"
    unused = sorted(f"{verb} {resource}" for resource, verb in granted() - set(requests))
    return [
        "used: " + ", ".join(sorted(f"{verb} {resource}" for resource, verb in requests)),
        "granted and not used: " + (", ".join(unused) or "nothing"),
    ]


def nothing_is_left(cluster):
    """after the last pod, the node has no slice, ledger, promise or CDI file"""
    assert not api.items(api.PODS) and not api.items(api.CLAIMS)

    def left():
        folders = [pathlib.Path("/run/gpuslice") / name for name in ("containers", "slices", "ledgers", "promises", "tenants")]
        return [str(file) for folder in folders if folder.exists() for file in folder.iterdir()]

    api.wait("the node's records are gone", lambda: not left())
    files = [path.name for path in pathlib.Path("/run/cdi").iterdir()]
    assert not files, files
    mounts = [line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()]
    ours = [point for point in mounts if point.startswith("/run/gpuslice/")]
    assert not [point for point in ours if point not in ("/run/gpuslice/tenants", "/run/gpuslice/promises")], ours
    assert not cluster.ended(), cluster.ended()
