#!/usr/bin/env bash
# Packs the suite and all it needs into one folder, for a machine with a GPU and without cargo and a network.
# Usage: tests/gpu/pack.sh DIR (after `make`). Touches: DIR.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${TARGET:-target} to=${1:?usage: tests/gpu/pack.sh DIR}
rm -rf "$to"
mkdir -p "$to/release" "$to/sim" "$to/bin"
cp "$target/release/gpuslice" "$target/release/libgpuslice.so" "$to/release/"
strip --strip-debug "$to/release/"*
# The simulated driver goes along: the same folder can be tried anywhere with --sim h200.
cp -P "$target"/sim/lib*.so* "$target/sim/gpuslice-sim" "$to/sim/"
cp tests/gpu/run.sh tests/gpu/RESULTS.md "$to/"
cp -r tests/gpu/suite tests/gpu/c "$to/"
find "$to" -name __pycache__ -prune -exec rm -rf {} +
# Programs of the runtime, for machines that have a libcudart and no nvcc: they find it by its name.
for major in 11 12 13; do
    name=libcudart.so.$major
    [ $major = 11 ] && name=libcudart.so.11.0
    "${CC:-cc}" -O1 -Itests/clients/c -DCUDART_MAJOR=$major -o "$to/bin/runtime-$major" tests/clients/c/runtime.c \
        -L"$target/sim" -l:$name -ldl -pthread -Wl,--allow-shlib-undefined
done
size=$(du -sm "$to" | cut -f1)
echo "$to: $size MiB; on the machine: $to/run.sh"
[ "$size" -lt 40 ] || { echo "tests/gpu/pack.sh: larger than 40 MiB" >&2; exit 1; }
