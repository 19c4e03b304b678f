#!/usr/bin/env bash
# Every package for 64-bit Arm, emulated: its files in a root of that architecture end in gpuslice check.
# Usage: tests/packages/aarch64.sh ROOT PACKAGES
# Touches: namespaces of its own. Needs qemu-aarch64-static, and a binfmt_misc of its own (Linux
# 6.7).
set -euo pipefail
root=$(realpath "${1:?usage: tests/packages/aarch64.sh ROOT PACKAGES}")
packages=$(realpath "$2")
here=$(dirname "$(realpath "$0")")
qemu=$(command -v qemu-aarch64-static) || { echo "gpuslice: qemu-aarch64-static is missing (on Debian: apt-get install qemu-user-static)" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 "$here/unpack.py" "$packages" aarch64 arm64 "$work"

# Children are started by /proc/self/exe, so the kernel must know the emulator.
for kind in deb rpm wheel archive image; do
    unshare --user --map-root-user --mount --pid --fork --kill-child bash -euo pipefail -c '
        root=$1 files=$2 qemu=$3 kind=$4
        mount --make-rprivate /
        place=$(mktemp -d)
        mount -t tmpfs none "$place"
        mkdir "$place/upper" "$place/work" "$place/root" "$place/binfmt"
        mount -t overlay overlay -o "userxattr,lowerdir=$files/$kind:$files/sim:$root,upperdir=$place/upper,workdir=$place/work" "$place/root"
        mount -t binfmt_misc none "$place/binfmt"
        printf %s ":arm:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:$qemu:F" >"$place/binfmt/register"
        cd "$place/root"
        mount -t proc proc proc
        mount --rbind /dev dev
        mount -t tmpfs none dev/shm
        mount -t tmpfs none run
        mount -t tmpfs none tmp
        run() { env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/bin HOME=/tmp chroot . "$@"; }
        fail() { echo "FAILED: $kind for aarch64: $*" >&2; exit 1; }
        case $kind in
        archive) run /bin/sh -c "cd /archive/gpuslice-* && ./install.sh" >install.log 2>&1 || fail "$(cat install.log)" ;;
        esac
        version=$(run gpuslice --version)
        case $kind in
        wheel) ;; # has no hook
        *) [ "$(run gpuslice-hook --version)" = "${version/gpuslice/gpuslice-hook}" ] || fail "the hook" ;;
        esac
        said=$(run gpuslice check --sim rtx3090 --memory 8GiB 2>&1) || fail "check: $said"
        case $said in *"CONSISTENT: "*) ;; *) fail "check: $said" ;; esac
        echo "$kind for aarch64, $version, emulated: ok"
    ' aarch64.sh "$root" "$work" "$qemu" "$kind"
done
