#!/bin/sh
# Installs what the client tests run: Debian packages, a Python environment, real libcudarts.
# Touches: apt (only for what is missing, only as root), target/clients-venv, target/cudart.
# Quick when everything is there; says in one line what is missing when it cannot be had.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
target=${GPUSLICE_TARGET:-$(cd "$here/../.." && pwd)/target}
venv=$target/clients-venv
log=$target/clients-setup.log
mkdir -p "$target"
: >"$log"

# The tests run single clients as another user and read what they wrote: never a strict umask.
umask 022

fail() {
    echo "tests/clients/setup.sh: $*" >&2
    exit 1
}

have_library() { ldconfig -p | grep -q "$1"; }

packages=
need() { packages="$packages $1"; }
python3 -c 'import ensurepip' 2>/dev/null || need python3-venv
for pair in go:golang-go node:nodejs npm:npm perl:perl git:git g++:g++ setpriv:util-linux musl-gcc:musl-tools \
    rsvg-convert:librsvg2-bin; do
    command -v "${pair%%:*}" >/dev/null || need "${pair#*:}"
done
PATH=$PATH:/sbin:/usr/sbin
for pair in mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs; do
    command -v "${pair%%:*}" >/dev/null || need "${pair#*:}"
done
# The letters of pictures that are compared.
[ -e /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf ] || need fonts-dejavu-core
# Vulkan: the loader, a client of it, two layers, and a driver for the processor.
have_library libvulkan.so.1 || need libvulkan1
command -v vulkaninfo >/dev/null || need vulkan-tools
[ -e /usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json ] || need vulkan-validationlayers
[ -e /usr/share/vulkan/implicit_layer.d/MangoHud.json ] || need mangohud
ls /usr/share/vulkan/icd.d/lvp_icd*.json >/dev/null 2>&1 || need mesa-vulkan-drivers
# OpenCL: the loader, a client of it, a driver for the processor, and Khronos' headers.
command -v clinfo >/dev/null || need clinfo
have_library libOpenCL.so.1 || need ocl-icd-libopencl1
[ -e /etc/OpenCL/vendors/pocl.icd ] || need pocl-opencl-icd
[ -e /usr/include/CL/cl_icd.h ] || need opencl-c-headers
# OpenGL: libglvnd, a driver for the processor, a client, and an X server without a screen.
have_library libEGL_mesa.so.0 || need libegl-mesa0
have_library libGLX_mesa.so.0 || need libglx-mesa0
for library in libEGL.so.1:libegl1 libGL.so.1:libgl1 libOpenGL.so.0:libopengl0 libGLESv2.so.2:libgles2; do
    have_library "${library%%:*}" || need "${library#*:}"
done
for pair in glxinfo:mesa-utils Xvfb:xvfb; do
    command -v "${pair%%:*}" >/dev/null || need "${pair#*:}"
done
have_library libjemalloc.so.2 || need libjemalloc2
have_library libtcmalloc_minimal.so.4 || need libtcmalloc-minimal4

if [ -n "$packages" ]; then
    [ "$(id -u)" = 0 ] || fail "missing Debian packages, install them as root:$packages"
    command -v apt-get >/dev/null || fail "missing, and there is no apt-get to install them:$packages"
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086  # a list of words
    apt-get install -y --no-install-recommends $packages >>"$log" 2>&1 ||
        { apt-get update && apt-get install -y --no-install-recommends $packages; } >>"$log" 2>&1 ||
        fail "apt-get could not install:$packages (see $log)"
fi

# Ubuntu has nvtop beside the others; Debian in `contrib`, which few name among their sources.
nvtop_from_contrib() {
    folder=$target/apt
    mkdir -p "$folder/lists/partial" "$folder/archives/partial"
    release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    keys=/usr/share/keyrings/debian-archive-keyring.gpg
    echo "deb [signed-by=$keys] http://deb.debian.org/debian $release contrib" >"$folder/sources.list"
    set -- -o Dir::Etc::sourcelist="$folder/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State::lists="$folder/lists" -o Dir::Cache="$folder"
    (cd "$folder" && apt-get "$@" update && apt-get "$@" download nvtop) &&
        apt-get install -y --no-install-recommends "$folder"/nvtop_*.deb
}
if ! command -v nvtop >/dev/null; then
    [ "$(id -u)" = 0 ] || fail "missing Debian package, install it as root: nvtop"
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y --no-install-recommends nvtop >>"$log" 2>&1 || nvtop_from_contrib >>"$log" 2>&1 ||
        fail "apt-get could not install nvtop (see $log)"
