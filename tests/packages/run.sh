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

# An earlier release, as PREVIOUS names the folder of its packages. Without it these binaries are packed as 0.0.1, with a
# library that states this release: they test the packages' scripts and messages, and not how two releases get on.
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
    cp -a "$target/dist/$arch" "$target/dist/older/$arch"
    python3 - "$target/dist/older/$arch/libgpuslice.so" "$(packaging/dist/version.sh)" <<'PY'
import sys
path, ours = sys.argv[1:]
with open(path, "rb") as file:
    library = file.read()
stated = f"{ours}\nversion\n".encode()
assert library.count(stated) == 1, "the library states no release"
with open(path, "wb") as file:
    # As many letters: nothing else moves.
    file.write(library.replace(stated, f"{'0.0.1':0<{len(ours)}}\nversion\n".encode()))
PY
    for pack in deb rpm tarball; do
        BUILT=$(realpath "$target/dist/older/$arch") GPUSLICE_VERSION=0.0.1 PACKAGES=$folder packaging/dist/$pack.sh $arch >/dev/null
    done
    touch "$folder/made"
}

roots() { tests/packages/roots.sh "$@"; }

checksums() { (cd "$target/dist/packages" && sha256sum --quiet -c SHA256SUMS) && echo "checksums: ok"; }
floor() { packaging/dist/floor.sh "$target/dist/$arch" && echo "floor: ok"; }
lint() { tests/packages/lint.sh "$target/dist/packages"; }
deb() { roots trixie && in_root trixie life.sh deb; }
rpm() { roots trixie && in_root trixie life.sh rpm; }
debs() { # Debian 11, 12 and sid, Ubuntu 20.04 and 22.04
    for release in bullseye bookworm sid focal jammy; do
        roots $release
        in_root $release deb.sh
    done
}
wheel() {
    # The guest has no network.
    ls "$target"/roots/wheels/uv-*.whl >/dev/null 2>&1 ||
        python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
            -d "$target/roots/wheels" -r tests/packages/requirements.txt
    roots trixie && in_root trixie wheel.sh
    local file size
    for file in "$target"/dist/packages/*.whl; do
        size=$(stat -c %s "$file")
        [ "$size" -le 3000000 ] || { echo "FAILED: ${file##*/} has $size bytes, more than 3 MB" >&2; return 1; }
    done
}
mixed() { # an older library and a newer command, and the other way round
    roots trixie && in_root trixie mixed.sh
}
userlands() { # glibc 2.23, 2.27, 2.31, 2.41
    for release in xenial bionic bullseye trixie; do
        roots $release
        in_root $release tarball.sh
    done
}
aarch64() { # emulated: every package, and every route into the packaged library, also beside NVIDIA's own libraries
    [ -e "$target/dist/aarch64" ] || { echo "aarch64: not tested, make dist has built none"; return; }
    packaging/dist/floor.sh "$target/dist/aarch64"
    roots trixie-arm64 && tests/packages/aarch64.sh "$target/roots/trixie-arm64" "$target/dist/packages"
    tests/aarch64/run.sh "$target/dist/aarch64"
}
image() { tests/packages/image.sh "$target/dist/packages" "$(packaging/dist/version.sh)"; }

all=(checksums floor lint deb debs rpm wheel mixed userlands image aarch64)
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
