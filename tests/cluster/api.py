"""The API server, by HTTPS and JSON, and waits for what it reports.

Touches: the API server."""

import json
import os
import ssl
import time
import urllib.error
import urllib.request

SERVER = "https://10.99.0.1:443"
ADMINISTRATOR = "administrator"

NODE = "/api/v1/nodes/node1"
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
DRIVERS = "/api/v1/namespaces/gpuslice/pods"

# The longest wait. Machines of two busy cores need more than others.
PATIENCE = float(os.environ.get("CLUSTER_PATIENCE") or 120)

# The certificate is the server's own, and the machine has no other peers.
TLS = ssl.create_default_context()
TLS.check_hostname = False
TLS.verify_mode = ssl.CERT_NONE


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


def call(method, path, body=None, token=ADMINISTRATOR):
    """Makes one request and returns the object of the answer."""
    request = urllib.request.Request(SERVER + path, method=method)
    request.add_header("Authorization", f"Bearer {token}")
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    request.add_header("Content-Type", kind)
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(request, data, timeout=30, context=TLS) as answer:
            text = answer.read()
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")
        try:
            text = json.loads(text)["message"]
        except (ValueError, KeyError):
            pass
        raise Refused(error.code, text) from None
    return json.loads(text) if text[:1] == b"{" else text.decode()


def get(path, name=""):
    return call("GET", f"{path}/{name}" if name else path)


def items(path):
    return get(path)["items"]


def create(path, body, token=ADMINISTRATOR):
    return call("POST", path, body, token)


def delete(path, name):
    """Deletes an object; one that is gone is deleted."""
    try:
        call("DELETE", f"{path}/{name}", {"propagationPolicy": "Background"})
    except Refused as refused:
        if refused.code != 404:
            raise


def is_gone(path, name):
    try:
        get(path, name)
    except Refused as refused:
        return refused.code == 404
    return False


def wait(what, so, patience=PATIENCE):
    """Waits until a condition holds, and returns its value and the seconds that it took."""
    start = time.monotonic()
    last = None
    while time.monotonic() - start < patience:
        try:
            value = so()
        except (Refused, OSError) as error:
            value, last = None, error
        if value:
            return value, time.monotonic() - start
        # No event reports all of these conditions.
        time.sleep(0.05)
    raise AssertionError(f"not within {patience:.0f} s: {what}" + (f" ({last})" if last else ""))


def condition(one, kind):
    """Whether an object has a condition that is true."""
    conditions = one.get("status", {}).get("conditions", [])
    return any(each["type"] == kind and each["status"] == "True" for each in conditions)


def events(name):
    """The messages of the events about a pod, with their reasons."""
    about = [one for one in items(EVENTS) if one["involvedObject"]["name"] == name]
    return [f"{one['reason']}: {one.get('message', '')}" for one in about]
