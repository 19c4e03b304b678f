#!/usr/bin/env python3
"""Packs target/dist/ARCH as a Python wheel.

The wheel has the command, the library, the man pages and the Python API.

Usage: wheel.py ARCH VERSION BUILT OUT. The same input gives the same bytes: every file has the time
SOURCE_DATE_EPOCH.
"""

import base64
import hashlib
import os
import sys
import time
import zipfile
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
PACKAGE = TREE / "packaging/python"


def main(arch: str, version: str, built: str, out: str) -> None:
    # pip 19.3 and later know the second name. pip 20.3 and later know both.
    tags = [f"manylinux_2_17_{arch}", f"manylinux2014_{arch}"]
    name = f"gpuslice-{version}"
    data, info = f"{name}.data", f"{name}.dist-info"
    files: dict[str, tuple[bytes, int]] = {}

    def put(path: str, content: bytes, mode: int = 0o644) -> None:
        files[path] = (content, mode)

    for source in sorted((PACKAGE / "gpuslice").iterdir()):
        if source.suffix == ".py" or source.name == "py.typed":
            put(f"gpuslice/{source.name}", source.read_bytes())
    put("gpuslice/_version.py", f'__version__ = "{version}"\n'.encode())
    binaries = Path(built)
    put(f"{data}/scripts/gpuslice", (binaries / "gpuslice").read_bytes(), 0o755)
    # gpuslice looks for the library in ../lib/gpuslice.
    put(f"{data}/data/lib/gpuslice/libgpuslice.so", (binaries / "libgpuslice.so").read_bytes())
    for page in sorted((TREE / "packaging/man").glob("*.1")):
        # Only packages that root installs have gpusliced and the hook.
        if not page.name.startswith("gpusliced"):
            put(f"{data}/data/share/man/man1/{page.name}", page.read_bytes())
    slices = "gpuslice-slices.5"
    put(f"{data}/data/share/man/man5/{slices}", (TREE / "packaging/man" / slices).read_bytes())
    completion = (TREE / "packaging/completions/gpuslice.bash").read_bytes()
    put(f"{data}/data/share/bash-completion/completions/gpuslice", completion)
    put(f"{info}/licenses/LICENSE", (TREE / "LICENSE").read_bytes())
    put(f"{info}/sboms/gpuslice.cdx.json", (binaries / "gpuslice.cdx.json").read_bytes())
    metadata = [
        "Metadata-Version: 2.4",
        "Name: gpuslice",
        f"Version: {version}",
        "Summary: Slices of GPU memory: every API that reports it gives one answer, and the limit is enforced",
        "License-Expression: Apache-2.0",
        "License-File: LICENSE",
        "Keywords: gpu,cuda,nvml,memory,vllm",
        "Classifier: Environment :: GPU :: NVIDIA CUDA",
        "Classifier: Operating System :: POSIX :: Linux",
        "Classifier: Programming Language :: Rust",
        "Classifier: Typing :: Typed",
        "Requires-Python: >=3.8",
        "Description-Content-Type: text/markdown",
        "",
        (PACKAGE / "README.md").read_text(encoding="utf-8"),
    ]
    put(f"{info}/METADATA", "\n".join(metadata).encode())
    wheel = ["Wheel-Version: 1.0", "Generator: gpuslice packaging/dist/wheel.py", "Root-Is-Purelib: false"]
    wheel += [f"Tag: py3-none-{tag}" for tag in tags]
    put(f"{info}/WHEEL", ("\n".join(wheel) + "\n").encode())

    record = []
    for path, (content, _) in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(content)}")
    record.append(f"{info}/RECORD,,")
    put(f"{info}/RECORD", ("\n".join(record) + "\n").encode())

    # A zip file cannot hold a time before 1980.
    moment = time.gmtime(max(int(os.environ["SOURCE_DATE_EPOCH"]), 315532800))[:6]
    to = Path(out) / f"{name}-py3-none-{'.'.join(tags)}.whl"
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path, (content, mode) in files.items():
            entry = zipfile.ZipInfo(path, moment)
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            archive.writestr(entry, content)
    print(to)


main(*sys.argv[1:])
