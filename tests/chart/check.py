"""Checks packaging/helm/gpuslice and packaging/kustomize/gpuslice with real helm and kubectl.

Kubernetes' OpenAPI schemas check what the chart renders. A CEL evaluator checks its policies.

Touches: its arguments, and helm's folders below a temporary one.
Usage: check.py rendered | values | notes | permissions | policies | kustomize | write"""

import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import kubernetes_validate
import kubernetes_validate.utils
import yaml
from policies import Policies

TREE = pathlib.Path(__file__).resolve().parents[2]
TOOLS = pathlib.Path(os.environ.get("GPUSLICE_TARGET", TREE / "target")) / "kube-tools"
CHART = TREE / "packaging/helm/gpuslice"
MANIFESTS = TREE / "packaging/kustomize/gpuslice"

# The library reads and parses megabytes for each object.
kubernetes_validate.utils.schema_contents = functools.lru_cache(None)(kubernetes_validate.utils.schema_contents)

# Sets of values, each with the releases of Kubernetes that they are for.
CLAIMS = ["1.34.0", "1.35.0", "1.36.0", "1.37.0"]
EVERY = ["1.30.0", "1.33.0", *CLAIMS]
SETS = [
    ("claims", CLAIMS, {}),
    ("an extended resource", CLAIMS[2:], {"claims": {"deviceClass": {"extendedResourceName": "gpuslice.io/gpu"}}}),
    ("annotations only", EVERY, {"claims": {"enabled": False}, "annotations": {"by": "runtimeClass"}}),
    ("CRI-O's hooks", EVERY, {"claims": {"enabled": False}, "annotations": {"by": "engine"}, "metrics": {"enabled": False}}),
    ("NRI", EVERY, {"claims": {"enabled": False}, "annotations": {"by": "nri"}}),
    ("no policies", CLAIMS, {"admission": {"enabled": False}}),
    ("removal", CLAIMS, {"cleanup": True}),
    (
        "everything",
        CLAIMS,
        {
            "image": {"repository": "registry.example/gpuslice", "digest": "sha256:" + "0" * 64},
            "imagePullSecrets": [{"name": "registry"}],
            "host": {"folder": "/home/kubernetes/bin/gpuslice", "driverLibraries": "/run/nvidia/driver/usr/lib/x86_64-linux-gnu"},
            "annotations": {"by": "nri"},
            "limits": {"enabled": True, "every": "24Gi", "namespaces": {"students": "8Gi"}},
            "metrics": {"compatible": ["hami"], "allowedFrom": [{"namespaceSelector": {}}]},
            "daemon": "[meminfo]\n[guard]\nmemory = \"act\"\n",
            "guard": {"enabled": True},
            "serviceAccount": {"name": "slices", "annotations": {"owner": "team"}},
            "nodeSelector": {"pool": "gpu"},
            "podAnnotations": {"owner": "team"},
            "podLabels": {"team": "gpu"},
        },
    ),
    ("removal of NRI", EVERY, {"cleanup": True, "claims": {"enabled": False}, "annotations": {"by": "nri"}}),
    ("removal of the class", EVERY, {"cleanup": True, "claims": {"enabled": False}, "annotations": {"by": "runtimeClass"}}),
]

