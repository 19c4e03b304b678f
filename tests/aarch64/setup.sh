#!/usr/bin/env bash
# Installs a compiler, a linker and an emulator for 64-bit Arm. They are Debian's packages, because
# rustup's targets are not available everywhere.
# Usage: tests/aarch64/setup.sh TOOLS. The folder TOOLS gets a `rustc` for the target.
set -euo pipefail
tools=$(mkdir -p "$1" && cd "$1" && pwd)
# Another package can remove the cross compiler: Debian's gcc-multilib does so.
[ -e "$tools/complete" ] && command -v aarch64-linux-gnu-gcc >/dev/null &&
    command -v qemu-aarch64-static >/dev/null && exit 0

say() { echo "gpuslice: $*" >&2; }
command -v apt-get >/dev/null || { say "the Arm tools come from Debian's packages, and there is no apt-get here"; exit 1; }

wanted=()
for package in gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || wanted+=("$package")
done
if [ "${#wanted[@]}" -gt 0 ]; then
    [ "$(id -u)" = 0 ] || { say "missing: ${wanted[*]} (apt-get install ${wanted[*]})"; exit 1; }
    say "installing ${wanted[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${wanted[@]}" >/dev/null
fi

# Unpacks Debian's compiler and both standard libraries. Installed, they would conflict with rustup.
packages=$tools/packages
mkdir -p "$packages/lists/partial"
cd "$packages"
rm -f ./*.deb
foreign=(-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::Lists="$packages/lists" -o APT::Sandbox::User=root)
apt-get -qq "${foreign[@]}" update
[ "$(id -u)" != 0 ] || apt-get -qq update
apt-get -qq "${foreign[@]}" download libstd-rust-web-dev
runtime=$(apt-cache depends libstd-rust-web-dev | awk '/Depends: libstd-rust-web-/ {print $2; exit}')
llvm=$(apt-cache depends "$runtime" | awk '/Depends: libllvm/ {print $2; exit}')
apt-get -qq -o APT::Sandbox::User=root download rustc-web libstd-rust-web-dev "$runtime" "$llvm"
for package in ./*.deb; do
    dpkg -x "$package" "$tools/root"
done
cd "$tools"
rm -rf "$packages"

cat >"$tools/rustc" <<'END'
#!/bin/sh
# Debian's rustc with its own libraries, which nothing else may see.
root=$(dirname "$0")/root/usr
export LD_LIBRARY_PATH="$root/lib/x86_64-linux-gnu:$(echo "$root"/lib/llvm-*/lib)"
exec "$root/bin/rustc" "$@"
END
chmod +x "$tools/rustc"
"$tools/rustc" --version >&2
touch "$tools/complete"