fi

wanted=$(cat "$here/requirements.txt" "$0" | cksum)
if [ "$(cat "$venv/installed" 2>/dev/null)" != "$wanted" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv" >>"$log" 2>&1 || fail "python3 cannot make a virtual environment (see $log)"
    "$venv/bin/pip" install -q --no-deps --prefer-binary -r "$here/requirements.txt" >>"$log" 2>&1 ||
        fail "PyPI did not give $here/requirements.txt to $(python3 --version) (see $log)"
    echo "$wanted" >"$venv/installed"
fi

# llama.cpp's Vulkan backend as node-llama-cpp ships it, unpacked but installed nowhere.
ggml=$target/ggml-vulkan
if [ "$(uname -m)" = x86_64 ] && ! [ -e "$ggml/3.22.1" ]; then
    rm -rf "$ggml"
    mkdir -p "$ggml"
    (cd "$ggml" && npm pack --silent @node-llama-cpp/linux-x64-vulkan@3.22.1 && tar xzf ./*.tgz --strip-components=3 &&
        rm ./*.tgz && touch 3.22.1) >>"$log" 2>&1 || fail "npm did not give node-llama-cpp (see $log)"
fi

# Khronos' loader of OpenCL, which no Debian has: Intel's packages bring it. It needs two functions of
# libintlc, and none of three more libraries, which are therefore empty here.
khronos=$target/khronos
fetch() { # WHEEL FOLDER MEMBER SHA256
    "$venv/bin/python" "$here/wheel_file.py" "https://files.pythonhosted.org/packages/$2/$1-py2.py3-none-manylinux_2_28_x86_64.whl" \
        "$1.data/data/lib/$3" "$4" "$khronos/$3" >>"$log" 2>&1 || fail "PyPI did not give $1 (see $log)"
}
if [ "$(uname -m)" = x86_64 ] && ! [ -e "$khronos/complete" ]; then
    fetch intel_opencl_rt-2026.2.0 b9/ae/f011c86c610c631624d7caec75020d307080ddb0815d286b597b17e4e6e2 libOpenCL.so.1 \
        cc04e15b3cddd6f62af2503b9b03c592dc32de3450e387da6b6965d49a9eda28
    fetch intel_cmplr_lib_rt-2026.2.0 7a/60/c9232e85f37a7f9e40d800679341b27eae240e4992221b861e0f3882d109 libintlc.so.5 \
        f16c5e1cad3b3363903afca39def3bfa42dd4f41e8c892fea019103767f1a089
    for library in libsvml libirng libimf; do
        cc -shared -nostdlib -x c /dev/null -o "$khronos/$library.so"
    done
    touch "$khronos/complete"
fi

# Real libcudarts, unpacked but installed nowhere: a resolution test loads each by its path.
# One line each: the folder under target/cudart, and the wheel.
while read -r version wheel; do
    [ -e "$target/cudart/$version/unpacked" ] && continue
    rm -rf "$target/cudart/$version"
    mkdir -p "$target/cudart/$version"
    "$venv/bin/pip" download -q --no-deps --only-binary :all: -d "$target/cudart/$version" "$wheel" >>"$log" 2>&1 ||
        fail "PyPI did not give $wheel (see $log)"
    python3 -m zipfile -e "$target/cudart/$version"/*.whl "$target/cudart/$version"
    rm "$target/cudart/$version"/*.whl
    touch "$target/cudart/$version/unpacked"
done <<'WHEELS'
11.8 nvidia-cuda-runtime-cu11==11.8.89
12.9 nvidia-cuda-runtime-cu12==12.9.79
13.5 nvidia-cuda-runtime==13.5.37
WHEELS
