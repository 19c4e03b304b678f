#!/usr/bin/env bash
# Runs a kit as on another machine: in a root of tests/userlands, which has its own C library and
# Python, and without a network.
# Usage: tests/gpu/in_userland.sh ROOT KIT OUT [OPTIONS of run.sh]; as root.
# LIBRARIES=DIR appears as /libraries in the root.
# Touches: OUT; empty folders and links in ROOT. Its mounts end with it.
set -euo pipefail
root=$1 kit=$2 out=$3
shift 3
cd "$root"
mkdir -p bin proc dev tmp run kit out libraries usr/bin
for name in sh cat env timeout true uname dirname sleep; do
    [ -e "bin/$name" ] || ln -sf busybox "bin/$name"
done
[ ! -e bin/dash ] || ln -sf dash bin/sh
[ -e usr/bin/python3 ] || ln -sf python3.8 usr/bin/python3
export root kit out libraries=${LIBRARIES:-}
exec unshare --mount --net bash -euc '
    mount --make-rprivate /
    mount --rbind /proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/dev/shm"
    mount -t tmpfs tmpfs "$root/tmp"
    mount -t tmpfs tmpfs "$root/run"
    mount --bind "$kit" "$root/kit"
    mount --bind "$out" "$root/out"
    libraries=${libraries:+/libraries}
    [ -z "$libraries" ] || mount --bind "$LIBRARIES" "$root/libraries"
    exec env -i PATH=/usr/bin:/bin HOME=/tmp ${libraries:+LD_LIBRARY_PATH=$libraries} \
        /usr/sbin/chroot "$root" /kit/run.sh --out /out "$@"' in_userland "$@"
