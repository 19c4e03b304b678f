#!/usr/bin/env bash
# The suite for a machine with an NVIDIA GPU: one command, no network, no cargo, eight minutes.
# Usage: run.sh [--sim h200] [--only NAME] [--out DIR] [--list]; PYTHON names the python3 that has torch and the rest.
# Touches: DIR (default gpu-results/ here below), the GPU. Runs from a kit (`make gpu-kit`) or from the repository.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
kit=$here
[ -e "$kit/release/gpuslice" ] || kit=${GPUSLICE_TARGET:-$(cd "$here/../.." && pwd)/target}
for built in release/gpuslice release/libgpuslice.so; do
    [ -e "$kit/$built" ] || { echo "run.sh: $kit/$built is not there (in the repository: run make first)" >&2; exit 125; }
done
exec "${PYTHON:-python3}" -B "$here/suite" --kit "$kit" "$@"
