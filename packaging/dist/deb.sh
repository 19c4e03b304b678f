#!/usr/bin/env bash
# Packs target/dist/ARCH as deb packages for Debian and Ubuntu, by `make install`. The same input
# gives the same bytes.
# Usage: packaging/dist/deb.sh x86_64 | aarch64
# Touches: target/dist/packages (or PACKAGES), target/dist/stage-deb-ARCH.
set -euo pipefail
cd "$(dirname "$0")/../.."
umask 022
arch=${1:?usage: packaging/dist/deb.sh x86_64 | aarch64}
target=${TARGET:-target}
built=$target/dist/$arch
version=$(packaging/dist/version.sh)
case $arch in
x86_64) deb_arch=amd64 ;;
aarch64) deb_arch=arm64 ;;
esac
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export MAINTAINER=${MAINTAINER:-gpuslice maintainers <maintainers@gpuslice.io>}
stage=$target/dist/stage-deb-$arch
rm -rf "$stage"
packages=${PACKAGES:-$target/dist/packages}
mkdir -p "$packages" "$stage"

pack() { # NAME CONTROL: packs the folder of that name
    local name=$1 folder=$stage/$1 file
    mkdir -p "$folder/DEBIAN"
    sed -e "s/@version@/$version/; s/@arch@/$deb_arch/; s/@maintainer@/$MAINTAINER/" -e "s/@size@/$(du -k -s --apparent-size "$folder" | cut -f1)/" \
        "packaging/debian/$2" >"$folder/DEBIAN/control"
    (cd "$folder" && find . -path ./DEBIAN -prune -o -type f -printf '%P\n' | LC_ALL=C sort | xargs md5sum) >"$folder/DEBIAN/md5sums"
    find "$folder" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    file=$packages/${name}_${version}_$deb_arch.deb
    # The packages use xz, because dpkg of Debian 11 and older cannot read zstd.
    dpkg-deb --root-owner-group -Zxz --build "$folder" "$file" >/dev/null
    echo "$file"
}
documents() { # NAME: adds the files that Debian requires in every package
    local doc=$stage/$1/usr/share/doc/$1
    install -D -m 644 -t "$doc" packaging/debian/copyright
    packaging/dist/debian-changelog.py "$1" "$version" CHANGELOG.md >"$doc/changelog"
    gzip -9n "$doc/changelog"
    chmod 644 "$doc"/*.gz
}

root=$stage/gpuslice
make --no-print-directory -s install DIST="$built" DESTDIR="$root" PREFIX=/usr ZSHDIR=/usr/share/zsh/vendor-completions
find "$root/usr/share/man" -type f -exec gzip -9n {} +
documents gpuslice
gzip -9nc "$built/gpuslice.cdx.json" >"$root/usr/share/doc/gpuslice/gpuslice.cdx.json.gz"
chmod 644 "$root/usr/share/doc/gpuslice/gpuslice.cdx.json.gz"
install -D -m 644 packaging/debian/gpuslice.lintian-overrides "$root/usr/share/lintian/overrides/gpuslice"
mkdir "$root/DEBIAN"
for script in postinst prerm postrm; do
    install -m 755 "packaging/debian/gpuslice.$script" "$root/DEBIAN/$script"
done
echo /etc/gpuslice/config.toml >"$root/DEBIAN/conffiles"
pack gpuslice control.in

make --no-print-directory -s install-sim DIST="$built" DESTDIR="$stage/gpuslice-sim" PREFIX=/usr
documents gpuslice-sim
pack gpuslice-sim control-sim.in
