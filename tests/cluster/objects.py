"""Claims, pods and Jobs of the scenario, and what their containers report.

Touches: the API server; programs in containers, by kubectl exec."""

import json
import pathlib

import api
from components import LOGS, kubectl, run

GIB = 1 << 30
CHECK = "/opt/gpuslice"
SLEEP = ("/usr/bin/sleep", "infinity")


def claim(name, memory, **more):
    """Creates a claim of an amount of memory, or of a whole GPU. More: keys of its request."""
    request = {"deviceClassName": "gpuslice.io", **more}
    if memory:
        request["capacity"] = {"requests": {"memory": memory}}
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": request}]}},
    }
    return api.create(api.CLAIMS, body)


def container(name, gpus, claims=(), command=SLEEP):
    """A container with the simulated driver. Only its claims give it a slice."""
    mounts = [("driver", "/sim", True), ("state", "/state", False), ("command", CHECK, True)]
    return {
        "name": name,
        "image": "localhost/debian:1",
        "imagePullPolicy": "Never",
        "command": list(command),
        "env": [{"name": "GPUSLICE_SIM", "value": gpus}, {"name": "GPUSLICE_SIM_STATE", "value": "/state"}],
        "volumeMounts": [{"name": at, "mountPath": path, "readOnly": is_read_only} for at, path, is_read_only in mounts],
        "resources": {"claims": [{"name": one} for one in claims]},
    }


def pod_spec(containers, claims=(), **more):
    volumes = [("driver", "/mnt/build/sim"), ("state", "/mnt/sim"), ("command", "/mnt/build/release/gpuslice")]
    return {
        "containers": containers,
        "resourceClaims": [{"name": one, "resourceClaimName": one} for one in claims],
        "volumes": [{"name": at, "hostPath": {"path": path}} for at, path in volumes],
        "automountServiceAccountToken": False,
        # The command `sleep` ignores the signal to end.
        "terminationGracePeriodSeconds": 1,
        **more,
    }


def pod(name, gpus, claims=(), containers=("c",), annotations=None, command=SLEEP, privileged=False, **more):
    """Creates a pod, each of whose containers uses all its claims."""
    rights = {"securityContext": {"privileged": privileged}}
    made = [container(one, gpus, claims, command) | rights for one in containers]
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": pod_spec(made, claims, **more),
    }
    return api.create(api.PODS, body)


def with_claim(name, memory, gpus, **more):
    """Creates a pod with a claim of its own, which has its name."""
    claim(name, memory)
    return pod(name, gpus, [name], **more)


def job(name, memory, gpus, command):
    """Creates a Job of one pod that may not fail, with a claim."""
    claim(name, memory)
    spec = pod_spec([container("c", gpus, [name], command)], [name], restartPolicy="Never")
    template = {"spec": spec}
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"backoffLimit": 0, "template": template},
    }
    return api.create(api.JOBS, body)


def is_running(name):
    one = api.get(api.PODS, name)
    return one["status"]["phase"] == "Running" and api.condition(one, "Ready") and one


def running(*names):
    """Waits until these pods run, and returns the seconds."""
    seconds = 0
    for name in names:
        try:
            seconds += api.wait(f"pod {name} runs", lambda: is_running(name))[1]
        except AssertionError as error:
            raise AssertionError(f"{error}; its events: {api.events(name)}") from None
    return seconds


def pending(name):
    """Waits until the scheduler has refused a pod, and returns its sentence."""

    def sentence():
        one = api.get(api.PODS, name)
        assert one["status"]["phase"] == "Pending", f"pod {name} is {one['status']['phase']}"
        for each in one["status"].get("conditions", []):
            if each["type"] == "PodScheduled" and each["status"] == "False":
                return each["message"]
        return None

    return api.wait(f"the scheduler refuses {name}", sentence)[0]


def remove(*names):
    """Deletes pods and the claims of these names, and waits until they are gone."""
    for name in names:
        api.delete(api.PODS, name)
    for name in names:
        api.wait(f"pod {name} is gone", lambda: api.is_gone(api.PODS, name))
        api.delete(api.CLAIMS, name)
    for name in names:
        api.wait(f"claim {name} is gone", lambda: api.is_gone(api.CLAIMS, name))


def execute(name, *words, container="c", check=True):
    return kubectl("exec", name, "-c", container, "--", *words, check=check)


def sees(name, *sizes, container="c"):
    """Asserts that all APIs in a container report these totals, from our library, and agree."""
    report = json.loads(execute(name, CHECK, "check", "--json", container=container))
    assert report["consistent"], f"{name}/{container}: {report}"
    assert report["shim"] == "/.gpuslice/libgpuslice.so", f"{name}/{container} has loaded {report['shim']}"
    # An answer of 32 bits cannot express a large number.
    rows = [row for row in report["rows"] if row["api"] not in ("cuMemGetInfo", "cuDeviceTotalMem")]
    totals = sorted({row["total"] for row in rows if row["total"] is not None})
    assert totals == sorted(sizes), f"{name}/{container} sees {totals}, not {sorted(sizes)}"
    text = execute(name, CHECK, "check", container=container)
    return next(line for line in text.splitlines() if line.startswith("CONSISTENT"))


def record(name, text):
    """Keeps an output for the handbook, in the logs."""
    folder = LOGS / "recorded"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)


def described(name):
    """Keeps what kubectl says about a pod."""
    record(f"{name}.txt", kubectl("get", "pod", name) + kubectl("describe", "pod", name))


def identity(name):
    """The ids and the restarts of a pod's containers, by their names."""
    statuses = api.get(api.PODS, name)["status"]["containerStatuses"]
    return {one["name"]: (one["containerID"], one["restartCount"]) for one in statuses}


def config(name, container="c"):
    """The configuration that runc got for a container."""
    identifier = identity(name)[container][0].rpartition("/")[2]
    folder = pathlib.Path("/run/containerd/io.containerd.runtime.v2.task/k8s.io") / identifier
    return json.loads((folder / "config.json").read_text())


def slices(cluster):
    """The slices that the node counts: the limit of each, by its name."""
    report = json.loads(cluster.gpuslice("status", "--json"))
    return {one["name"]: sum(each["limit"] for each in one["devices"]) for one in report["slices"]}


def kill_container(name, container="c"):
    """Kills the first process of a container."""
    identifier = identity(name)[container][0].rpartition("/")[2]
    run("ctr", "-n", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", identifier)
