# Two releases on one node: each command runs with the other's library, and works on the other's
# slices.
. /packages/tests/guest/common.sh

unpack() { # older | built: installs its command, library and simulator in /opt/NAME
    mkdir -p /tmp/"$1"
    for file in /packages/"$1"/gpuslice-[0-9]*-linux-x86_64.tar.gz /packages/"$1"/gpuslice-sim-*-linux-x86_64.tar.gz; do
        tar -xzf "$file" -C /tmp/"$1"
    done
    (cd /tmp/"$1"/gpuslice-* && ./install.sh --prefix /opt/"$1" >/dev/null)
}
unpack older
unpack built
old=$(/opt/older/bin/gpuslice --version)
new=$(/opt/built/bin/gpuslice --version)

mix() { # COMMAND LIBRARY: installs one release's command with the other's library
    cp -r /opt/"$1" /opt/"$1-with-$2"
    cp /opt/"$2"/lib/gpuslice/libgpuslice.so /opt/"$1-with-$2"/lib/gpuslice/
}
mix older built
mix built older

# The release that a library states, and the part of a version within which releases get on.
stated() { python3 -c 'import re, sys; print(re.search(rb"([0-9.]+)\nversion\n", open(sys.argv[1], "rb").read())[1].decode())' "$1"; }
series() { case $1 in 0.*) echo "$1" | cut -d. -f1-2 ;; *) echo "$1" | cut -d. -f1 ;; esac; }

for pair in older-with-built built-with-older; do
    command=/opt/$pair/bin/gpuslice
    consistent $command
    # A library of another minor version is named.
    library=/opt/${pair#*-with-}/lib/gpuslice/libgpuslice.so
    other=$(stated "$library") ours=$($command --version)
    warned=$($command run --sim rtx3090 --memory 8GiB -- true 2>&1)
    case $other in
    "$(series "${ours#gpuslice }")".*) is "$pair, the same series" "" "$warned" ;;
    *) [ "${warned#*"is from gpuslice $other, and this command from ${ours#gpuslice }"}" != "$warned" ] || fail "$pair: no word of $other: $warned" ;;
    esac
    # Counted and refused: an allocation of 7 GiB beside 1 GiB in 8 GiB.
    said=$(echo child | $command run --sim rtx3090 --memory 8GiB -- python3 /packages/tests/guest/hold.py)
    is "$pair" "ready
8 8 refused refused" "$said"
done

# One release starts a slice. The other release shows it, and a program with the other's library
# joins it.
for pair in "older built" "built older"; do
    starter=${pair% *} other=${pair#* }
    rm -f /tmp/in /tmp/out
    mkfifo /tmp/in /tmp/out
    rm -rf /opt/changing
    cp -r /opt/"$starter" /opt/changing
    /opt/changing/bin/gpuslice run --name chat --sim rtx3090 --memory 8GiB -- python3 /packages/tests/guest/hold.py </tmp/in >/tmp/out &
    exec 3>/tmp/in 4</tmp/out
    read -r line <&4
    is "the program starts" ready "$line"
    used=$(/opt/"$other"/bin/gpuslice status --json chat | python3 -c '
import json, sys
device, = json.load(sys.stdin)["slices"][0]["devices"]
print(device["limit"] >> 30, device["by_kind"]["linear"] >> 30)')
    is "status of $other on a slice of $starter" "8 1" "$used"
    # An upgrade or a downgrade while the slice runs. The library is replaced by renaming, as
    # packages do.
    cp /opt/"$other"/lib/gpuslice/libgpuslice.so /opt/changing/lib/gpuslice/new
    mv /opt/changing/lib/gpuslice/new /opt/changing/lib/gpuslice/libgpuslice.so
    echo child >&3
    read -r line <&4
    is "a program of $other in a slice of $starter" "8 8 refused refused" "$line"
    exec 3>&- 4<&-
    wait
done

# A library that does not know a key of this release's slices, or states nothing: no program starts.
cp -r /opt/built /opt/narrow
for change in '\nledger_id\n \nledger_ix\n does.not.understand' '\0.gpuslice\0 \0.gpusslic\0 does.not.state.its.release'; do
    set -- $change
    python3 -c '
import sys
old, new = (it.encode().decode("unicode_escape").encode() for it in sys.argv[1:3])
library = open("/opt/built/lib/gpuslice/libgpuslice.so", "rb").read()
assert library.count(old) == 1
open("/opt/narrow/lib/gpuslice/libgpuslice.so", "wb").write(library.replace(old, new))' "$1" "$2"
    if said=$(/opt/narrow/bin/gpuslice run --sim rtx3090 --memory 8GiB -- echo started 2>&1); then fail "started: $said"; fi
    echo "$said" | grep -q "$3" || fail "no word of why: $said"
done

# A slice file of a later release, with a key that this library does not know: no device memory.
printf '{"version": 1, "memory": 8589934592, "ledger": "/tmp", "key-of-a-later-release": 1}\n' >/tmp/later.json
mkdir -p /tmp/machine
said=$(LD_PRELOAD=/opt/built/lib/gpuslice/libgpuslice.so LD_LIBRARY_PATH=/opt/built/lib/gpuslice/sim GPUSLICE_SIM=rtx3090 \
    GPUSLICE_SIM_STATE=/tmp/machine GPUSLICE_CONFIG=/tmp/later.json python3 -c '
import ctypes
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
assert cuda.cuInit(0) == 0
print(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))')
is "a context under a slice file of a later release" 2 "$said"
echo "mixed, $old and $new: ok"
