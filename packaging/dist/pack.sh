#!/usr/bin/env bash
# Packs target/dist/ARCH as every package (deb, rpm, wheel, archive, container image, Helm chart), and
# writes the checksums of all.
# Usage: packaging/dist/pack.sh x86_64 | aarch64
set -euo pipefail
cd "$(dirname "$0")/../.."
arch=${1:?usage: packaging/dist/pack.sh x86_64 | aarch64}
target=${TARGET:-target}
version=$(packaging/dist/version.sh)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
# Removes packages of another version, left by an earlier call.
mkdir -p "$target/dist/packages"
find "$target/dist/packages" -type f -name 'gpuslice*' ! -name "*$version*" -delete
packaging/dist/deb.sh "$arch"
packaging/dist/rpm.sh "$arch"
python3 packaging/dist/wheel.py "$arch" "$version" "$target/dist/$arch" "$target/dist/packages"
packaging/dist/tarball.sh "$arch"
python3 packaging/dist/image.py "$arch" "$version" "$target/dist/$arch" "$target/dist/packages"
python3 packaging/dist/chart.py "$version" "$target/dist/packages"
cd "$target/dist/packages"
find . -type f -name '*gpuslice*' ! -name '*SHA256SUMS*' -printf '%P\n' | LC_ALL=C sort | xargs sha256sum >SHA256SUMS
