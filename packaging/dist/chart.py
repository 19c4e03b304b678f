#!/usr/bin/env python3
"""Packs packaging/helm/gpuslice as helm does, in one archive.

Usage: chart.py VERSION OUT. The same input gives the same bytes: every file has the time
SOURCE_DATE_EPOCH.
"""

import gzip
import io
import os
import sys
import tarfile
from pathlib import Path

CHART = Path(__file__).resolve().parents[1] / "helm/gpuslice"
EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])


def main(version: str, out: str) -> None:
    # Helm reads Chart.yaml first.
    files = sorted((path for path in CHART.rglob("*") if path.is_file()), key=lambda path: (path.name != "Chart.yaml", path))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in files:
            content = path.read_bytes()
            entry = tarfile.TarInfo(f"gpuslice/{path.relative_to(CHART)}")
            entry.mtime, entry.mode, entry.size = EPOCH, 0o644, len(content)
            archive.addfile(entry, io.BytesIO(content))
    to = Path(out) / f"gpuslice-chart-{version}.tgz"
    to.write_bytes(gzip.compress(packed.getvalue(), compresslevel=9, mtime=0))
    print(to)


main(*sys.argv[1:])
