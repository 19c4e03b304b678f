"""A small client of the Kubernetes container runtime interface, v1: the requests of a kubelet.

Usage: cri.py SOCKET METHOD <REQUEST.json >RESPONSE.json

It knows only the fields that the tests use, by the numbers of the interface (k8s.io/cri-api,
api.proto). A message is a table of field names. A field is its number and its type: a scalar, a
map, a message, or a list of one of them.
"""

import json
import sys

import grpc

STRING, BYTES, INT, MAP = "string", "bytes", "int", "map"

MOUNT = {"container_path": (1, STRING), "host_path": (2, STRING), "readonly": (3, INT)}
NAMESPACES = {"network": (1, INT), "pid": (2, INT), "ipc": (3, INT)}
NAMED = {"name": (1, STRING), "uid": (2, STRING), "namespace": (3, STRING)}
POD = {
    "metadata": (1, NAMED),
    "log_directory": (3, STRING),
    "labels": (6, MAP),
    "annotations": (7, MAP),
    "linux": (8, {"cgroup_parent": (1, STRING), "security_context": (2, {"namespace_options": (1, NAMESPACES)})}),
}
CONTAINER = {
    "metadata": (1, {"name": (1, STRING)}),
    "image": (2, {"image": (1, STRING)}),
    "command": (3, [STRING]),
    "envs": (6, [{"key": (1, STRING), "value": (2, STRING)}]),
    "mounts": (7, [MOUNT]),
    "annotations": (10, MAP),
    "log_path": (11, STRING),
    "cdi_devices": (17, [{"name": (1, STRING)}]),
    "linux": (15, {"security_context": (2, {"namespace_options": (3, NAMESPACES), "readonly_rootfs": (7, INT)})}),
}
POD_ID, CONTAINER_ID = {"pod_sandbox_id": (1, STRING)}, {"container_id": (1, STRING)}
METHODS = {
    "Version": ({"version": (1, STRING)}, {"runtime_name": (2, STRING), "runtime_version": (3, STRING)}),
    "RunPodSandbox": ({"config": (1, POD), "runtime_handler": (2, STRING)}, POD_ID),
    "StopPodSandbox": (POD_ID, {}),
    "RemovePodSandbox": (POD_ID, {}),
    "CreateContainer": ({"pod_sandbox_id": (1, STRING), "config": (2, CONTAINER), "sandbox_config": (3, POD)}, CONTAINER_ID),
    "StartContainer": (CONTAINER_ID, {}),
    "StopContainer": ({"container_id": (1, STRING), "timeout": (2, INT)}, {}),
    "RemoveContainer": (CONTAINER_ID, {}),
    "ExecSync": (
        {"container_id": (1, STRING), "cmd": (2, [STRING]), "timeout": (3, INT)},
        {"stdout": (1, BYTES), "stderr": (2, BYTES), "exit_code": (3, INT)},
    ),
}


def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number, kind, value):
    """Encodes one field."""
    if kind == INT:
        return varint(number << 3) + varint(int(value))
    if kind == MAP:
        pair = {"key": (1, STRING), "value": (2, STRING)}
        return b"".join(field(number, pair, {"key": k, "value": v}) for k, v in value.items())
    if isinstance(kind, list):
        return b"".join(field(number, kind[0], item) for item in value)
    held = encode(kind, value) if isinstance(kind, dict) else value.encode()
    return varint(number << 3 | 2) + varint(len(held)) + held


def encode(fields, message):
    return b"".join(field(*fields[name], value) for name, value in message.items())


def decode(fields, wire):
    """Decodes the scalar fields of an answer. Fields without a name here are skipped."""
    names = {number: (name, kind) for name, (number, kind) in fields.items()}
    message = {name: 0 if kind == INT else "" for name, (_, kind) in fields.items()}
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte, at = wire[at], at + 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(wire):
        tag = number()
        value = number()
        if tag & 7 == 2:
            value, at = wire[at : at + value].decode(errors="replace"), at + value
        elif tag & 7 != 0:
            sys.exit(f"an answer with wire type {tag & 7} is not understood")
        if tag >> 3 in names:
            message[names[tag >> 3][0]] = value
    return message


def main():
    _, socket, method = sys.argv
    request, response = METHODS[method]
    with grpc.insecure_channel(f"unix://{socket}", options=[("grpc.default_authority", "localhost")]) as channel:
        call = channel.unary_unary(
            f"/runtime.v1.RuntimeService/{method}",
            request_serializer=lambda message: encode(request, message),
            response_deserializer=lambda wire: decode(response, wire),
        )
        try:
            answer = call(json.load(sys.stdin), timeout=60)
        except grpc.RpcError as error:
            sys.exit(f"{error.code().name}: {error.details()}")
    json.dump(answer, sys.stdout)


main()
