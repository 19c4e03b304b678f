#!/bin/sh
# Runs the suite on a machine with an NVIDIA GPU: one command, no network, no cargo, eight minutes.
# Usage: run.sh [--sim h200] [--only NAME] [--out DIR] [--minutes N] [--list]
# PYTHON names a python3 (3.8 or later) that has torch and the other frameworks.
# Touches: DIR (default gpu-results/ in the working directory), the GPU.
# Runs from a kit (`make gpu-kit`) or from the repository.
# Exit status: 0 all passed; 1 a check failed; 2 no GPU; 125 the kit cannot run here.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
kit=$here
[ -e "$kit/release/gpuslice" ] || kit=${GPUSLICE_TARGET:-$(cd "$here/../.." && pwd)/target}
for built in release/gpuslice release/libgpuslice.so; do
    [ -e "$kit/$built" ] || { echo "run.sh: $kit/$built is not there (in the repository: run make first)" >&2; exit 125; }
done

# Finds the first python3 that is new enough. On some systems ctypes is in a separate package.
python=
for candidate in "${PYTHON:-python3}" python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 python3.8; do
    if "$candidate" -c 'import sys, ctypes, json, struct; sys.exit(sys.version_info < (3, 8))' 2>/dev/null; then
        python=$candidate
        break
    fi
    [ -z "${PYTHON:-}" ] || break
done
[ -n "$python" ] || { echo "run.sh: ${PYTHON:-python3} is no Python 3.8 or later with ctypes (PYTHON names another)" >&2; exit 125; }

# The runner stops by itself in time. If it hangs, it is killed; DIR then has all earlier results.
minutes=8 before=
for word in "$@"; do
    [ "$before" != --minutes ] || minutes=$word
    case $word in --minutes=*) minutes=${word#--minutes=} ;; esac
    before=$word
done
seconds=$("$python" -c 'import math, sys; print(math.ceil(float(sys.argv[1]) * 60))' "$minutes") || exit 125
hold=
if timeout -k 3 1 true 2>/dev/null; then
    hold="timeout -k 3 $seconds"
fi
# shellcheck disable=SC2086 # the words are meant to be split
exec $hold "$python" -B "$here/suite" --kit "$kit" "$@"
