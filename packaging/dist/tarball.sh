#!/usr/bin/env bash
# Packs target/dist/ARCH as an archive with install.sh, by `make install`. The same input gives the
# same bytes.
# Usage: packaging/dist/tarball.sh x86_64 | aarch64
# Touches: target/dist/packages (or PACKAGES), target/dist/stage-tar-ARCH.
set -euo pipefail
cd "$(dirname "$0")/../.."
umask 022
arch=${1:?usage: packaging/dist/tarball.sh x86_64 | aarch64}
target=${TARGET:-target}
built=$target/dist/$arch
version=$(packaging/dist/version.sh)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
stage=$target/dist/stage-tar-$arch
name=gpuslice-$version-linux-$arch
rm -rf "$stage"
packages=${PACKAGES:-$target/dist/packages}
mkdir -p "$packages" "$stage/$name"
names() { (cd "$1" && find . -not -type d -printf '/%P\n' | LC_ALL=C sort); }
make --no-print-directory -s install DIST="$built" DESTDIR="$stage/$name/files" PREFIX=/usr
names "$stage/$name/files" >"$stage/$name/names"
echo "$arch" >"$stage/$name/architecture"
install -m 755 packaging/tarball/install.sh "$stage/$name/install.sh"
install -m 644 -t "$stage/$name" LICENSE CHANGELOG.md README.md LIMITS.md "$built/gpuslice.cdx.json"

pack() { # FILE FOLDER NAMES...: writes a tar file that depends only on its content
    local to=$1 from=$2
    shift 2
    tar --sort=name --format=gnu --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --mode=go=rX,u+rw,a-s \
        -C "$from" -c "$@" | gzip -9n >"$to"
    echo "$to"
}
pack "$packages/$name.tar.gz" "$stage" "$name"
# The simulated driver is a second archive. If it is unpacked in the same place, install.sh installs
# it, too.
mkdir -p "$stage/sim/$name"
make --no-print-directory -s install-sim DIST="$built" DESTDIR="$stage/sim/$name/files" PREFIX=/usr
names "$stage/sim/$name/files" >"$stage/sim/$name/names-sim"
pack "$packages/gpuslice-sim-$version-linux-$arch.tar.gz" "$stage/sim" "$name"
# The debug information, for gdb and perf. It is to be unpacked in /usr/lib/debug.
pack "$packages/gpuslice-$version-debug-$arch.tar.gz" "$built/debug" .build-id
cp "$built/gpuslice.cdx.json" "$packages/gpuslice-$version-$arch.cdx.json"
