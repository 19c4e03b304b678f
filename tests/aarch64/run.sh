#!/usr/bin/env bash
# Tests the shim on emulated 64-bit Arm, because machines with unified memory are Arm. Preloads the
# shim into programs that take every route of the C clients.
# Usage: tests/aarch64/run.sh [FOLDER]
#   without FOLDER: installs Debian's cross compiler, then builds the library and the simulated driver with it.
#   target/dist/aarch64: tests the library and the driver of the packages, with gpuslice of target/dist/x86_64.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${TARGET:-target}
triple=aarch64-unknown-linux-gnu
packaged=${1:-}

# This compiler differs from the usual one. In one folder, each would rebuild the other's output.
build() {
    RUSTC=$PWD/$target/aarch64-tools/rustc CARGO_TARGET_DIR=$target/aarch64 \
        "${CARGO:-cargo}" build --quiet --locked --release --target "$triple" "$@" 2>&1 |
        grep -v -e outline-atomics -e 'not stably supported' -e '^ *|$' -e 'generated 1 warning' -e '^$' >&2 || true
}
if [ -z "$packaged" ]; then
    tests/aarch64/setup.sh "$target/aarch64-tools"
    build -p gpuslice-shim
    build -p gpuslice-sim-cuda -p gpuslice-sim-nvml
    built=$target/aarch64/$triple/release
    machine=$target/aarch64/machine
    native=$target/release/gpuslice
    simulator=$target/sim/gpuslice-sim
    mkdir -p "$machine"
    cp "$built/libgpuslice_sim_cuda.so" "$machine/libcuda.so.1"
    cp "$built/libgpuslice_sim_nvml.so" "$machine/libnvidia-ml.so.1"
    cp "$built/libgpuslice.so" "$machine/libgpuslice.so"
else
    machine=$target/aarch64/packaged
    # As it is installed, gpuslice finds its library and simulator.
    native=$machine/native/bin/gpuslice
    simulator=$machine/native/lib/gpuslice/sim/gpuslice-sim
    rm -rf "$machine"
    mkdir -p "$machine/native/bin" "$machine/native/lib/gpuslice"
    cp "$target/dist/x86_64/gpuslice" "$machine/native/bin"
    cp -r "$target/dist/x86_64/libgpuslice.so" "$target/dist/x86_64/sim" "$machine/native/lib/gpuslice"
    cp "$packaged/sim/libcuda.so.1" "$packaged/sim/libnvidia-ml.so.1" "$packaged/libgpuslice.so" "$machine"
fi

cc=aarch64-linux-gnu-gcc
$cc -O1 -Wall -Werror -o "$machine/ask" tests/aarch64/ask.c -ldl -lpthread
$cc -O1 -Wall -Werror -o "$machine/ask-linked" -DLINKED tests/aarch64/ask.c -L"$machine" -l:libcuda.so.1 -l:libnvidia-ml.so.1 -ldl -lpthread

# Programs that read the host's memory, and one that allocates as PyTorch does.
clients=tests/clients/c
$cc -O1 -Wall -Werror -Wno-unused-result -o "$machine/routes" $clients/meminfo_routes.c -ldl
aarch64-linux-gnu-gcc -O2 -shared -fPIC -DCUDART=13 -Wl,-soname,libcudart.so.13 -o "$machine/libcudart.so.13" tests/sim/cudart/cudart.c -ldl -lpthread
runtimes="-L$machine -l:libcudart.so.13 -l:libcuda.so.1"
$cc -O1 -shared -fPIC -Wl,-soname,libc10_cuda.so -o "$machine/libc10_cuda.so" $clients/c10_cuda.c $runtimes
$cc -O1 -Wall -Werror -o "$machine/torch" $clients/torch.c -L"$machine" -l:libc10_cuda.so $runtimes

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

# In a slice of unified memory, every API that reports the host's memory reports the slice's.
gib=$((1 << 30))
spark='{"uuid":"GPU-b10aaaaa-4444-4555-8666-777788880000","memory":'$((40 * gib))',"integrated":true}'
unified() { # KEYS: the slice file
    printf '{"version":1,"meminfo":"%s/gb10/meminfo","reserve":%s,"devices":[%s]%s}\n' "$state" $((8 * gib)) "$spark" "$1" >"$state/unified.json"
}
totals() { # ARGUMENTS OF GUEST...: prints how many routes report each total
    guest "$@" | sed -n 's/.* total=\([0-9]*\) free=\([0-9]*\).*/\1/p' | sort | uniq -c | sed 's/^ *//'
}
here=$(awk '/^MemTotal/ {print $2}' /proc/meminfo)
unified ""
expect "meminfo, in a slice of a GB10" "22 $((40 << 20))" totals gb10 "$shim" "$state/unified.json" routes
expect "meminfo, without a slice" "22 $here" totals gb10 "$shim" "" routes
unified ',"present_as":"discrete"'
expect "meminfo, as a discrete card" "22 $here" totals gb10 "$shim" "$state/unified.json" routes
manners() { guest "$@" | grep -v ' total='; }
unified ""
expect "how it is opened" "$(manners gb10 "" "" routes)" manners gb10 "$shim" "$state/unified.json" routes

