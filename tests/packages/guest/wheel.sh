# The wheel, as a user without rights installs it: venv, --user, --prefix, uvx, uninstall.
. /packages/tests/guest/common.sh
mkdir -p /usr/lib/gpuslice /home/ann
ln -s /packages/sim /usr/lib/gpuslice/sim # the wheel has no simulator
chown 1000:1000 /home/ann
wheel=$(echo /packages/built/gpuslice-*x86_64.whl)
user() { setpriv --reuid=1000 --regid=1000 --clear-groups env HOME=/home/ann "$@"; }

user python3 -m venv /home/ann/venv
find /home/ann/venv -not -type d | LC_ALL=C sort >/tmp/venv
start=$(date +%s%N)
user /home/ann/venv/bin/pip install -q --no-index "$wheel"
consistent user /home/ann/venv/bin/gpuslice
took=$((($(date +%s%N) - start) / 1000000))
seen=$(user /home/ann/venv/bin/gpuslice run --sim rtx3090 --memory 8GiB -- python3 -c '
import ctypes
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
free, total = ctypes.c_size_t(), ctypes.c_size_t()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0 and cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
print(total.value >> 30)')
is "the total in a slice" 8 "$seen"
user /home/ann/venv/bin/python -m unittest -q /packages/python/test_api.py >/tmp/said 2>&1 || fail "the Python API: $(cat /tmp/said)"
user /home/ann/venv/bin/pip uninstall -q -y gpuslice
find /home/ann/venv -name __pycache__ -prune -o -not -type d -print | LC_ALL=C sort >/tmp/after
grep -v __pycache__ /tmp/venv | diff - /tmp/after >/tmp/left || fail "the removal left $(cat /tmp/left)"

pip() { user env PIP_BREAK_SYSTEM_PACKAGES=1 /home/ann/venv/bin/pip "$@"; }
# Debian's Python has no pip of its own: that of the venv installs for it.
pip --python /usr/bin/python3 install -q --no-index --no-warn-script-location --user "$wheel"
consistent user /home/ann/.local/bin/gpuslice
is "the version by the API" "$(user /home/ann/.local/bin/gpuslice --version)" \
    "gpuslice $(user /usr/bin/python3 -c 'import gpuslice; print(gpuslice.__version__)')"
pip --python /usr/bin/python3 uninstall -q -y gpuslice
# The history of runs is the user's.
left=$(find /home/ann/.local -path /home/ann/.local/state -prune -o -name '*gpuslice*' -print)
[ -z "$left" ] || fail "the removal with --user left $left"

# uvx installs into a folder of its cache, and runs from there.
pip install -q --no-index --find-links /packages/wheels uv
consistent user /home/ann/venv/bin/uvx -q --offline --no-python-downloads --python /usr/bin/python3 --from "$wheel" gpuslice

pip install -q --no-index --prefix /home/ann/prefix "$wheel"
consistent user /home/ann/prefix/bin/gpuslice
# With --target, pip leaves out the library. The command reports that, and no program runs without a
# limit.
pip install -q --no-index --target /home/ann/target "$wheel"
if user /home/ann/target/bin/gpuslice run --sim rtx3090 --memory 8GiB -- true >/tmp/said 2>&1; then
    rm /usr/lib/gpuslice/sim
    fail "pip --target: a program ran without the library"
fi
grep -q 'there is no libgpuslice.so' /tmp/said || fail "pip --target: $(cat /tmp/said)"
echo "wheel: ok; from pip install to CONSISTENT in $took ms"
