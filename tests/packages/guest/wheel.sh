# Tests the wheel as a user without privileges installs it: venv, --user, --prefix, uninstall.
. /packages/tests/guest/common.sh
mkdir -p /usr/lib/gpuslice /home/ann
ln -s /packages/sim /usr/lib/gpuslice/sim # the wheel has no simulator
chown 1000:1000 /home/ann
wheel=$(echo /packages/built/gpuslice-*x86_64.whl)
user() { setpriv --reuid=1000 --regid=1000 --clear-groups env HOME=/home/ann "$@"; }

user python3 -m venv /home/ann/venv
find /home/ann/venv -not -type d | LC_ALL=C sort >/tmp/venv
user /home/ann/venv/bin/pip install -q --no-index "$wheel"
consistent user /home/ann/venv/bin/gpuslice
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
echo "wheel: ok"