# Values that are refused, each with a part of the message.
WRONG = [
    ({"hosts": {}}, "hosts"),
    ({"host": {"folder": "opt/gpuslice"}}, "/host/folder"),
    ({"host": {"folder": "/"}}, "/host/folder"),
    ({"image": {"digest": "sha256:abc"}}, "/image/digest"),
    ({"image": {"pullPolicy": "always"}}, "/image/pullPolicy"),
    ({"annotations": {"by": "nvidia"}}, "/annotations/by"),
    ({"annotations": {"runtimeClass": {"nodeSelector": None}}}, "/annotations/runtimeClass"),
    ({"claims": {"enabled": "yes"}}, "/claims/enabled"),
    ({"claims": {"deviceClass": {"extendedResourceName": "gpu"}}}, "/claims/deviceClass/extendedResourceName"),
    ({"limits": {"every": "8 GiB"}}, "/limits/every"),
    ({"limits": {"namespaces": {"students": 8}}}, "/limits/namespaces/students"),
    ({"limits": {"namespaces": {"Students": "8Gi"}}}, "'Students' does not match"),
    ({"metrics": {"port": 0}}, "/metrics/port"),
    ({"metrics": {"address": "localhost"}}, "/metrics/address"),
    ({"metrics": {"compatible": ["dcgm"]}}, "/metrics/compatible/0"),
    ({"cleanup": 1}, "/cleanup"),
    ({"claims": {"enabled": False}}, "nothing gives pods a slice"),
    ({"guard": {"enabled": True}}, "guard.enabled needs the table [guard]"),
    ({"daemon": "[metrics]\n"}, "the table [metrics] is made of the values metrics"),
    ({"limits": {"enabled": True}, "admission": {"enabled": False}}, "limits need admission.enabled=true"),
]


def run(*words, given=""):
    """Runs a tool and returns what it prints, or exits with what it complains about."""
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(words, input=given, capture_output=True, text=True, env={"HOME": home, "PATH": "/nowhere"})
    return done


def helm(*words, values=None):
    return run(TOOLS / "helm", *words, "--values", "-", given=json.dumps(values or {}))


def documents(text):
    """The objects of a text, in an order of their own."""
    objects = [document for document in yaml.safe_load_all(text) if document]
    return sorted(objects, key=lambda one: (one["kind"], one["metadata"].get("name", "")))


def render(values=None, version="1.37.0", namespace="gpuslice"):
    """The text that the chart makes of values, and what helm complains about."""
    done = helm("template", "gpuslice", CHART, "--namespace", namespace, "--kube-version", version, values=values)
    return done.stdout, done.stderr


def objects(values=None, **options):
    text, complaint = render(values, **options)
    assert text, complaint
    return documents(text)


