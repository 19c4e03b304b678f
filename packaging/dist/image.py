#!/usr/bin/env python3
"""Packs target/dist/ARCH as a container image, in one tar file.

The file is an OCI layout, and `docker load` reads it too.

Usage: image.py ARCH VERSION BUILT OUT. The same input gives the same bytes: every file has the time
SOURCE_DATE_EPOCH. The image is a source of files to copy (COPY --from, or an image volume), and what
the pods of packaging/helm/gpuslice run. It has no libc, so only static programs run in it:
gpuslice-hook, gpuslice-node, which installs the files on a node, and gpuslice-dra, Kubernetes' driver.
"""

import gzip
import hashlib
import io
import json
import os
import sys
import tarfile
import time
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])


def add(archive: tarfile.TarFile, path: str, content: bytes = b"", mode: int = 0o644, link: str = "") -> None:
    entry = tarfile.TarInfo(path)
    entry.mtime, entry.mode, entry.size = EPOCH, mode, len(content)
    if link:
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, link, 0o777
    elif path.endswith("/"):
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    archive.addfile(entry, io.BytesIO(content))


def layer(built: Path) -> bytes:
    """Returns the file system of the image as an uncompressed tar."""
    files = {
        "usr/bin/gpuslice": ((built / "gpuslice").read_bytes(), 0o755),
        "usr/bin/gpuslice-hook": ((built / "gpuslice-hook").read_bytes(), 0o755),
        "usr/bin/gpuslice-node": ((built / "gpuslice-node").read_bytes(), 0o755),
        "usr/bin/gpuslice-dra": ((built / "gpuslice-dra").read_bytes(), 0o755),
        "usr/lib/gpuslice/libgpuslice.so": ((built / "libgpuslice.so").read_bytes(), 0o644),
        "etc/gpuslice/config.toml": ((TREE / "packaging/etc/config.toml").read_bytes(), 0o644),
        "usr/lib/tmpfiles.d/gpuslice.conf": ((TREE / "packaging/tmpfiles.d/gpuslice.conf").read_bytes(), 0o644),
        "usr/share/doc/gpuslice/copyright": ((TREE / "packaging/debian/copyright").read_bytes(), 0o644),
        "usr/share/doc/gpuslice/LICENSE": ((TREE / "LICENSE").read_bytes(), 0o644),
        "usr/share/doc/gpuslice/gpuslice.cdx.json": ((built / "gpuslice.cdx.json").read_bytes(), 0o644),
    }
    for source in sorted((TREE / "packaging/hooks.d").iterdir()):
        files[f"usr/share/gpuslice/hooks.d/{source.name}"] = (source.read_bytes(), 0o644)
    for source in sorted((TREE / "packaging/systemd").iterdir()):
        files[f"usr/lib/systemd/system/{source.name}"] = (source.read_bytes(), 0o644)
    links = {"usr/bin/gpusliced": "gpuslice", "usr/bin/gpuslice-runtime": "gpuslice-hook"}
    folders = {f"{parent}/" for path in [*files, *links] for parent in map(str, Path(path).parents) if parent != "."}
    to = io.BytesIO()
    with tarfile.open(fileobj=to, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted([*files, *links, *folders]):
            if path in files:
                add(archive, path, *files[path])
            else:
                add(archive, path, link=links.get(path, ""))
    return to.getvalue()


def main(arch: str, version: str, built: str, out: str) -> None:
    platform = {"architecture": ARCHITECTURES[arch], "os": "linux"}
    plain = layer(Path(built))
    packed = gzip.compress(plain, compresslevel=9, mtime=0)
    labels = {
        "org.opencontainers.image.title": "gpuslice",
        "org.opencontainers.image.description": "gpuslice for container hosts: command, library, OCI hook and runtime",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "Apache-2.0",
    }
    blobs: dict[str, bytes] = {}

    def blob(content: bytes, media: str) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(content)}

    def text(value: object) -> bytes:
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH))
    config = blob(
        text(
            {
                **platform,
                "created": created,
                "config": {
                    "Entrypoint": ["/usr/bin/gpuslice-hook"],
                    "Cmd": ["--version"],
                    "Env": ["PATH=/usr/bin"],
                    "Labels": labels,
                },
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(plain).hexdigest()}"]},
                "history": [{"created": created, "created_by": "packaging/dist/image.py"}],
            }
        ),
        "application/vnd.oci.image.config.v1+json",
    )
    layers = [blob(packed, "application/vnd.oci.image.layer.v1.tar+gzip")]
    manifest = blob(
        text(
            {
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": config,
                "layers": layers,
                "annotations": labels,
            }
        ),
        "application/vnd.oci.image.manifest.v1+json",
    )
    name = f"gpuslice:{version}"
    manifest["platform"] = platform
    manifest["annotations"] = {
        "org.opencontainers.image.ref.name": version,
        "io.containerd.image.name": f"docker.io/library/{name}",
    }
    path = {key: f"blobs/sha256/{str(it['digest'])[7:]}" for key, it in (("config", config), ("layer", layers[0]))}
    files = {
        "index.json": text({"schemaVersion": 2, "manifests": [manifest]}),
        "manifest.json": text([{"Config": path["config"], "RepoTags": [name], "Layers": [path["layer"]]}]),
        "oci-layout": text({"imageLayoutVersion": "1.0.0"}),
        **blobs,
    }
    to = Path(out) / f"gpuslice-{version}-oci-{arch}.tar"
    with tarfile.open(to, "w", format=tarfile.GNU_FORMAT) as archive:
        for entry in sorted([*files, "blobs/", "blobs/sha256/"]):
            add(archive, entry, files.get(entry, b""))
    print(to)


main(*sys.argv[1:])
