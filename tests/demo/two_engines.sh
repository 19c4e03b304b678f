#!/usr/bin/env bash
# Starts two engines on one simulated card. Without slices the second one dies. In slices both
# serve, and a third engine is refused. `make demo` runs this script, and `make picture` draws its
# output.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${TARGET:-target}
gpuslice=$(realpath "$target/release/gpuslice")
python=$(realpath -s "$target/clients-venv/bin/python")
work=$(mktemp -d)
export GPUSLICE_SIM_STATE=$work/machine # all runs share one simulated machine
mkdir "$GPUSLICE_SIM_STATE"
cd tests/demo
bold= plain=
[ -t 1 ] && bold=$'\e[1m' plain=$'\e[0m'
pids=()

stop() {
    [ ${#pids[@]} = 0 ] || { kill "${pids[@]}" 2>/dev/null && wait "${pids[@]}"; } 2>/dev/null || true
    pids=()
}
trap 'stop; rm -rf "$work"' EXIT

comment() { printf '%s# %s%s\n' "$bold" "$*" "$plain"; }
wrapped() { fold -s -w 98 | sed 's/ *$//'; }

engine() { # NAME OPTIONS of `gpuslice run`: starts an engine, and waits until it serves or ends
    local name=$1 pid
    shift
    : >"$work/$name"
    echo "$ gpuslice run --sim rtx3090 $* -- python engine.py $name &"
    "$gpuslice" run --sim rtx3090 "$@" -- "$python" engine.py "$name" >"$work/$name" 2>&1 &
    pid=$!
    pids+=("$pid")
    until grep -q serves "$work/$name" || ! kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
    wrapped <"$work/$name"
}

comment "One card of 24 GiB, two engines, no slices"
engine chat --bare
engine embeddings --bare
stop
echo
comment "The same card and engines, each in a slice"
engine chat --name chat --memory 12GiB
engine embeddings --name embeddings --memory 10GiB
echo '$ gpuslice status'
COLUMNS=100 LC_ALL=C.UTF-8 "$gpuslice" status
echo
comment "There is no room for a third, and the error says who holds it"
engine rerank --name rerank --memory 4GiB
