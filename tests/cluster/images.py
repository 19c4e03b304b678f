"""Container images as OCI archives, of folders.

Touches: its arguments."""

import hashlib
import io
import json
import pathlib
import tarfile


def layer(add):
    """The tar file that a function fills."""
    to = io.BytesIO()
    with tarfile.open(fileobj=to, mode="w") as archive:
        add(archive)
    return to.getvalue()


def archive(to, name, layers, command):
    """Writes the image of these layers."""
    blobs = {}

    def blob(content, kind):
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": command, "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(one).hexdigest()}" for one in layers]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(json.dumps(config).encode(), "config.v1+json"),
        "layers": [blob(one, "layer.v1.tar") for one in layers],
    }
    index = blob(json.dumps(manifest).encode(), "manifest.v1+json")
    index["annotations"] = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    files = {
        "oci-layout": json.dumps({"imageLayoutVersion": "1.0.0"}).encode(),
        "index.json": json.dumps({"schemaVersion": 2, "manifests": [index]}).encode(),
        **blobs,
    }
    with tarfile.open(to, "w") as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def write(build, folder, version):
    """Writes the images of the scenario, and returns their paths.

    The image of gpuslice has a C library beside its programs, because these were linked to one."""
    build, folder = pathlib.Path(build), pathlib.Path(folder)

    # The tests of other engines mount a program over this file. The chart mounts a folder there.
    def is_wanted(entry):
        return None if entry.name == "./opt/gpuslice" else entry

    debian = layer(lambda archive: archive.add(build / "containers/debian", arcname=".", filter=is_wanted))

    def programs(archive):
        for name in ["release/gpuslice", "release/gpuslice-hook", "debug/gpuslice-node", "debug/gpuslice-dra"]:
            archive.add(build / name, arcname=f"usr/bin/{name.rpartition('/')[2]}")
        archive.add(build / "release/libgpuslice.so", arcname="usr/lib/gpuslice/libgpuslice.so")

    # A program that allocates.
    tools = layer(lambda archive: archive.add(build / "containers/ledger", arcname="usr/bin/ledger"))
    images = [
        ("localhost/debian:1", [debian, tools], ["/usr/bin/sleep", "infinity"]),
        ("localhost/pause:1", [debian], ["/usr/bin/sleep", "infinity"]),
        (f"docker.io/library/gpuslice:{version}", [debian, layer(programs)], ["/usr/bin/gpuslice-node", "stay"]),
    ]
    paths = []
    for number, (name, layers, command) in enumerate(images):
        paths.append(folder / f"image-{number}.tar")
        archive(paths[-1], name, layers, command)
    return paths
