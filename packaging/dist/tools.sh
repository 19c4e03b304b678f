#!/usr/bin/env bash
# Installs the tools that build the packages into target/tools, in the versions of requirements.txt.
# Usage: packaging/dist/tools.sh x86_64 | aarch64    (the architecture to build for)
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${TARGET:-target}
arch=${1:?usage: packaging/dist/tools.sh x86_64 | aarch64}

missing() { # NAME HOW
    echo "gpuslice: $1 is missing ($2)" >&2
    exit 1
}

# A command in PATH, or a file.
is_there() {
    command -v "$1" >/dev/null || [ -e "$1" ]
}

need() { # COMMAND|FILE PACKAGE: installs it with apt, as root
    is_there "$1" && return
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "gpuslice: installing $2" >&2
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" >/dev/null
    fi
    is_there "$1" || missing "$1" "on Debian: apt-get install $2"
}

need python3 python3
need cc gcc
need fakeroot fakeroot
[ "$arch" = "$(uname -m)" ] || {
    need "$arch-linux-gnu-gcc" "gcc-${arch/_/-}-linux-gnu"
    need "/usr/$arch-linux-gnu/include/stdio.h" "libc6-dev-$([ "$arch" = x86_64 ] && echo amd64 || echo arm64)-cross"
    # The simulator's tool writes the driver's branches, and is of that architecture.
    need "qemu-$arch-static" qemu-user-static
}
need dpkg-deb dpkg
need rpmbuild rpm

command -v "${CARGO:-cargo}" >/dev/null || missing cargo "https://rustup.rs"
for triple in "$arch-unknown-linux-gnu" "$arch-unknown-linux-musl"; do
    [ -d "$(rustc --print sysroot)/lib/rustlib/$triple" ] ||
        rustup target add "$triple" >&2 || missing "Rust's library for $triple" "rustup target add $triple"
done

tools=$target/tools/dist
wanted=$(cksum <packaging/dist/requirements.txt)
[ "$(cat "$tools/installed" 2>/dev/null)" = "$wanted" ] || {
    python3 -m venv --clear "$tools"
    "$tools/bin/pip" install -q --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
        -r packaging/dist/requirements.txt
    echo "$wanted" >"$tools/installed"
}
