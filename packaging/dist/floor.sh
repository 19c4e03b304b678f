#!/usr/bin/env bash
# Checks that built binaries run on any supported machine: they need at most glibc 2.17, and no
# other library.
# Usage: packaging/dist/floor.sh FOLDER    (target/dist/ARCH)
set -euo pipefail
out=${1:?usage: packaging/dist/floor.sh FOLDER}
floor=2.17
failed=0
fail() {
    echo "gpuslice: $*" >&2
    failed=1
}

needed() { readelf -dW "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'; }
versions() { readelf -VW "$1" | grep -o "Name: GLIBC_[0-9.]*" | sed "s,.*_,," | sort -Vu || true; }

newest=$(versions "$out/libgpuslice.so")
[ -z "$newest" ] || fail "libgpuslice.so asks for glibc $newest: it must ask for no version"
[ "$(needed "$out/libgpuslice.so")" = libc.so.6 ] || fail "libgpuslice.so needs $(needed "$out/libgpuslice.so" | paste -sd' ')"

for file in gpuslice-hook gpuslice-node gpuslice-dra; do
    [ -z "$(needed "$out/$file")" ] || fail "$file is not static"
    ! readelf -lW "$out/$file" | grep -q INTERP || fail "$file has an interpreter: it is not static"
done

while IFS= read -r file; do
    [ -L "$file" ] && continue
    newest=$(versions "$file" | tail -1)
    [ "$(printf '%s\n' "${newest:-0}" "$floor" | sort -V | tail -1)" = "$floor" ] ||
        fail "$file asks for glibc $newest: it must run on $floor"
    for library in $(needed "$file"); do
        case $library in
        libc.so.6 | libm.so.6 | libdl.so.2 | libpthread.so.0 | librt.so.1 | ld-linux-*.so.?) ;;
        *) fail "$file needs $library" ;;
        esac
    done
done < <(
    echo "$out/gpuslice"
    find "$out/sim" -type f \( -name '*.so.*' -o -name gpuslice-sim \)
)

for file in gpuslice gpuslice-hook gpuslice-node gpuslice-dra libgpuslice.so; do
    ! readelf -SW "$out/$file" | grep -q -e '\.debug_line' -e '\.symtab' || fail "$file is not stripped"
    [ -z "$(strings -a "$out/$file" | grep -m 1 -e "$PWD" -e "${HOME:-/root}/\.")" ] ||
        fail "$file names a path of this machine: $(strings -a "$out/$file" | grep -m 1 -e "$PWD" -e "${HOME:-/root}/\.")"
done
exit $failed
