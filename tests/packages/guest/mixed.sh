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

for pair in older-with-built built-with-older; do
    command=/opt/$pair/bin/gpuslice
    consistent $command
    # An allocation of 7 GiB is refused, because 1 GiB of 8 GiB is already counted.
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

# A slice file of a later release has a key that this library does not know. No device memory is
# granted.
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
