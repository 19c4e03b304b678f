#!/usr/bin/env bash
# Makes clean roots of Debian and Ubuntu releases, for the tests of packages.
# Usage: tests/packages/roots.sh RELEASE...
# Releases: xenial bionic jammy bullseye bookworm trixie sid; trixie-arm64 is only unpacked.
# Touches: target/roots/RELEASE. Returns quickly if it exists. Needs root, debootstrap and the
# network.
set -euo pipefail
cd "$(dirname "$0")/../.."
roots=${TARGET:-target}/roots
mkdir -p "$roots"

# Fetches Ubuntu's keys, which not every Debian has.
keys() {
    local sum=0d0e7ed6b112f5d03eabf3c7eb01ebdacf9c57714b279e90495cfc58c8c4520f name=ubuntu-keyring_2021.03.26_all.deb
    [ ! -e "$roots/keys/usr/share/keyrings/ubuntu-archive-keyring.gpg" ] || return 0
    curl -fsSL --retry 3 -o "$roots/$name" "http://archive.ubuntu.com/ubuntu/pool/main/u/ubuntu-keyring/$name"
    echo "$sum  $roots/$name" | sha256sum --check --quiet >&2
    dpkg-deb -x "$roots/$name" "$roots/keys"
}

for release; do
    [ ! -e "$roots/$release/packages" ] || continue
    case $release in
    xenial | bionic | jammy | noble) mirror=http://archive.ubuntu.com/ubuntu keyring=$roots/keys/usr/share/keyrings/ubuntu-archive-keyring.gpg components=main,universe ;;
    *) mirror=http://deb.debian.org/debian keyring=/usr/share/keyrings/debian-archive-keyring.gpg components=main ;;
    esac
    [ "${keyring#"$roots"}" = "$keyring" ] || keys
    # Beside the package, the tests need a shell, and Python with venv for the wheel.
    with=python3
    case $release in
    xenial | bionic | *-arm64) with= ;;
    trixie) with=python3,python3-venv,systemd,rpm ;;
    esac
    foreign=()
    suite=$release
    [ "$release" = "${release%-arm64}" ] || {
        suite=${release%-arm64}
        foreign=(--foreign --arch=arm64)
    }
    script=/usr/share/debootstrap/scripts/$suite
    [ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid
    rm -rf "$roots/$release.part"
    debootstrap --variant=minbase "${foreign[@]}" ${with:+--include="$with"} --components=$components \
        --keyring="$keyring" "$suite" "$roots/$release.part" "$mirror" "$script" \
        >"$roots/$release.log" 2>&1 || {
        echo "gpuslice: $release cannot be installed: $(tail -1 "$roots/$release.log")" >&2
        exit 1
    }
    # In a root that was unpacked for another architecture, /proc is a link to itself.
    [ ! -L "$roots/$release.part/proc" ] || { rm "$roots/$release.part/proc" && mkdir "$roots/$release.part/proc"; }
    mkdir "$roots/$release.part/packages"
    mv "$roots/$release.part" "$roots/$release"
done
