#!/usr/bin/env bash
# Tests the packages for 64-bit Arm by emulation: the files of the deb, in a root of that
# architecture.
# Usage: tests/packages/aarch64.sh ROOT PACKAGES
# Touches: namespaces of its own. Needs qemu-aarch64-static, and a binfmt_misc of its own (Linux
# 6.7).
set -euo pipefail
root=$(realpath "${1:?usage: tests/packages/aarch64.sh ROOT PACKAGES}")
packages=$(realpath "$2")
qemu=$(command -v qemu-aarch64-static) || { echo "gpuslice: qemu-aarch64-static is missing (on Debian: apt-get install qemu-user-static)" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for file in "$packages"/gpuslice_*_arm64.deb "$packages"/gpuslice-sim_*_arm64.deb; do dpkg-deb -x "$file" "$work/deb"; done
# gpuslice starts its children by /proc/self/exe, so the kernel must know the emulator.
unshare --user --map-root-user --mount --pid --fork --kill-child bash -euo pipefail -c '
    root=$1 files=$2 qemu=$3
    mount --make-rprivate /
    place=$(mktemp -d)
    mount -t tmpfs none "$place"
    mkdir "$place/upper" "$place/work" "$place/root" "$place/binfmt"
    mount -t overlay overlay -o "userxattr,lowerdir=$files:$root,upperdir=$place/upper,workdir=$place/work" "$place/root"
    mount -t binfmt_misc none "$place/binfmt"
    printf %s ":arm:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:$qemu:F" >"$place/binfmt/register"
    cd "$place/root"
    mount -t proc proc proc
    mount --rbind /dev dev
    mount -t tmpfs none dev/shm
    mount -t tmpfs none run
    mount -t tmpfs none tmp
    run() { env -i PATH=/usr/sbin:/usr/bin:/bin HOME=/tmp chroot . "$@"; }
    version=$(run /usr/bin/gpuslice --version)
    [ "$(run /usr/bin/gpuslice-hook --version)" = "${version/gpuslice/gpuslice-hook}" ] || { echo "FAILED: the hook" >&2; exit 1; }
    said=$(run /usr/bin/gpuslice check --sim rtx3090 --memory 8GiB 2>&1) || { echo "FAILED: check: $said" >&2; exit 1; }
    case $said in *"CONSISTENT: "*) ;; *) echo "FAILED: check: $said" >&2; exit 1 ;; esac
    echo "aarch64, $version, emulated: ok"
' aarch64.sh "$root" "$work/deb" "$qemu"
