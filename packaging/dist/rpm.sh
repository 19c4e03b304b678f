#!/usr/bin/env bash
# Packs target/dist/ARCH as rpm packages, by `make install`. The same input gives the same bytes.
# Usage: packaging/dist/rpm.sh x86_64 | aarch64
# Touches: target/dist/packages (or PACKAGES), target/dist/stage-rpm-ARCH.
set -euo pipefail
cd "$(dirname "$0")/../.."
umask 022
arch=${1:?usage: packaging/dist/rpm.sh x86_64 | aarch64}
target=$(cd "${TARGET:-target}" && pwd)
version=$(packaging/dist/version.sh)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export MAINTAINER=${MAINTAINER:-gpuslice maintainers <maintainers@gpuslice.io>}
stage=$target/dist/stage-rpm-$arch
rm -rf "$stage"
packages=${PACKAGES:-$target/dist/packages}
mkdir -p "$packages" "$stage"
{
    cat packaging/rpm/gpuslice.spec
    printf '\n%%changelog\n* %s %s - %s-1\n- See /usr/share/doc/gpuslice/CHANGELOG.md.\n' \
        "$(LC_ALL=C date -u -d "@$SOURCE_DATE_EPOCH" '+%a %b %d %Y')" "$MAINTAINER" "$version"
} >"$stage/gpuslice.spec"
rpmbuild --quiet -bb --target "$arch-linux" --nodeps \
    --define "_topdir $stage" --define "_tmppath $stage" --define "_rpmdir $stage/out" --define "_dbpath $stage/db" \
    --define "source_tree $PWD" --define "dist_folder $target/dist/$arch" \
    --define "gpuslice_version $version" --define "maintainer $MAINTAINER" \
    "$stage/gpuslice.spec" >/dev/null
for file in "$stage/out/$arch"/*.rpm; do
    mv "$file" "$packages/"
    echo "$packages/${file##*/}"
done