def rendered():
    """Every object fits the API of every release, without a field that the API server would drop."""
    done = helm("lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout + done.stderr
    for name, versions, values in SETS:
        for version in versions:
            made = objects(values, version=version)
            for one in made:
                try:
                    kubernetes_validate.validate(one, version, strict=True)
                except kubernetes_validate.ValidationError as error:
                    sys.exit(f"{name}, Kubernetes {version}: {one['kind']}: {list(error.path)}: {error.message}")
            assert consistent(made), name
            assert sliced_or_refused(made) or name.startswith("removal"), name
    mistaken = objects()
    daemon = next(one for one in mistaken if one["kind"] == "DaemonSet")
    daemon["spec"]["template"]["spec"]["hostPid"] = True
    try:
        kubernetes_validate.validate(daemon, "1.37", strict=True)
    except kubernetes_validate.ValidationError:
        return
    sys.exit("a misspelled field passes: the schemas check nothing")


def sliced_or_refused(made):
    """No pod waits on a node that is not configured, and none starts without the slice that it asks for."""
    for one in made:
        if one["kind"] == "RuntimeClass":
            assert one["scheduling"]["nodeSelector"] == {"gpuslice.io/node": "true"}, one
    settings = [one["data"]["config.toml"] for one in made if "config.toml" in one.get("data", {})]
    refuses = re.compile('^when-not-injectable = "refuse"$', re.MULTILINE)
    assert all(refuses.search(text) for text in settings), settings
    return bool(settings)


def consistent(made):
    """Whether names that refer to other objects or volumes have a target."""
    names = {(one["kind"], one["metadata"]["name"]) for one in made}
    for one in made:
        if one["kind"] == "ValidatingAdmissionPolicyBinding":
            assert ("ValidatingAdmissionPolicy", one["spec"]["policyName"]) in names, one
            limits = one["spec"].get("paramRef")
            assert not limits or ("ConfigMap", limits["name"]) in names, one
        if one["kind"] == "ClusterRoleBinding":
            assert ("ClusterRole", one["roleRef"]["name"]) in names, one
            for subject in one["subjects"]:
                assert (subject["kind"], subject["name"]) in names, one
        if one["kind"] == "DaemonSet":
            pod = one["spec"]["template"]["spec"]
            assert ("ServiceAccount", pod["serviceAccountName"]) in names, one
            volumes = {volume["name"]: volume for volume in pod["volumes"]}
            used = set()
            # A program that fails without a working GPU would keep the driver from releasing claims.
            assert [container["name"] for container in pod.get("initContainers", [])] in (["install"], []), one
            for container in [*pod.get("initContainers", []), *pod["containers"]]:
                used |= {mount["name"] for mount in container.get("volumeMounts", [])}
                # Only the programs that enter the node's mounts are privileged, and have no token.
                enters = container["command"][:2] == ["/usr/bin/gpuslice-node", "on-host"] or container["name"] == "cleanup"
                assert container["securityContext"].get("privileged", False) == enters, container
                assert not enters or not container.get("volumeMounts"), container
                # The NRI plugin writes the events of containers that run without their slice.
                mounts = {mount["mountPath"]: mount for mount in container.get("volumeMounts", [])}
                log = mounts.get("/host/var/log/gpuslice", {"readOnly": True})
                path = volumes.get(log.get("name"), {}).get("hostPath", {}).get("path")
                writes = path == "/var/log/gpuslice" and not log.get("readOnly")
                assert writes == (container["name"] == "nri"), container
            assert used <= set(volumes), (used, volumes)
            assert volumes["settings"]["configMap"]["name"] in {name for kind, name in names if kind == "ConfigMap"}
    return True


def values():
    """Wrong values are refused, and the message names them."""
    for wrong, part in WRONG:
        text, complaint = render(wrong)
        path = part.lstrip("/").replace("/", ".")
        assert not text and (part in complaint or path in complaint), f"{wrong}: {complaint or 'accepted'}"
    for version, wrong, part in [
        ("1.29.0", {}, "kubeVersion"),
        ("1.33.0", {}, "claims need Kubernetes 1.34 or later"),
        ("1.35.0", SETS[1][2], "extendedResourceName needs Kubernetes 1.36"),
    ]:
        text, complaint = render(wrong, version=version)
        assert not text and part in complaint, f"{version} {wrong}: {complaint or 'accepted'}"
    # The defaults are in the schema, and every key of the schema has a default.
    schema = json.loads((CHART / "values.schema.json").read_text())
    given = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(schema["properties"]) - {"global"} == set(given), set(schema["properties"]) ^ set(given)
    workspace = re.search(r'^version = "(.+)"', (TREE / "Cargo.toml").read_text(), re.M).group(1)
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == workspace, chart


def notes():
    """The text after an installation names what the values need next."""

    def after(values):
        done = helm("install", "gpuslice", CHART, "--namespace", "gpuslice", "--dry-run=client", values=values)
        assert done.returncode == 0, done.stderr
        return done.stdout.split("\nNOTES:\n")[1]

    assert "kubectl get resourceslices" in after({})
    assert "--set cleanup=true" in after({}) and "helm uninstall" not in after({})
    assert "kubectl label node NODE gpuslice.io/node=true" in after(SETS[2][2])
    assert "resourceslices" not in after(SETS[2][2])
    assert "helm uninstall gpuslice -n gpuslice" in after({"cleanup": True})
    # Rules of the policy count only where the hook runs, and no admission policy refuses the other pods.
    dialects = {"policy": "[dialects]\nkai = true\n"}
    assert "The policy's [dialects] applies only to pods with a claim." in after(dialects)
    assert "even if they have the keys of other\nsystems, such as gpu-memory. With annotations.by=nri, it applies to" in after(dialects)
    by_class = after({**SETS[2][2], **dialects})
    assert "The policy's [dialects] applies only to pods with runtimeClassName: gpuslice." in by_class
    unasked = {"policy": 'deny-unannotated = true\n[maximum]\ncontainer = "8GiB"\n[namespaces.a]\nnamespace = "8GiB"\n'}
    rules = "The policy's [maximum], [namespaces.*], deny-unannotated apply "
    assert rules + "only to pods with a claim." in after(unasked) and "gpu-memory" not in after(unasked)
    assert "they apply to all pods with a GPU" in after(unasked)
    default = {"policy": '[default]\nmemory = "8GiB"\n'}
    assert "The policy's [default] applies only to pods with runtimeClassName" in after({**SETS[2][2], **default})
    comments = {"policy": "# [dialects]\n#[default]\n# deny-unannotated = true\ndeny-unannotated = false\n"}
    for values in ({}, {**SETS[4][2], **dialects}, comments):
        assert "The policy's" not in after(values), values
    # With the NRI plugin they count for all pods of the nodes that it runs on.
    nri = after(SETS[4][2])
    assert 'required_plugins = ["gpuslice"]' in nri and "tolerations, nodeSelector and affinity" in nri
    assert "required_plugins" not in after({}) and "exempt-namespaces" not in nri
    for policy, named in [(unasked, rules + "to every"), (default, "The policy's [default] applies to every")]:
        said = after({**SETS[4][2], **policy})
        assert named in said and 'exempt-namespaces = ["kube-system", "gpu-operator"]' in said, said
        exempt = {"policy": 'exempt-namespaces = ["gpu-operator"]\n' + policy["policy"]}
        assert "The policy's" not in after({**SETS[4][2], **exempt})
    # The removal names the engines that were configured by hand.
    command = "/opt/gpuslice/bin/gpuslice runtime configure --runtime {} --remove\n   systemctl restart {}"
    for by, said in [
        ("runtimeClass", command.format("containerd", "containerd")),
        ("engine", command.format("crio", "crio")),
        ("nri", "A container without a claim that starts or restarts now has no limit"),
    ]:
        removal = after({"cleanup": True, "annotations": {"by": by}})
        assert said in removal and "annotations are refused" in removal, removal
    assert "--remove" not in after({"cleanup": True})
    assert "are refused" not in after({"cleanup": True, "admission": {"enabled": False}})
    # Annotated pods get their GPUs from NVIDIA's device plugin, and claims do not.
    assert "device-plugin=false" in after({}) and "device-plugin=false" not in after(SETS[2][2])


def removal():
    """During the removal, only the removal itself decides whether a pod is ready: the driver is not, without the hook."""
    for by in ("none", "runtimeClass", "nri", "engine"):
        made = objects({"cleanup": True, "annotations": {"by": by}})
        daemon = next(one for one in made if one["kind"] == "DaemonSet")["spec"]["template"]
        containers = daemon["spec"]["containers"]
        assert [one["name"] for one in containers if "readinessProbe" in one] == ["cleanup"], containers
        # The driver releases claims. The NRI plugin would add a hook that is gone.
        assert [one["name"] for one in containers] == ["driver", "cleanup"], containers
        # Nothing lets a new pod request a slice.
        assert not {"DeviceClass", "RuntimeClass"} & {one["kind"] for one in made}, by
    # An engine that requires the plugin starts the pods of the chart without it, during the removal too.
    key = "tolerate-missing-plugins.noderesource.dev"
    for values, expected in [
        ({"annotations": {"by": "nri"}}, "true"),
        ({"annotations": {"by": "nri"}, "cleanup": True}, "true"),
        ({"annotations": {"by": "nri"}, "podAnnotations": {key: "false"}}, "false"),
        ({}, None),
    ]:
        daemon = next(one for one in objects(values) if one["kind"] == "DaemonSet")["spec"]["template"]
        assert daemon["metadata"]["annotations"].get(key) == expected, values


def permissions():
    """The driver has the rights that the list names, and no others."""
    listed = yaml.safe_load((TREE / "tests/chart/permissions.yaml").read_text())
    role = next(one for one in objects() if one["kind"] == "ClusterRole")
    given = {}
    for rule in role["rules"]:
        assert "*" not in str(rule), rule
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                given.setdefault(f"{group or 'core'} {resource}", []).extend(rule["verbs"])
    assert {name: sorted(verbs) for name, verbs in given.items()} == {name: sorted(verbs) for name, verbs in listed.items()}
    # Without claims, nothing on the node calls the API server.
    for index in (2, 3, 4):
        made = objects(SETS[index][2])
        assert not [one for one in made if one["kind"].startswith("ClusterRole")], SETS[index]
        pod = next(one for one in made if one["kind"] == "DaemonSet")["spec"]["template"]["spec"]
        assert "token" not in [volume["name"] for volume in pod["volumes"]], SETS[index]


def plain():
    """The manifests that are made of the chart: a file for each kind, and the list of them."""
    text, complaint = render()
    assert text, complaint
    files = {}
    for part in re.split(r"^---\n", text, flags=re.M):
        source = re.match(r"# Source: gpuslice/templates/(\S+)\n", part)
        if not source or not yaml.safe_load(part):
            continue
        lines = [line for line in part.splitlines() if not re.search(r"helm\.sh/chart:|managed-by:|^# Source:|^# tests/", line)]
        files.setdefault(source.group(1), []).append("\n".join(lines).strip() + "\n")
    made = {name: "# Made of packaging/helm/gpuslice by tests/chart/check.py.\n" + "---\n".join(parts) for name, parts in files.items()}
    made["namespace.yaml"] = (
        "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: gpuslice\n  labels:\n"
        "    # The pods need the node's mounts and processes.\n    pod-security.kubernetes.io/enforce: privileged\n"
    )
    image = yaml.safe_load((CHART / "values.yaml").read_text())["image"]["repository"]
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    names = sorted(made, key=lambda name: (name != "namespace.yaml", name))
    made["kustomization.yaml"] = (
        "# The chart packaging/helm/gpuslice with its default values, for `kubectl apply -k`.\n"
        "# The namespace is in the policies' texts too, so it must stay gpuslice.\n"
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n"
        + "".join(f"  - {name}\n" for name in names)
        + f"images:\n  - name: {image}\n    newName: {image} # your registry/gpuslice\n    newTag: {version}\n"
    )
    return made


def write():
    """Writes packaging/kustomize/gpuslice anew."""
    MANIFESTS.mkdir(parents=True, exist_ok=True)
    for path in MANIFESTS.iterdir():
        path.unlink()
    for name, text in plain().items():
        (MANIFESTS / name).write_text(text)


def kustomize():
    """The plain manifests are the chart's, and kustomize makes the same objects of them."""
    there = {path.name: path.read_text() for path in MANIFESTS.iterdir()}
    made = plain()
    differ = sorted(name for name in {*there, *made} if there.get(name) != made.get(name))
    assert not differ, f"{differ} differ from the chart: run tests/chart/check.py write (make goldens)"
    done = run(TOOLS / "kubectl", "kustomize", MANIFESTS)
    assert done.returncode == 0, done.stderr

    def labels(one):
        if isinstance(one, dict):
            dropped = ("helm.sh/chart", "app.kubernetes.io/managed-by")
            return {key: labels(value) for key, value in one.items() if key not in dropped}
        return [labels(item) for item in one] if isinstance(one, list) else one

    ours = [one for one in documents(done.stdout) if one["kind"] != "Namespace"]
    assert labels(objects()) == ours
    for one in documents(done.stdout):
        kubernetes_validate.validate(one, "1.37", strict=True)


def policies():
    """Each rule of each policy accepts what it should, and refuses what it should."""
    Policies(objects, SETS).check()
    # The example for clusters without the chart has the rules of the chart.
    example = documents((TREE / "packaging/examples/admission-policy.yaml").read_text())
    chart = [one for one in objects(SETS[2][2]) if one["kind"].startswith("ValidatingAdmissionPolicy")]
    name = "gpuslice-annotations"
    assert [one["metadata"]["name"] for one in chart] == [name, name], chart
    for one in chart:
        one["metadata"] = {"name": "gpuslice"}
        if "policyName" in one["spec"]:
            one["spec"]["policyName"] = "gpuslice"
    assert chart == example, "packaging/examples/admission-policy.yaml differs from the chart's policy"


if __name__ == "__main__":
    os.umask(0o022)
    {f.__name__: f for f in [rendered, values, notes, removal, permissions, policies, kustomize, write]}[sys.argv[1]]()
