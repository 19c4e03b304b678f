#!/usr/bin/env bash
# shellcheck disable=SC2154 # run.sh sets them
# Runs the tests of packages in clean roots. Sourced by run.sh.
# Touches: namespaces of its own; a copy of the root in memory.

# in_root RELEASE SCRIPT ARGUMENTS...: runs a script of tests/packages/guest in a fresh copy of the
# root, without a network. The packages are in /packages/built, the simulated driver in
# /packages/sim.
in_root() {
    local release=$1 script=$2
    shift 2
    ROOT=$(cd "$target/roots/$release" && pwd) BUILT=$(cd "$target/dist/packages" && pwd) \
        SIM=$(cd "$target/dist/$arch/sim" && pwd) OLD=$(cd "$target/dist/older/packages" && pwd) TESTS=$PWD/tests/packages PYTHON=$PWD/packaging/python/tests \
        unshare --mount --pid --fork --net --ipc --uts --kill-child bash -ec '
            mount --make-rprivate /
            work=$(mktemp -d)
            mount -t tmpfs -o mode=755 none "$work"
            mkdir "$work/upper" "$work/work" "$work/root"
            mount -t overlay overlay -o "lowerdir=$ROOT,upperdir=$work/upper,workdir=$work/work" "$work/root"
            cd "$work/root"
            mkdir -p packages/built packages/older packages/sim packages/tests packages/python
            for pair in "$BUILT:built" "$OLD:older" "$SIM:sim" "$TESTS:tests" "$PYTHON:python"; do
                mount --bind "${pair%:*}" "packages/${pair##*:}"
            done
            mount -t proc proc proc
            mount -t tmpfs -o mode=755 none dev
            mkdir dev/shm dev/pts
            for node in null zero full random urandom tty; do touch dev/$node; mount --bind /dev/$node dev/$node; done
            ln -s /proc/self/fd dev/fd
            ln -s /proc/self/fd/0 dev/stdin; ln -s /proc/self/fd/1 dev/stdout; ln -s /proc/self/fd/2 dev/stderr
            mount -t tmpfs -o mode=1777 none dev/shm
            mount -t tmpfs -o mode=755 none run
            mount -t tmpfs -o mode=1777 none tmp
            ip link set lo up 2>/dev/null || true
            exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
                PYTHONDONTWRITEBYTECODE=1 DEBIAN_FRONTEND=noninteractive chroot . /bin/sh "/packages/tests/guest/$@"
        ' in_root "$script" "$@"
}
