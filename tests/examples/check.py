"""Checks packaging/examples with schemas of Kubernetes and Compose, and with a CEL evaluator.

The schemas are Kubernetes' OpenAPI schemas and the schema of Compose files. The CEL evaluator
checks the admission policy and the selectors of claims.

Touches: its arguments. Usage: check.py kubernetes | compose | policy | claims FOLDER"""

import pathlib
import re
import subprocess
import sys

import celpy
import kubernetes_validate
import yaml

# Releases to check each file with: from the first that knows its API, or the oldest known here,
# to the newest.
KUBERNETES = {
    "pod.yaml": ["1.25", "1.30", "1.36", "1.37"],
    "runtimeclass.yaml": ["1.25", "1.30", "1.36", "1.37"],
    "nvidia-device-plugin.yaml": ["1.25", "1.30", "1.36", "1.37"],
    "admission-policy.yaml": ["1.30", "1.36", "1.37"],
    "claim-template.yaml": ["1.34", "1.36", "1.37"],
    "claims-spark.yaml": ["1.34", "1.36", "1.37"],
    "claims-jobs.yaml": ["1.34", "1.36", "1.37"],
    "claims-shared.yaml": ["1.34", "1.36", "1.37"],
    "claims-migration.yaml": ["1.34", "1.36", "1.37"],
    "claims-quota.yaml": ["1.34", "1.36", "1.37"],
}

# Devices as the driver publishes them: product name, whether memory is unified, memory in MiB.
H100 = ("NVIDIA H100 80GB HBM3", False, 81559)
RTX3090 = ("NVIDIA GeForce RTX 3090", False, 24259)
SPARK = ("NVIDIA GB10", True, 124610 - 8192)

# For each example, the devices that satisfy its requests, and the GiB that do not fit beside them.
CLAIMS = {
    "claim-template.yaml": ([H100], 24),
    "claims-spark.yaml": ([SPARK], 16),
    "claims-jobs.yaml": ([H100, RTX3090, SPARK], None),
    "claims-shared.yaml": ([H100, RTX3090, SPARK], None),
    "claims-migration.yaml": ([H100, RTX3090, SPARK], None),
}


def kubernetes(folder):
    """Checks that every object fits the API, without a field that the API server would drop."""
    for name, versions in KUBERNETES.items():
        for document in yaml.safe_load_all((folder / name).read_text()):
            for version in versions:
                kubernetes_validate.validate(document, version, strict=True)
    # Without the selector, pods wait for ever on nodes that are not configured.
    runtime_class = yaml.safe_load((folder / "runtimeclass.yaml").read_text())
    assert runtime_class["scheduling"]["nodeSelector"] == {"gpuslice.io/node": "true"}, runtime_class
    mistaken = yaml.safe_load((folder / "pod.yaml").read_text())
    mistaken["spec"]["runtimeClass"] = mistaken["spec"].pop("runtimeClassName")
    try:
        kubernetes_validate.validate(mistaken, "1.36", strict=True)
    except kubernetes_validate.ValidationError:
        return
    sys.exit("a misspelled field passes: the schemas check nothing")


def compose(folder):
    """Checks that the file fits the Compose specification."""
    check = [pathlib.Path(sys.executable).parent / "check-jsonschema"]
    check += ["--builtin-schema", "vendor.compose-spec", folder / "compose.yaml"]
    subprocess.run(check, check=True)


# A function of Kubernetes' CEL that celpy lacks.
FUNCTIONS = {"lowerAscii": lambda text: celpy.celtypes.StringType(text.lower())}


def refusals(policy, operation, pod, old=None):
    """Returns the messages with which the policy refuses this request."""
    environment = celpy.Environment()

    def value(expression, **names):
        given = {"object": pod, "oldObject": old, "request": {"operation": operation}}
        given = {name: celpy.json_to_cel(one) for name, one in given.items()}
        program = environment.program(environment.compile(expression), functions=FUNCTIONS)
        return program.evaluate(given | names)

    variables = celpy.celtypes.MapType()
    for variable in policy["variables"]:
        variables[celpy.celtypes.StringType(variable["name"])] = value(variable["expression"])
    rules = policy["validations"]
    return [rule["message"] for rule in rules if not value(rule["expression"], variables=variables)]


def policy(folder):
    """Checks that the policy refuses the requests that it describes, and no others."""
    documents = list(yaml.safe_load_all((folder / "admission-policy.yaml").read_text()))
    spec, binding = documents[0]["spec"], documents[1]["spec"]
    assert binding["policyName"] == documents[0]["metadata"]["name"], binding
    no_class, upper, changed = (rule["message"] for rule in spec["validations"])

    def pod(annotations=None, runtime_class=None):
        metadata = {"name": "p"} | ({"annotations": annotations} if annotations else {})
        return {"metadata": metadata, "spec": {"runtimeClassName": runtime_class} if runtime_class else {}}

    size, other = {"gpuslice.io/memory": "1GiB"}, {"gpuslice.io/memory": "20GiB"}
    foreign = {"example.com/gpuslice.io": "x"}
    example = yaml.safe_load((folder / "pod.yaml").read_text())
    cases = [
        ("CREATE", pod(), None, []),
        ("CREATE", pod(foreign), None, []),
        ("CREATE", pod(runtime_class="gpuslice"), None, []),
        ("CREATE", pod(size, "gpuslice"), None, []),
        ("CREATE", example, None, []),
        ("CREATE", pod(size), None, [no_class]),
        ("CREATE", pod(size, "nvidia"), None, [no_class]),
        ("CREATE", pod({"GPUslice.io/memory": "1GiB"}, "gpuslice"), None, [upper]),
        ("UPDATE", pod(size, "gpuslice"), pod(size, "gpuslice"), []),
        ("UPDATE", pod(size | foreign, "gpuslice"), pod(size, "gpuslice"), []),
        ("UPDATE", pod(foreign), pod(), []),
        # A pod that is older than the policy can still be deleted: that removes its finalizers.
        ("UPDATE", pod(size), pod(size), []),
        ("UPDATE", pod(other, "gpuslice"), pod(size, "gpuslice"), [changed]),
        ("UPDATE", pod(None, "gpuslice"), pod(size, "gpuslice"), [changed]),
        ("UPDATE", pod(foreign, "gpuslice"), pod(size, "gpuslice"), [changed]),
        ("UPDATE", pod(size, "gpuslice"), pod(None, "gpuslice"), [changed]),
        ("UPDATE", pod(size | {"gpuslice.io/total": "device"}, "gpuslice"), pod(size, "gpuslice"), [changed]),
    ]
    for operation, new, old, expected in cases:
        got = refusals(spec, operation, new, old)
        assert got == expected, f"{operation} {old} -> {new}: {got}, expected {expected}"


