#!/usr/bin/env bash
# Installs the container runtimes that the tests start, and builds the roots of their containers.
# Touches: apt (only for what is missing, only as root), target/containers.
# Returns quickly if everything exists. Does nothing without root; the tests then print one line
# that they do not run.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=$(mkdir -p "${GPUSLICE_TARGET:-target}/containers" && cd "${GPUSLICE_TARGET:-target}/containers" && pwd)
umask 022

say() { echo "tests/containers/setup.sh: $*" >&2; }
[ "$(id -u)" = 0 ] || exit 0
export DEBIAN_FRONTEND=noninteractive PATH=$PATH:/sbin:/usr/sbin

packages=()
for pair in runc:runc crun:crun podman:podman containerd:containerd dockerd:docker.io busybox:busybox-static \
    unshare:util-linux musl-gcc:musl-tools python3:python3; do
    command -v "${pair%%:*}" >/dev/null || packages+=("${pair#*:}")
done
python3 -c 'import ensurepip' 2>/dev/null || packages+=(python3-venv)
if [ "${#packages[@]}" -gt 0 ]; then
    command -v apt-get >/dev/null || { say "missing, and there is no apt-get to install them: ${packages[*]}"; exit 1; }
    say "installing ${packages[*]}"
    # The tests start daemons of their own, so the packages must not start the machine's.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' >$policy
        chmod 755 $policy
        trap 'rm -f $policy' EXIT
    fi
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${packages[@]}" >"$target/apt.log" 2>&1 ||
        { say "apt-get could not install: ${packages[*]} (see $target/apt.log)"; exit 1; }
fi

# A change of this script or of the programs rebuilds the roots.
wanted=$(cat tests/containers/setup.sh tests/containers/c/*.c | cksum)
[ "$(cat "$target/made" 2>/dev/null)" = "$wanted" ] && exit 0
rm -rf "$target"/{made,debian,musl,static,packages,pause,venv}

# A small Debian for a shell, coreutils and the programs under test.
mkdir -p "$target"/{packages,debian}
[ "$(find /var/lib/apt/lists -name '*_Packages*' 2>/dev/null | head -1)" ] || apt-get update -qq
(cd "$target/packages" && apt-get -qq -o APT::Sandbox::User=root download libc6 libc-bin libgcc-s1 base-files bash dash \
    coreutils grep libtinfo6 libacl1 libattr1 libselinux1 libpcre2-8-0 libgmp10 libssl3 2>/dev/null ||
    apt-get -qq -o APT::Sandbox::User=root download libc6 libc-bin libgcc-s1 base-files bash dash \
        coreutils grep libtinfo6 libacl1 libattr1 libselinux1 libpcre2-8-0 libgmp10)
root=$target/debian
# A merged /usr, as Debian's own installer makes it before the first package.
mkdir -p "$root"/usr/{bin,sbin,lib,lib64}
for folder in bin sbin lib lib64; do ln -s "usr/$folder" "$root/$folder"; done
# dpkg-deb would replace those links by folders, but tar follows them.
for package in "$target"/packages/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x -C "$root" --keep-directory-symlink
done
mkdir -p "$root"/{proc,sys,dev,tmp,run,sim,state,opt,root}
chmod 1777 "$root/tmp"
# Mount points for single files, because not every container engine may create them.
touch "$root/opt/gpuslice" "$root/etc/hosts"
ln -sf bash "$root/usr/bin/sh"
rm -rf "$root"/usr/share/{doc,man,locale,info,lintian,bash-completion} "$root"/usr/lib/x86_64-linux-gnu/gconv
printf 'root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/tmp:/bin/bash\n' >"$root/etc/passwd"
printf 'root:x:0:\nuser:x:1000:\n' >"$root/etc/group"
# A static busybox has mount, umount and the like for containers that attack their slice. No library
# of ours is loaded into it.
cp "$(command -v busybox)" "$root/usr/bin/busybox"
# The simulated driver is mounted at /sim. Links put it where ld.so searches by default.
for library in libcuda.so.1 libnvidia-ml.so.1 libcudart.so.{11.0,12,13}; do
    ln -s "/sim/$library" "$root/usr/lib/x86_64-linux-gnu/$library"
done

# A root whose libc is musl, a root with only a static program, and the image of the pause
# container.
mkdir -p "$target"/musl/{bin,lib,etc,proc,sys,dev,tmp,run,sim,state} "$target"/static/{bin,etc,proc,sys,dev,tmp,run}
cp "$(command -v busybox)" "$target/musl/bin/busybox"
ln -s busybox "$target/musl/bin/sh"
cp -L /lib/ld-musl-x86_64.so.1 "$target/musl/lib/ld-musl-x86_64.so.1"
musl-gcc -O2 -o "$target/musl/bin/hello" tests/containers/c/hello.c
cc -O2 -static -o "$target/static/bin/hello" tests/containers/c/hello.c
# A library that marks where it was loaded, as in an image that attacks hosts that load its code.
cc -O2 -shared -fPIC -o "$target/evil.so" tests/containers/c/evil.c

cc -O2 -static -o "$target/timed" tests/containers/c/timed.c
cc -O2 -w -o "$target/ledger" tests/containers/c/ledger.c -ldl
cc -O2 -o "$target/race" tests/containers/c/race.c

# The CRI client needs gRPC, which comes from PyPI.
python3 -m venv "$target/venv"
"$target/venv/bin/pip" install -q --disable-pip-version-check --only-binary :all: grpcio==1.76.0 ||
    { say "PyPI did not give grpcio"; exit 1; }
echo "$wanted" >"$target/made"
