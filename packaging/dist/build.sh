#!/usr/bin/env bash
# Builds the binaries of every package, stripped, for glibc 2.17 and later. Every folder gives the
# same bytes.
# Usage: packaging/dist/build.sh x86_64 | aarch64
# Touches: target/tools, target/dist/cargo (cargo's), target/dist/ARCH:
#   gpuslice gpuslice-hook libgpuslice.so    the programs and the library
#   gpuslice-node gpuslice-dra               the programs of the container image
#   sim/                                     the simulated driver
#   debug/.build-id/                         their debug information, for gdb and perf
#   gpuslice.cdx.json                        the software bill of materials (CycloneDX)
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
arch=${1:?usage: packaging/dist/build.sh x86_64 | aarch64}
mkdir -p "${TARGET:-target}"
target=$(cd "${TARGET:-target}" && pwd)
out=$target/dist/$arch
packaging/dist/tools.sh "$arch"

gnu=$arch-unknown-linux-gnu
musl=$arch-unknown-linux-musl
prefix=
[ "$arch" = "$(uname -m)" ] || prefix=$arch-linux-gnu-
tools=$target/tools/dist
export CARGO_TARGET_DIR=$target/dist/cargo SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
# By default zig and cargo-zigbuild keep their caches below the user's home.
export CARGO_ZIGBUILD_CACHE_DIR=$target/dist/zigbuild ZIG_GLOBAL_CACHE_DIR=$target/dist/zig-$arch ZIG_LOCAL_CACHE_DIR=$target/dist/zig-$arch
export PATH=$tools/bin:$PATH
# Backtraces and perf need line tables. They are shipped in separate files.
export CARGO_PROFILE_RELEASE_DEBUG=line-tables-only CARGO_PROFILE_HOOK_DEBUG=line-tables-only CARGO_PROFILE_HOOK_STRIP=none
unset RUSTFLAGS

# Remaps the paths of this machine, so that every folder gives the same bytes.
same=(--remap-path-prefix="$root=/gpuslice" --remap-path-prefix="${CARGO_HOME:-$HOME/.cargo}=/cargo"
    --remap-path-prefix="$(rustc --print sysroot)=/rust" --remap-path-prefix="$target=/target")
flags() { # RUSTC'S FLAGS...: sets the next cargo's flags, instead of those of .cargo/config.toml
    local all=("${same[@]}" "$@") IFS=$'\x1f'
    export CARGO_ENCODED_RUSTFLAGS="${all[*]}"
}
run_cargo() { "${CARGO:-cargo}" "$1" --quiet --locked "${@:2}"; }

# A linker script for bfd gives the library's layout. The library uses no symbol version of libc, so
# any gcc will do.
[ "$arch" = aarch64 ] && no_helper=(-C target-feature=-outline-atomics) || no_helper=()
flags "${no_helper[@]}"
linker=CARGO_TARGET_$(tr a-z- A-Z_ <<<"$gnu")_LINKER
env "$linker=${prefix}gcc" ${prefix:+CC=${prefix}gcc} \
    "${CARGO:-cargo}" build --quiet --locked --release --target "$gnu" -p gpuslice-shim

# Instruction sequences that occur twice become functions, which saves 3 % (hook/oci/build.sh).
flags -C llvm-args=-enable-machine-outliner=always -C link-arg=-Wl,--build-id=sha1
if [ -n "$prefix" ]; then # gcc would link the C runtime of its own glibc
    flags -C llvm-args=-enable-machine-outliner=always -C link-arg=--build-id=sha1
    export "CARGO_TARGET_$(tr a-z- A-Z_ <<<"$musl")_LINKER=rust-lld"
fi
run_cargo build --profile hook --target "$musl" -p gpuslice-hook --bin gpuslice-hook
run_cargo build --profile hook --target "$musl" -p gpuslice-node --bin gpuslice-node
# TLS brings files in C. Their debug information would contain the path of cargo's folder.
env "CC_${musl//-/_}=${prefix}gcc" "CFLAGS_${musl//-/_}=-g0 -U_FORTIFY_SOURCE -ffile-prefix-map=${CARGO_HOME:-$HOME/.cargo}=/cargo" \
    "${CARGO:-cargo}" build --quiet --locked --profile hook --target "$musl" -p gpuslice-dra --bin gpuslice-dra

