#!/bin/sh
# The processor time of a Vulkan allocation and its free with a driver that answers at once: without the
# library, with it but without a slice, and in a slice.
# Touches: a temporary folder; the files of a run. Needs `make`.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
target=${GPUSLICE_TARGET:-$here/../../target}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cc=${CC:-cc}
$cc -O2 -w -shared -fPIC -DSTUB -o "$folder/libGLX_nvidia.so.0" "$here/c/vulkan.c"
$cc -O2 -w -o "$folder/vulkan" "$here/c/vulkan.c" -ldl

set -- "$folder/vulkan" "$folder/libGLX_nvidia.so.0" 1000000
echo "bare      $("$@") ns"
echo "no slice  $(LD_PRELOAD=$target/release/libgpuslice.so "$@") ns"
echo "in slice  $("$target/release/gpuslice" run --sim rtx3090 --memory 20GiB -- "$@") ns"
