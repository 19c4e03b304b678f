"""Checks packaging/examples with schemas of Kubernetes and Compose, and with a CEL evaluator.

The schemas are Kubernetes' OpenAPI schemas and the schema of Compose files. The CEL evaluator
checks the admission policy.

Touches: its arguments. Usage: check.py kubernetes | compose | policy FOLDER"""

import pathlib
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
}


def kubernetes(folder):
    """Checks that every object fits the API, without a field that the API server would drop."""
    for name, versions in KUBERNETES.items():
        for document in yaml.safe_load_all((folder / name).read_text()):
            for version in versions:
                kubernetes_validate.validate(document, version, strict=True)
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


def refusals(policy, operation, pod, old=None):
    """Returns the messages with which the policy refuses this request."""
    environment = celpy.Environment()

    def value(expression, **names):
        given = {"object": pod, "oldObject": old, "request": {"operation": operation}}
        given = {name: celpy.json_to_cel(one) for name, one in given.items()}
        return environment.program(environment.compile(expression)).evaluate(given | names)

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
    no_class, changed = (rule["message"] for rule in spec["validations"])

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


{"kubernetes": kubernetes, "compose": compose, "policy": policy}[sys.argv[1]](pathlib.Path(sys.argv[2]))
