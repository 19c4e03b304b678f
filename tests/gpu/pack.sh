#!/usr/bin/env bash
# Packs the suite and all its dependencies into one folder, for a machine with a GPU but without
# cargo or a network.
# Usage: tests/gpu/pack.sh DIR (after `make`). Touches: DIR, target/userlands.
# On x86-64 all programs are linked against glibc 2.23, which tests/userlands/setup.sh downloads
# once. PORTABLE=no packs the output of make, for machines whose C library is at least as new as
# this one's.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${TARGET:-target} to=${1:?usage: tests/gpu/pack.sh DIR}
target=$(cd "$target" && pwd)
release=$target/release sim=$target/sim tool=$target/sim sysroot=()

# Prints the newest glibc version that the files of the kit import.
newest() { objdump -T "$@" 2>/dev/null | grep -o 'GLIBC_2\.[0-9.]*' | sort -Vu | tail -n 1; }

portable() { # gpuslice, the simulated driver and its runtimes, linked against the oldest root
    local root=$target/userlands/xenial built=$target/userlands/build words program
    TARGET=$target tests/userlands/setup.sh xenial || return 1
    sysroot=("--sysroot=$root" "-B$root/usr/lib/x86_64-linux-gnu" "-L$root/usr/lib/x86_64-linux-gnu"
        "-L$root/lib/x86_64-linux-gnu")
    "${CC:-cc}" -O1 -fPIC "${sysroot[@]}" -c tests/gpu/c/memfd_create.c -o "$target/userlands/memfd_create.o" || return 1
    # These are the flags of tests/userlands/setup.sh. With other flags cargo would build everything
    # again.
    words="$(printf -- '-C link-arg=%s ' "${sysroot[@]}" -Wl,-z,defs)"
    for program in "gpuslice --bin gpuslice" "gpuslice-sim --bin gpuslice-sim"; do
        # shellcheck disable=SC2086 # the words are meant to be split
        RUSTFLAGS=$words CARGO_TARGET_DIR=$built "${CARGO:-cargo}" rustc --quiet --locked --profile quick \
            --target x86_64-unknown-linux-gnu -p $program -- -C link-arg="$target/userlands/memfd_create.o" || return 1
    done
    release=$built/x86_64-unknown-linux-gnu/quick sim=$target/userlands/sim tool=$release
}
if [ "$(uname -m)" = x86_64 ] && [ "${PORTABLE:-yes}" = yes ]; then
    portable || echo "tests/gpu/pack.sh: not portable: packing what make has built" >&2
fi

rm -rf "$to"
mkdir -p "$to/release" "$to/sim" "$to/bin"
cp "$release/gpuslice" "$target/release/libgpuslice.so" "$to/release/"
# The kit contains the simulated driver, so that it can be tried on any machine with --sim h200.
cp -L "$sim/libcuda.so.1" "$sim/libnvidia-ml.so.1" "$tool/gpuslice-sim" "$to/sim/"
for major in 11.0 12 13; do
    name=libcudart.so.$major
    printf '%s { global: cuda*; local: *; };\n' "$name" >"$to/sim/map"
    "${CC:-cc}" -std=gnu11 -O2 -fPIC -DCUDART="${major%%.*}" -shared "${sysroot[@]}" -Wl,-soname,"$name" -Wl,-Bsymbolic \
        -Wl,--version-script="$to/sim/map" -o "$to/sim/$name" tests/sim/cudart/cudart.c -ldl -lpthread
done
rm "$to/sim/map"
strip --strip-debug "$to"/release/* "$to"/sim/*
cp tests/gpu/run.sh tests/gpu/RESULTS.md tests/gpu/QUESTIONS.md "$to/"
cp -r tests/gpu/suite tests/gpu/c "$to/"
# The names of the recordings. The check looks up these names and the driver's own exports.
cp tests/sim/recorded/lookups-550.txt "$to/suite/"
find "$to" -name __pycache__ -prune -exec rm -rf {} +
# Prebuilt programs, for machines with a libcudart but no nvcc. They find libcudart by its name.
for major in 11 12 13; do
    name=libcudart.so.$major
    [ $major = 11 ] && name=libcudart.so.11.0
    "${CC:-cc}" -O1 -Itests/clients/c -DCUDART_MAJOR=$major "${sysroot[@]}" -o "$to/bin/runtime-$major" tests/clients/c/runtime.c \
        -L"$to/sim" -l:$name -ldl -pthread -Wl,--allow-shlib-undefined
done
needs=$(newest "$to"/release/* "$to"/sim/* "$to"/bin/*)
size=$(du -sm "$to" | cut -f1)
echo "$to: $size MiB, $(uname -m), ${needs/GLIBC_/glibc }; on the machine: $to/run.sh --out DIR"
[ "$size" -lt 40 ] || { echo "tests/gpu/pack.sh: larger than 40 MiB" >&2; exit 1; }
if [ ${#sysroot[@]} -gt 0 ] && [ "$(printf '%s\n' "$needs" GLIBC_2.23 | sort -V | tail -n 1)" != GLIBC_2.23 ]; then
    echo "tests/gpu/pack.sh: a program of the kit needs $needs, newer than GLIBC_2.23" >&2
    exit 1
fi
