#!/bin/sh
# Builds the simulated driver into a directory (default: target/sim). Quick when nothing changed.
# Touches: that directory and cargo's target directory.
# SIM_CARGO, SIM_PROFILE, SIM_BUILT and SIM_TOOL replace cargo's subcommand, its profile, the folder
# that it builds into, and the command that starts the tool which makes the branches. Packages are
# built in this way.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${1:-$root/target/sim}
target=${CARGO_TARGET_DIR:-$root/target}
packages="-p gpuslice-sim-cuda -p gpuslice-sim-nvml -p gpuslice-sim-opencl -p gpuslice-sim-vulkan -p gpuslice-sim"

# shellcheck disable=SC2086 # the list is meant to be split
(cd "$root" && cargo ${SIM_CARGO:-build} --quiet --profile "${SIM_PROFILE:-release}" $packages)
built=${SIM_BUILT:-$target/${SIM_PROFILE:-release}}
mkdir -p "$out"

put() { # copy only what changed, by renaming: a running program keeps the library it has mapped
    cmp -s "$1" "$out/$2" && return 0
    cp "$1" "$out/.$2.new" && mv "$out/.$2.new" "$out/$2"
}

put "$built/libgpuslice_sim_cuda.so" libcuda.so.1
put "$built/libgpuslice_sim_nvml.so" libnvidia-ml.so.1
put "$built/libgpuslice_sim_vulkan.so" libGLX_nvidia.so.0
put "$here/vulkan/nvidia_icd.json" nvidia_icd.json
put "$built/libgpuslice_sim_opencl.so" libnvidia-opencl.so.1
put "$built/gpuslice-sim" gpuslice-sim
# What OpenCL's loaders read: OCL_ICD_VENDORS names this folder.
mkdir -p "$out/OpenCL/vendors"
echo libnvidia-opencl.so.1 >"$out/OpenCL/vendors/nvidia.icd"
ln -sfn libcuda.so.1 "$out/libcuda.so"
ln -sfn libnvidia-ml.so.1 "$out/libnvidia-ml.so"

tool() {
    ${SIM_TOOL:-} "$out/gpuslice-sim" "$@"
}

source=$here/cudart/cudart.c
cc=${CC:-cc}
flags="-std=gnu11 -O2 -fPIC -Wall -Wextra -Werror"
for version in 11.0 12 13; do
    library=libcudart.so.$version
    [ "$out/$library" -nt "$source" ] && [ "$out/$library" -nt "$0" ] && continue
    printf '%s { global: cuda*; local: *; };\n' "$library" > "$out/.$library.map"
    # shellcheck disable=SC2086
    $cc $flags -DCUDART="${version%%.*}" -shared -Wl,-soname,"$library" -Wl,-Bsymbolic \
        -Wl,--version-script="$out/.$library.map" -o "$out/.$library.new" "$source" -ldl -lpthread
    mv "$out/.$library.new" "$out/$library"
    rm -f "$out/.$library.map"
done
ln -sfn libcudart.so.13 "$out/libcudart.so"
archive=$out/libcudart_static.a
if ! [ "$archive" -nt "$source" ] || ! [ "$archive" -nt "$0" ]; then
    # shellcheck disable=SC2086
    $cc $flags -DCUDART=13 -DCUDART_STATIC -fvisibility=hidden -c -o "$out/.cudart.o" "$source"
    rm -f "$archive"
    ${AR:-ar} rcs "$archive" "$out/.cudart.o"
    rm -f "$out/.cudart.o"
fi

# A driver from about 2019 or earlier: neither dlsym nor cuGetProcAddress finds the newer names.
old=$out/old
if ! [ "$old/libcuda.so.1" -nt "$out/libcuda.so.1" ] || ! [ "$old/libnvidia-ml.so.1" -nt "$out/libnvidia-ml.so.1" ]; then
    tool without \
        cuGetProcAddress_v2,cuGetProcAddress_v2_ptsz,cuMemAllocAsync,cuMemAllocAsync_ptsz,nvmlDeviceGetMemoryInfo_v2 \
        --from "$out" --to "$old"
fi

# The driver of each branch that a scenario can name. The loader does not find newer names either.
for branch in $(tool branches); do
    fresh=yes
    for library in libcuda.so.1 libnvidia-ml.so.1; do
        [ "$out/$branch/$library" -nt "$out/$library" ] && [ "$out/$branch/$library" -nt "$out/gpuslice-sim" ] || fresh=no
    done
    [ "$fresh" = yes ] || tool branch "$branch" --from "$out" --to "$out/$branch"
    ln -sfn libcuda.so.1 "$out/$branch/libcuda.so"
    ln -sfn libnvidia-ml.so.1 "$out/$branch/libnvidia-ml.so"
done