# The shim asks PyTorch's allocator for its cache through the function that called the shim. This
# has to work for both ways in which the allocator grows.
printf '{"version":1,"memory":%s,"ledger":"%s/ledger","pressure":"release"}\n' $((10 * gib)) "$state" >"$state/release.json"
# This run creates the ledger that the file names.
"$native" run --sim rtx3090 --config "$state/release.json" -- true
torch() { # EXPANDABLE: prints how much was freed and refused
    {
        echo "0 start"
        echo "0 expandable $1"
        for number in 0 1 2 3 4 5 6; do echo "0 tensor $number $gib"; done
        for number in 0 1 2 3; do echo "0 drop $number"; done
        echo "0 tensor 10 $((3 * gib / 2))"
        echo "0 statistics"
    } | guest rtx3090 "$shim" "$state/release.json" torch | tail -1
}
for expandable in 0 1; do
    expect "the cache, expandable $expandable" "0 statistics 0 1 0 $((9 * gib / 2)) $((4 * gib))" torch $expandable
done

# Tests each branch of the driver on Arm, simulated and NVIDIA's own. The answers of look-ups, and
# of calls with NULL, have to equal those that were recorded on x86-64. With the library, look-ups
# return the library's own function for every name that it exports. Without a GPU, every function
# refuses as it does without the library. (driver/branches of the suite compares the exports.)
with_stand_ins() { # ANSWERS: marks the functions that the library replaces
    aarch64-linux-gnu-nm -D --defined-only "$shim" | awk '
        FNR == NR { if ($3 ~ /^cu/) exported[$3] = 1; next }
        {
            for (i = 2; i <= NF; i++) {
                name = $i
                sub(/.*\//, "", name)
                if (name in exported) $i = substr($i, 1, length($i) - length(name)) "own:" name
            }
            print
        }' - "$1"
}
for program in driver_lookups driver_nulls without_device; do
    $cc -O1 -Wall -Werror -o "$machine/$program" "$clients/$program.c" -ldl
done
on_branch() { # FOLDER SCENARIO PRELOAD CONFIG PROGRAM LIBRARY: reads names from standard input
    local folder=$1 scenario=$2
    qemu-aarch64-static -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH="$folder" -E LD_PRELOAD="$3" \
        -E GPUSLICE_CONFIG="$4" -E GPUSLICE_SIM="$scenario" "$machine/$5" "$6"
}
look_up() { on_branch "$1" "$2" "$3" "$4" driver_lookups libcuda.so.1 <"$state/names" | cksum; }
# qemu prints each signal on standard error.
nulls() { on_branch "$@" driver_nulls libcuda.so.1 2>/dev/null; }
refusals() { # FOLDER PRELOAD CONFIG: prints the refusals of both libraries
    local library
    for library in libcuda.so.1:cu libnvidia-ml.so.1:nvml; do
        aarch64-linux-gnu-nm -D --defined-only "$shim" | awk '{print $3}' | grep "^${library#*:}[A-Z]" | grep -v GetProcAddress |
            on_branch "$1" "" "$2" "$3" without_device "${library%:*}"
    done
}
nvidia=$PWD/$target/nvidia
tests/clients/nvidia.sh "$target/nvidia" || {
    echo "aarch64: not compared with NVIDIA's libraries, which cannot be had here" >&2
    nvidia=
}
for branch in 535 550; do
    "$simulator" branch "$branch" --from "$machine" --to "$machine/$branch"
    recorded=tests/sim/recorded/lookups-$branch.txt
    cut -d' ' -f1 "$recorded" | uniq | sed 's/^""$//' >"$state/names"
    nulls=$(cat tests/sim/recorded/nulls.txt)
    folder=$PWD/$machine/$branch
    expect "look-ups of the simulated $branch" "$(cksum <"$recorded")" look_up "$folder" "rtx3090@$branch" "" ""
    expect "NULL, simulated $branch" "$nulls" nulls "$folder" "rtx3090@$branch" "" ""
    expect "NULL, simulated $branch, in a slice" "$nulls" nulls "$folder" "rtx3090@$branch" "$shim" "$state/slice.json"
    [ -n "$nvidia" ] || continue
    folder=$nvidia/$branch-arm64
    ours=$(with_stand_ins "$recorded" | cksum)
    expect "look-ups of $branch, bare" "$(cksum <"$recorded")" look_up "$folder" "" "" ""
    expect "look-ups of $branch, without a slice" "$ours" look_up "$folder" "" "$shim" ""
    expect "look-ups of $branch, in a slice" "$ours" look_up "$folder" "" "$shim" "$state/slice.json"
    expect "NULL, $branch, bare" "$nulls" nulls "$folder" "" "" ""
    expect "NULL, $branch, in a slice" "$nulls" nulls "$folder" "" "$shim" "$state/slice.json"
    bare=$(refusals "$folder" "" "")
    [ "$(grep -c ': [0-9]' <<<"$bare")" -gt 90 ] || bare="more answers than: $bare"
    expect "refusals of $branch, without a slice" "$bare" refusals "$folder" "$shim" ""
    expect "refusals of $branch, in a slice" "$bare" refusals "$folder" "$shim" "$state/slice.json"
done
echo "aarch64: $passed passed, $failed failed"
[ "$failed" = 0 ]