def matches(request, device):
    """Whether a device satisfies the selectors of a request."""
    name, integrated, _ = device
    environment = celpy.Environment()
    attributes = {"productName": name, "integrated": integrated, "uuid": "GPU-0"}
    given = {"device": celpy.json_to_cel({"driver": "gpuslice.io", "attributes": {"gpuslice.io": attributes}})}
    selectors = [selector["cel"]["expression"] for selector in request.get("selectors", [])]
    return all(environment.program(environment.compile(one)).evaluate(given) for one in selectors)


def claims(folder):
    """Checks that claims fit the devices they are for, and that every reference has a target."""
    for name, (devices, too_much) in CLAIMS.items():
        documents = list(yaml.safe_load_all((folder / name).read_text()))
        claims = {}
        for one in documents:
            if one["kind"].startswith("ResourceClaim"):
                spec = one["spec"]["spec"] if one["kind"].endswith("Template") else one["spec"]
                claims[one["kind"], one["metadata"]["name"]] = spec["devices"]
        total, used = 0, set()
        for one in documents:
            pod = one["spec"].get("template", one).get("spec") if one["kind"] != "Pod" else one["spec"]
            if "containers" not in pod:
                continue
            named = {}
            for claim in pod["resourceClaims"]:
                kind = "ResourceClaimTemplate" if "resourceClaimTemplateName" in claim else "ResourceClaim"
                key = kind, claim.get("resourceClaimTemplateName") or claim["resourceClaimName"]
                named[claim["name"]] = claims[key]
                # A template makes a claim for each pod. A claim is there once.
                if kind == "ResourceClaimTemplate" or key not in used:
                    replicas = one["spec"].get("replicas", 1)
                    total += replicas * sum(size(request) for request in claims[key]["requests"])
                used.add(key)
            for container in pod["containers"]:
                for claim in container.get("resources", {}).get("claims", []):
                    requests = [request["name"] for request in named[claim["name"]]["requests"]]
                    assert claim.get("request", requests[0]) in requests, f"{name}: {claim}"
            asked = [claim for c in pod["containers"] for claim in c.get("resources", {}).get("claims", [])]
            assert {claim["name"] for claim in asked} == set(named), f"{name}: a claim is used by no container"
        assert used == set(claims), f"{name}: {set(claims) - used} is used by no pod"
        for devices_of in claims.values():
            for request in devices_of["requests"]:
                fit = [device for device in (H100, RTX3090, SPARK) if matches(request["exactly"], device)]
                assert fit == devices, f"{name}: {request['name']} fits {fit}"
            for config in devices_of.get("config", []):
                keys = set(config["opaque"]["parameters"])
                known = {"apiVersion", "kind", "total", "present-as", "headroom", "page-cache", "fence"}
                assert keys <= known and config["opaque"]["driver"] == "gpuslice.io", f"{name}: {config}"
        assert all(total <= device[2] for device in devices), f"{name}: {total} MiB"
        assert not too_much or total + (too_much << 10) > devices[0][2], f"{name}: {total} MiB"
    # The pod with claims has the sizes and containers of the pod with annotations.
    before = yaml.safe_load((folder / "pod.yaml").read_text())
    *templates, after = yaml.safe_load_all((folder / "claims-migration.yaml").read_text())
    annotations = before["metadata"]["annotations"]
    memory = {one["metadata"]["name"]: size(one["spec"]["spec"]["devices"]["requests"][0]) for one in templates}
    asked = {"chat": "gpuslice.io/memory", "embeddings": "gpuslice.io/container.embeddings.memory"}
    assert memory == {name: mebibytes(annotations[key]) for name, key in asked.items()}, memory
    for old, new in zip(before["spec"]["containers"], after["spec"]["containers"], strict=True):
        assert (old["name"], old["image"], old["args"]) == (new["name"], new["image"], new["args"]), new["name"]
    assert "runtimeClassName" not in after["spec"] and "annotations" not in after["metadata"]


def mebibytes(text):
    """A size in whole GiB, in MiB."""
    return int(re.fullmatch(r"(\d+)GiB?", text).group(1)) << 10


def size(request):
    """The memory of a request, in MiB."""
    return mebibytes(request["exactly"]["capacity"]["requests"]["memory"])


{"kubernetes": kubernetes, "compose": compose, "policy": policy, "claims": claims}[sys.argv[1]](pathlib.Path(sys.argv[2]))