# When zig first links for a target, it compiles the target's start files and unwinder. Their debug
# information contains the path of the folder, which would change the build id. So zig links a
# program and a library first, and their start files and unwinder are then stripped.
warm=$(mktemp -d)
for kind in -pie -shared; do
    echo 'int main(void) { return 0; }' | ZIG_LOCAL_CACHE_DIR=$warm "$tools/bin/python3" -m ziglang cc -target "$arch-linux-gnu.2.17" \
        -g -fno-sanitize=all $kind -x c - -o "$warm/$kind" -lunwind -lpthread -ldl -lm -lrt -lutil -lc
done
rm -rf "$warm"
find "$target/dist/zig-$arch/o" -name '*.o' -exec sh -c 'for file; do "$0" -g "$file" 2>/dev/null || true; done' "${prefix}strip" {} +
find "$target/dist/zig-$arch/o" -name '*.a' | while read -r archive; do
    # The names of the archive's members are paths, which strip cannot write.
    mapfile -t members < <(ar t "$archive")
    # An earlier build has already repacked this archive.
    [ "${members[0]}" != "${members[0]##*/}" ] || continue
    rm "$archive"
    ar qcsD "$archive" "${members[@]}"
done

# zig links against the symbols and versions of glibc 2.17. A newer symbol fails to link (-z defs).
flags -C link-arg=-Wl,--build-id=sha1 -C link-arg=-Wl,-z,defs
run_cargo zigbuild --release --target "$gnu.2.17" -p gpuslice
SIM_CARGO="zigbuild --target $gnu.2.17" SIM_BUILT=$CARGO_TARGET_DIR/$gnu/release
export SIM_CARGO SIM_BUILT
[ -z "$prefix" ] || export SIM_TOOL="qemu-$arch-static -L /usr/$arch-linux-gnu"
CC="$tools/bin/python3 -m ziglang cc -target $arch-linux-gnu.2.17 -g0" AR="$tools/bin/python3 -m ziglang ar" \
    tests/sim/build.sh "$target/dist/sim-$arch"

rm -rf "$out"
mkdir -p "$out/debug/.build-id"
strip_into() { # FILE: writes it to $out, and its debug information to $out/debug
    local name=${1##*/} id debug
    id=$(readelf -n "$1" 2>/dev/null | sed -n 's/.*Build ID: //p')
    [ -n "$id" ] || { echo "gpuslice: $1 has no build id" >&2; return 1; }
    debug=$out/debug/.build-id/${id:0:2}/${id:2}.debug
    mkdir -p "${debug%/*}"
    "${prefix}objcopy" --only-keep-debug --compress-debug-sections "$1" "$debug"
    chmod 644 "$debug"
    "${prefix}strip" -o "$out/$name" "$1"
}
for file in "$CARGO_TARGET_DIR/$gnu/release/libgpuslice.so" "$CARGO_TARGET_DIR/$musl/hook/gpuslice-hook" "$CARGO_TARGET_DIR/$musl/hook/gpuslice-node" "$CARGO_TARGET_DIR/$musl/hook/gpuslice-dra" "$CARGO_TARGET_DIR/$gnu/release/gpuslice"; do
    found=$(strings -a "$file" | grep -F -e "$root" -e "$target" || true)
    [ -z "$found" ] || { echo "gpuslice: $file names a path of this machine: ${found%%$'\n'*}" >&2; exit 1; }
done
strip_into "$CARGO_TARGET_DIR/$gnu/release/libgpuslice.so"
strip_into "$CARGO_TARGET_DIR/$musl/hook/gpuslice-hook"
strip_into "$CARGO_TARGET_DIR/$musl/hook/gpuslice-node"
strip_into "$CARGO_TARGET_DIR/$musl/hook/gpuslice-dra"
strip_into "$CARGO_TARGET_DIR/$gnu/release/gpuslice"
chmod 644 "$out/libgpuslice.so"
ln -s gpuslice-hook "$out/gpuslice-runtime"
cp -a "$target/dist/sim-$arch" "$out/sim"
rm -f "$out"/sim/*.a "$out"/sim/.[!.]*
# Beside the programs and libraries there are manifests, which are texts.
find "$out/sim" -type f ! -name '*.json' ! -name '*.icd' -exec "${prefix}strip" {} +
python3 packaging/dist/sbom.py "$gnu" >"$out/gpuslice.cdx.json"
packaging/dist/floor.sh "$out"
