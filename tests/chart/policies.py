"""Evaluates the chart's ValidatingAdmissionPolicies over recorded objects, as the API server does.

Touches: its arguments."""

import celpy
from celpy.celtypes import BoolType, DoubleType, MapType, StringType

UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "m": 1e-3, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def quantity(text):
    """A Kubernetes quantity."""
    suffix = next((unit for unit in UNITS if str(text).endswith(unit)), "")
    return DoubleType(float(str(text).removesuffix(suffix)) * UNITS.get(suffix, 1))


# The functions that the API server has and CEL itself has not.
FUNCTIONS = {
    "quantity": quantity,
    # Its asInteger() fails for many amounts that are whole numbers, such as 1.5Gi and 100Ti.
    "asApproximateFloat": lambda amount: amount,
    "lowerAscii": lambda text: StringType(text.lower()),
    "isGreaterThan": lambda amount, other: BoolType(amount > other),
    "isLessThan": lambda amount, other: BoolType(amount < other),
    "sum": lambda numbers: DoubleType(sum(numbers)),
    "max": lambda numbers: max(numbers),
}


def refusals(spec, request, new=None, old=None, params=None):
    """Returns the messages with which a policy refuses a request."""
    environment = celpy.Environment()
    given = {"object": new, "oldObject": old, "request": request, "params": params}
    given = {name: celpy.json_to_cel(one) for name, one in given.items()}
    variables = MapType()

    def value(expression):
        program = environment.program(environment.compile(expression), functions=FUNCTIONS)
        return program.evaluate(given | {"variables": variables})

    if not all(value(condition["expression"]) for condition in spec.get("matchConditions", [])):
        return []
    for variable in spec["variables"]:
        variables[StringType(variable["name"])] = value(variable["expression"])
    refused = [rule for rule in spec["validations"] if not value(rule["expression"])]
    return [str(value(rule["messageExpression"])) if "messageExpression" in rule else rule["message"] for rule in refused]


def slice_of(node, driver="gpuslice.io"):
    """A ResourceSlice as the driver publishes it; recorded on Kubernetes 1.36.2."""
    spec = {
        "driver": driver,
        "pool": {"name": node or "all", "generation": 1, "resourceSliceCount": 1},
        "devices": [
            {
                "name": "gpu-0",
                "allowMultipleAllocations": True,
                "attributes": {"uuid": {"string": "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4"}},
                "capacity": {"memory": {"value": "24259Mi"}},
            }
        ],
    }
    return {"metadata": {"name": "node1-gpuslice.io-x"}, "spec": spec | ({"nodeName": node} if node else {"allNodes": True})}


def request(operation, user=None, node=None, namespace="default"):
    """What the API server knows of a request: the token of a pod names the pod's node."""
    info = {"username": user or "kubernetes-admin", "groups": ["system:authenticated"]}
    if node:
        info["extra"] = {"authentication.kubernetes.io/node-name": [node]}
    return {"operation": operation, "namespace": namespace, "userInfo": info}


def pod(annotations=None, runtime_class=None):
    metadata = {"name": "p"} | ({"annotations": annotations} if annotations else {})
    return {"metadata": metadata, "spec": {"runtimeClassName": runtime_class} if runtime_class else {}}


def status_of(*entries, allocation="node1", consumers=("web",), **more):
    """A claim with a status: entries of status.devices as (driver, pool, used)."""
    result = {"request": "gpu", "driver": "gpuslice.io", "pool": "node1", "device": "gpu-0", "shareID": "s"}
    status = {"reservedFor": [{"resource": "pods", "name": name, "uid": name} for name in consumers]} if consumers else {}
    status |= {"allocation": {"devices": {"results": [result]}, "nodeName": allocation}} if allocation else {}
    devices = [{"driver": driver, "pool": pool, "device": "gpu-0", "data": {"used": used}} for driver, pool, used in entries]
    return {"metadata": {"name": "c"}, "spec": {}, "status": status | ({"devices": devices} if devices else {}) | more}


def event_of(instance="node1", component="gpuslice.io", kind="Pod"):
    """An event as the driver posts it."""
    event = {"metadata": {"name": "web.1"}, "involvedObject": {"kind": kind, "name": "web"}, "reason": "NoSlice", "count": 1}
    event |= {"reportingInstance": instance} if instance else {}
    return event | ({"reportingComponent": component} if component else {})


