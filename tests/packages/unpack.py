#!/usr/bin/env python3
"""Unpacks every package of an architecture that this machine need not be of, each as it lies when it is installed.

Usage: unpack.py PACKAGES ARCH DEBIAN_ARCH OUT. Makes OUT/deb, rpm, wheel, archive, image, and sim: the simulator of
the deb, which the other packages have in packages of their own.
"""

import gzip
import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path


def only(folder: Path, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        sys.exit(f"gpuslice: not one package {pattern}: {found}")
    return found[0]


def unpack_tar(content: bytes, to: Path) -> None:
    subprocess.run(["tar", "-x", "-C", to], check=True, input=content)


def unpack_wheel(file: Path, prefix: Path) -> None:
    """As pip does: scripts into bin, data into the prefix."""
    with zipfile.ZipFile(file) as wheel:
        for entry in wheel.infolist():
            _, _, inside = entry.filename.partition(".data/")
            kind, _, name = inside.partition("/")
            if kind not in ("scripts", "data"):
                continue
            to = prefix / ("bin" if kind == "scripts" else "") / name
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(wheel.read(entry))
            to.chmod(entry.external_attr >> 16 & 0o777)


def unpack_image(file: Path, to: Path) -> None:
    with tarfile.open(file) as image:

        def read(name: str) -> bytes:
            member = image.extractfile(name)
            assert member is not None
            return member.read()

        (manifest,) = json.loads(read("manifest.json"))
        for layer in manifest["Layers"]:
            unpack_tar(gzip.decompress(read(layer)), to)


def main(packages: str, arch: str, debian: str, out: str) -> None:
    folder, to = Path(packages), Path(out)
    for name in ("deb", "rpm", "wheel", "archive", "image", "sim"):
        (to / name).mkdir()
    subprocess.run(["dpkg-deb", "-x", only(folder, f"gpuslice_*_{debian}.deb"), to / "deb"], check=True)
    subprocess.run(["dpkg-deb", "-x", only(folder, f"gpuslice-sim_*_{debian}.deb"), to / "sim"], check=True)
    rpm = only(folder, f"gpuslice-[0-9]*.{arch}.rpm")
    cpio = subprocess.run(["rpm2cpio", rpm], check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(["cpio", "-idm", "--quiet"], check=True, input=cpio, cwd=to / "rpm")
    unpack_wheel(only(folder, f"gpuslice-*_{arch}.whl"), to / "wheel/usr")
    archive = only(folder, f"gpuslice-[0-9]*-linux-{arch}.tar.gz").read_bytes()
    (to / "archive/archive").mkdir()
    unpack_tar(gzip.decompress(archive), to / "archive/archive")
    unpack_image(only(folder, f"gpuslice-*-oci-{arch}.tar"), to / "image")


main(*sys.argv[1:])
