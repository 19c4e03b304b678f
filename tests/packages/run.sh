#!/usr/bin/env bash
# Tests every package of target/dist/packages in clean roots: install, gpuslice check on the
# simulator, remove.
# Usage: tests/packages/run.sh [TEST...]    (default: all; tests/packages/run.sh list)
# Needs root, and a network only the first time. Builds nothing: make dist comes first.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${TARGET:-target}
arch=x86_64
. tests/packages/lib.sh

# Provides an earlier release. PREVIOUS names the folder of its packages. Without it, these binaries
# are packed as version 0.0.1. That tests the packages' scripts, but not whether two releases work
# together.
older() {
    local folder=$target/dist/older/packages
    if [ -n "${PREVIOUS:-}" ]; then
        mkdir -p "$target/dist/older"
        rm -rf "$folder"
        cp -r "$PREVIOUS" "$folder"
        return
    fi
    [ "$target/dist/packages/SHA256SUMS" -nt "$folder/made" ] || return 0
    rm -rf "$target/dist/older"
    mkdir -p "$folder"
    for pack in deb rpm tarball; do
        GPUSLICE_VERSION=0.0.1 PACKAGES=$target/dist/older/packages packaging/dist/$pack.sh $arch >/dev/null
    done
    touch "$folder/made"
}

roots() { tests/packages/roots.sh "$@"; }

checksums() { (cd "$target/dist/packages" && sha256sum --quiet -c SHA256SUMS) && echo "checksums: ok"; }
floor() { packaging/dist/floor.sh "$target/dist/$arch" && echo "floor: ok"; }
lint() { tests/packages/lint.sh "$target/dist/packages"; }
deb() { roots trixie && in_root trixie life.sh deb; }
rpm() { roots trixie && in_root trixie life.sh rpm; }
wheel() { roots trixie && in_root trixie wheel.sh; }
mixed() { # an older library with a newer command, and the reverse
    roots trixie && in_root trixie mixed.sh
}
userlands() { # glibc 2.23, 2.27, 2.31, 2.41
    for release in xenial bionic bullseye trixie; do
        roots $release
        in_root $release tarball.sh
    done
}
aarch64() { # emulated
    [ -e "$target/dist/aarch64" ] || { echo "aarch64: not tested, make dist has built none"; return; }
    packaging/dist/floor.sh "$target/dist/aarch64"
    roots trixie-arm64 && tests/packages/aarch64.sh "$target/roots/trixie-arm64" "$target/dist/packages"
}
image() { tests/packages/image.sh "$target/dist/packages" "$(packaging/dist/version.sh)"; }

all=(checksums floor lint deb rpm wheel mixed userlands image aarch64)
[ "${1:-}" != list ] || { printf '%s\n' "${all[@]}"; exit; }
[ "$(id -u)" = 0 ] || { echo "gpuslice: the tests of packages need root" >&2; exit 1; }
[ -e "$target/dist/packages/SHA256SUMS" ] || { echo "gpuslice: there are no packages: run make dist first" >&2; exit 1; }
older
[ $# -gt 0 ] || set -- "${all[@]}"
failed=()
for name; do
    # Not part of a condition, because set -e would have no effect there. A test ends at its first
    # failure.
    ( "$name" ) & wait $! || failed+=("$name")
done
[ ${#failed[@]} = 0 ] || { echo "gpuslice: failed: ${failed[*]}" >&2; exit 1; }