def exactly(memory=None, device_class="gpuslice.io", **more):
    """A request of a claim."""
    capacity = {"capacity": {"requests": {"memory": memory}}} if memory else {}
    return {"name": "gpu", "exactly": {"deviceClassName": device_class} | capacity | more}


def first(*sizes):
    """A request with alternatives."""
    return {"name": "r", "firstAvailable": [{"name": size.lower()} | exactly(size)["exactly"] for size in sizes]}


def claim(*requests):
    return {"metadata": {"name": "c"}, "spec": {"devices": {"requests": list(requests)}}}


def template(*requests):
    return {"metadata": {"name": "t"}, "spec": claim(*requests)}


class Policies:
    """The policies of the chart. Each rule must be seen to accept and to refuse."""

    def __init__(self, objects, sets):
        self.objects = objects
        self.sets = {name: values for name, _, values in sets}

    def policy(self, name, values):
        made = self.objects(self.sets[values])
        found = [one["spec"] for one in made if one["kind"] == "ValidatingAdmissionPolicy" and one["metadata"]["name"].endswith(name)]
        assert len(found) == 1, f"{values}: {name}: {len(found)} policies"
        return found[0]

    def expect(self, spec, cases):
        accepted, refused = 0, set()
        for case, expected in cases:
            got = refusals(spec, **case)
            assert got == expected, f"{case}: {got}, expected {expected}"
            accepted += not expected
            refused |= set(expected)
        assert accepted, "no case is accepted"
        return refused

    def check(self):
        self.slices()
        self.statuses()
        self.events()
        self.annotations()
        self.limits()
        for values in ["no policies"]:
            kinds = {one["kind"] for one in self.objects(self.sets[values])}
            assert not any(kind.startswith("ValidatingAdmissionPolicy") for kind in kinds), kinds

    def slices(self):
        spec = self.policy("-resourceslices", "claims")
        driver = "system:serviceaccount:gpuslice:gpuslice"
        unbound = "the token of this driver is bound to no node: Kubernetes 1.32 or later binds it"
        other = "the driver on node node1 can only change the ResourceSlices of this node"
        unknown = other.replace("node1", "")
        foreign = "this driver can only change ResourceSlices of gpuslice.io"
        mine, theirs = slice_of("node1"), slice_of("node2")

        def by_driver(operation, new=None, old=None, node="node1"):
            return {"request": request(operation, driver, node), "new": new, "old": old}

        refused = self.expect(
            spec,
            [
                (by_driver("CREATE", mine), []),
                (by_driver("UPDATE", mine, mine), []),
                (by_driver("DELETE", None, mine), []),
                # The kubelet deletes the slices of its node, and administrators any.
                ({"request": request("DELETE", "system:node:node2"), "old": mine}, []),
                ({"request": request("CREATE", "system:serviceaccount:other:gpuslice", "node1"), "new": theirs}, []),
                (by_driver("CREATE", theirs), [other]),
                (by_driver("UPDATE", theirs, theirs), [other]),
                (by_driver("UPDATE", mine, theirs), [other]),
                (by_driver("DELETE", None, theirs), [other]),
                (by_driver("CREATE", slice_of(None)), [other]),
                (by_driver("CREATE", slice_of("node1", "gpu.nvidia.com")), [foreign]),
                (by_driver("UPDATE", mine, slice_of("node1", "gpu.nvidia.com")), [foreign]),
                (by_driver("CREATE", mine, node=None), [unbound, unknown]),
            ],
        )
        assert len(refused) == len(spec["validations"]) + 1, refused

    def statuses(self):
        spec = self.policy("-resourceclaims", "claims")
        driver = "system:serviceaccount:gpuslice:gpuslice"
        unbound = "the token of this driver is bound to no node: Kubernetes 1.32 or later binds it"
        rest = "this driver can only change status.devices of a ResourceClaim"
        entries = "the driver on node node1 can only change the entries of gpuslice.io for this node in status.devices"
        mine, theirs, foreign = ("gpuslice.io", "node1", "1Gi"), ("gpuslice.io", "node2", "1Gi"), ("x.io", "node1", "1Gi")
        grown = ("gpuslice.io", "node1", "2Gi")
        none = {"metadata": {"name": "c"}, "spec": {}}

        def by(old, new, user=driver, node="node1"):
            return {"request": request("UPDATE", user, node), "old": old, "new": new}

        refused = self.expect(
            spec,
            [
                (by(status_of(), status_of(mine)), []),
                (by(status_of(mine), status_of(grown)), []),
                (by(status_of(mine), status_of()), []),
                (by(status_of(foreign, mine, theirs), status_of(foreign, theirs, grown)), []),
                (by(status_of(foreign, mine, theirs), status_of(theirs, foreign)), []),
                (by(status_of(allocation=None, consumers=()), status_of(mine, allocation=None, consumers=())), []),
                (by(none, none), []),
                # The scheduler, the kubelet and other drivers are not bounded.
                (by(status_of(), status_of(allocation="node2"), "system:kube-scheduler", None), []),
                (by(status_of(), status_of(foreign), "system:serviceaccount:other:gpuslice"), []),
                (by(status_of(mine), status_of(mine, allocation="node2")), [rest]),
                (by(status_of(mine), status_of(mine, allocation=None)), [rest]),
                (by(none, status_of(mine, consumers=())), [rest]),
                (by(status_of(mine), status_of(mine, consumers=())), [rest]),
                (by(status_of(mine), status_of(mine, consumers=("web", "other"))), [rest]),
                (by(status_of(), status_of(theirs)), [entries]),
                (by(status_of(theirs), status_of()), [entries]),
                (by(status_of(), status_of(foreign)), [entries]),
                (by(status_of(foreign), status_of(("x.io", "node1", "2Gi"))), [entries]),
                (by(status_of(mine), status_of(grown), node=None), [unbound, entries.replace("node1", "")]),
            ],
        )
        assert len(refused) == len(spec["validations"]) + 1, refused

    def events(self):
        spec = self.policy("-events", "claims")
        driver = "system:serviceaccount:gpuslice:gpuslice"
        unbound = "the token of this driver is bound to no node: Kubernetes 1.32 or later binds it"
        other = "the driver on node node1 can only write events of gpuslice.io about pods, from this node"

        def by(new, old=None, user=driver, node="node1"):
            return {"request": request("UPDATE" if old else "CREATE", user, node), "new": new, "old": old}

        refused = self.expect(
            spec,
            [
                (by(event_of()), []),
                (by(event_of(), event_of()), []),
                (by(event_of("node2"), user="system:node:node2", node=None), []),
                (by(event_of("node2")), [other]),
                (by(event_of(None)), [other]),
                (by(event_of(component="kubelet")), [other]),
                (by(event_of(component=None)), [other]),
                (by(event_of(kind="Node")), [other]),
                (by(event_of(), event_of("node2")), [other]),
                (by(event_of(), event_of(component="kubelet")), [other]),
                (by(event_of(), node=None), [unbound, other.replace("node1", "")]),
            ],
        )
        assert len(refused) == len(spec["validations"]) + 1, refused

    def annotations(self):
        size, larger = {"gpuslice.io/memory": "1GiB"}, {"gpuslice.io/memory": "20GiB"}
        foreign = {"example.com/gpuslice.io": "x"}
        no_class = "gpuslice.io/ annotations take effect only with runtimeClassName: gpuslice"
        nothing = "gpuslice.io/ annotations have no effect in this cluster: use a ResourceClaim of class gpuslice.io"
        removed = "gpuslice.io/ annotations have no effect any more: gpuslice is being removed from this cluster"
        changed = "gpuslice.io/ annotations of a pod cannot be changed"
        upper = "gpuslice.io/ annotations have no effect in upper case: write gpuslice.io/ in lower case"
        other_case = {"GPUslice.io/memory": "1GiB"}

        def create(new):
            return {"request": request("CREATE"), "new": new}

        def update(new, old):
            return {"request": request("UPDATE"), "new": new, "old": old}

        kept = [
            (create(pod()), []),
            (create(pod(foreign)), []),
            (create(pod(None, "gpuslice")), []),
            (update(pod(size), pod(size)), []),
            (update(pod(size | foreign, "gpuslice"), pod(size, "gpuslice")), []),
            (update(pod(larger, "gpuslice"), pod(size, "gpuslice")), [changed]),
            (update(pod(None, "gpuslice"), pod(size, "gpuslice")), [changed]),
            (update(pod(size), pod()), [changed]),
            # Kubernetes accepts a key in any case, and no part of gpuslice reads it.
            (create(pod(other_case)), [upper]),
            (create(pod(other_case, "gpuslice")), [upper]),
            (create(pod({"GPUSLICE.IO.example.com/x": "y"})), []),
            (update(pod(other_case), pod(other_case)), []),
        ]
        for values, cases in [
            ("claims", [(create(pod(size)), [nothing]), (create(pod(size, "gpuslice")), [nothing])]),
            (
                "annotations only",
                [(create(pod(size, "gpuslice")), []), (create(pod(size)), [no_class]), (create(pod(size, "nvidia")), [no_class])],
            ),
            ("NRI", [(create(pod(size)), [])]),
            ("CRI-O's hooks", [(create(pod(size)), [])]),
            # While gpuslice is being removed, nothing gives a new pod its slice.
            ("removal", [(create(pod(size)), [removed]), (create(pod(size, "gpuslice")), [removed])]),
            ("removal of NRI", [(create(pod(size)), [removed])]),
            ("removal of the class", [(create(pod(size, "gpuslice")), [removed])]),
        ]:
            spec = self.policy("-annotations", values)
            refused = self.expect(spec, kept + cases)
            assert len(refused) == len(spec["validations"]), (values, refused)

    def limits(self):
        spec = self.policy("-limits", "everything")
        binding = [one for one in self.objects(self.sets["everything"]) if one["kind"].endswith("PolicyBinding")]
        reference = next(one["spec"]["paramRef"] for one in binding if "paramRef" in one["spec"])
        params = next(one for one in self.objects(self.sets["everything"]) if one["metadata"]["name"] == reference["name"])
        assert params["data"] == {"_every": "24Gi", "students": "8Gi"}, params
        assert reference["parameterNotFoundAction"] == "Deny", reference
        vague = "namespace students has a limit of 8Gi of GPU memory, so each request must state its capacity memory, at least 256Mi"

        def much(namespace, limit):
            return f"a claim in namespace {namespace} may request at most {limit} of GPU memory"

        def create(new, namespace="students", data=params):
            return {"request": request("CREATE", namespace=namespace), "new": new, "params": data}

        none = {"metadata": {"name": "limits"}}
        half = none | {"data": {"students": "1.5Gi"}}
        refused = self.expect(
            spec,
            [
                (create(claim(exactly("8Gi"))), []),
                (create(template(exactly("8Gi"))), []),
                (create(claim(exactly("4Gi", count=2))), []),
                (create(claim(exactly("4Gi"), first("4Gi", "2Gi"))), []),
                (create(claim(exactly("20Gi")), "default"), []),
                (create(claim(exactly("80Gi")), data=none), []),
                (create(claim(exactly()), data=none), []),
                # A class of another driver, and a claim without devices.
                (create(claim(exactly(device_class="gpu.nvidia.com"), exactly("1Gi"))), []),
                (create({"metadata": {}, "spec": {}}), []),
                (create(claim(exactly("8193Mi"))), [much("students", "8Gi")]),
                (create(template(exactly("9Gi"))), [much("students", "8Gi")]),
                (create(claim(exactly("4Gi", count=3))), [much("students", "8Gi")]),
                (create(claim(exactly("5Gi"), exactly("5Gi"))), [much("students", "8Gi")]),
                (create(claim(exactly("1Gi"), first("2Gi", "9Gi"))), [much("students", "8Gi")]),
                (create(claim(exactly("25Gi")), "default"), [much("default", "24Gi")]),
                (create(claim(exactly())), [vague]),
                (create(claim(exactly("1Gi", allocationMode="All"))), [vague]),
                (create(template(exactly())), [vague]),
                # A negative size would make room for another request.
                (create(claim(exactly("100Gi"), exactly("-92Gi"))), [vague]),
                (create(claim(first("1Gi", "-1Gi"))), [vague]),
                (create(claim(exactly("0"))), [vague]),
                # The scheduler would raise each to 256 MiB.
                (create(claim(*[exactly("1")] * 32)), [vague]),
                (create(claim(exactly("255Mi"))), [vague]),
                (create(claim(*[exactly("256Mi")] * 32)), []),
                (create(claim(*[exactly("257Mi")] * 32)), [much("students", "8Gi")]),
                # A part of a unit, and 1.3Gi as the API server stores it.
                (create(claim(exactly("1.5Gi")), data=half), []),
                (create(claim(exactly("1537Mi")), data=half), [much("students", "1.5Gi")]),
                (create(claim(exactly("1395864371200m", count=6))), []),
                (create(claim(exactly("1395864371200m", count=7))), [much("students", "8Gi")]),
            ],
        )
        assert {vague, much("students", "8Gi")} <= refused, refused
