#!/usr/bin/env bash
# The shim on 64-bit Arm, emulated: built for it, preloaded into a program there, by every route
# that the C clients take. Unified-memory machines are Arm.
# Usage: tests/aarch64/run.sh (installs its tools first).
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${TARGET:-target}
triple=aarch64-unknown-linux-gnu
tests/aarch64/setup.sh "$target/aarch64-tools"

# Another compiler, so another folder: cargo would rebuild everything in turns.
build() {
    RUSTC=$PWD/$target/aarch64-tools/rustc CARGO_TARGET_DIR=$target/aarch64 \
        "${CARGO:-cargo}" build --quiet --locked --release --target "$triple" "$@" 2>&1 |
        grep -v -e outline-atomics -e 'not stably supported' -e '^ *|$' -e 'generated 1 warning' -e '^$' >&2 || true
}
build -p gpuslice-shim
build -p gpuslice-sim-cuda -p gpuslice-sim-nvml
built=$target/aarch64/$triple/release
machine=$target/aarch64/machine
mkdir -p "$machine"
cp "$built/libgpuslice_sim_cuda.so" "$machine/libcuda.so.1"
cp "$built/libgpuslice_sim_nvml.so" "$machine/libnvidia-ml.so.1"
cp "$built/libgpuslice.so" "$machine/libgpuslice.so"

cc=aarch64-linux-gnu-gcc
$cc -O1 -Wall -Werror -o "$machine/ask" tests/aarch64/ask.c -ldl -lpthread
$cc -O1 -Wall -Werror -o "$machine/ask-linked" -DLINKED tests/aarch64/ask.c -L"$machine" -l:libcuda.so.1 -l:libnvidia-ml.so.1 -ldl -lpthread

passed=0
failed=0
expect() { # WHAT EXPECTED COMMAND...
    local what=$1 expected=$2 got
    shift 2
    got=$("$@" 2>&1) || got="$got (exit status $?)"
    if [ "$got" = "$expected" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf '%s:\n  expected %s\n  got      %s\n' "$what" "$expected" "$got" >&2
    fi
}

state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
printf '{"version":1,"memory":8589934592,"meminfo":"%s/gb10/meminfo"}\n' "$state" >"$state/slice.json"

guest() { # SCENARIO PRELOAD CONFIG PROGRAM ARGUMENTS...
    local scenario=$1 preload=$2 config=$3 program=$4
    shift 4
    mkdir -p "$state/$scenario"
    qemu-aarch64-static -L /usr/aarch64-linux-gnu \
        -E LD_LIBRARY_PATH="$PWD/$machine" -E LD_PRELOAD="$preload" -E GPUSLICE_CONFIG="$config" \
        -E GPUSLICE_SIM="$scenario" -E GPUSLICE_SIM_STATE="$state/$scenario" "$machine/$program" "$@"
}

shim=$PWD/$machine/libgpuslice.so
expect "NVML, bare" 25769803776 guest rtx3090 "" "" ask nvml
expect "NVML, in a slice" 8589934592 guest rtx3090 "$shim" "$state/slice.json" ask nvml
expect "NVML, in a slice of a GB10" 8589934592 guest gb10 "$shim" "$state/slice.json" ask nvml
for program in ask ask-linked; do
    for route in $(guest rtx3090 "" "" $program routes); do
        expect "$program by $route, bare" 25438126080 guest rtx3090 "" "" $program "$route"
        expect "$program by $route, without a slice" 25438126080 guest rtx3090 "$shim" "" $program "$route"
        expect "$program by $route, in a slice" 8589934592 guest rtx3090 "$shim" "$state/slice.json" $program "$route"
        expect "$program by $route, in a slice of a GB10" 8589934592 guest gb10 "$shim" "$state/slice.json" $program "$route"
    done
done
echo "aarch64: $passed passed, $failed failed"
[ "$failed" = 0 ]
