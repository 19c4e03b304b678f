#!/usr/bin/env bash
# Shows two engines on one simulated card, then three real, unmodified programs, bare and in a
# slice.
# Usage: tests/demo/demo.sh (after `make`); `make demo` installs what it needs first.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${TARGET:-target}
gpuslice=$target/release/gpuslice
python=$target/clients-venv/bin/python
nvitop=$target/clients-venv/bin/nvitop
bold= plain=
[ -t 1 ] && bold=$'\e[1m' plain=$'\e[0m'

title() { printf '\n%s== %s ==%s\n' "$bold" "$*" "$plain"; }
note() { printf '%s\n' "$*"; }

show() { # OPTIONS OF gpuslice run...
    local shown="gpuslice run $*"
    printf '\n%s$ %s -- python nvml_memory.py%s        # nvidia-ml-py\n' "$bold" "$shown" "$plain"
    "$gpuslice" run "$@" -- "$python" tests/demo/nvml_memory.py
    printf '%s$ %s -- python cuda_memory.py%s        # cuda-bindings\n' "$bold" "$shown" "$plain"
    "$gpuslice" run "$@" -- "$python" tests/demo/cuda_memory.py
    printf '%s$ %s -- nvitop -1%s\n' "$bold" "$shown" "$plain"
    "$gpuslice" run "$@" -- "$nvitop" -1 --no-unicode 2>&1 | grep -E 'MiB|GiB|N/A' | grep -vE 'MEM:|SWP:' | head -4 || true
}

check() {
    printf '\n%s$ gpuslice check %s%s\n' "$bold" "$*" "$plain"
    local status=0
    "$gpuslice" check "$@" || status=$?
    printf 'exit status %s\n' "$status"
}

title "Two engines on one card"
tests/demo/two_engines.sh
title "A 24 GiB card, as it is"
show --sim rtx3090 --bare
title "The same programs in a slice of 8 GiB"
note "Nothing in them was changed, and every one of them believes in an 8 GiB card."
show --sim rtx3090 --memory 8GiB
title "Unified memory: a DGX Spark (GB10), as it is"
note "NVML does not answer, and what CUDA calls free is the kernel's MemFree: page cache counts as used."
show --sim gb10 --bare
title "The same Spark, a slice of 40 GiB"
show --sim gb10 --memory 40GiB
title "Does every API say the same? The Spark, as it is"
check --sim gb10 --bare
title "Does every API say the same? The Spark, in the slice"
check --sim gb10 --memory 40GiB
