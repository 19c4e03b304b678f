#!/usr/bin/env bash
# Fuzzes every parser of files that tenants, images, engines or people write.
# Usage: tests/fuzz/run.sh [SECONDS [TARGET...]]
# Each target runs for SECONDS (default: 600). As many targets run at once as there are processors.
# FUZZ_TOGETHER=1 runs all at once.
# A nightly compiler adds AddressSanitizer. Without one, the project's own compiler fuzzes without
# it.
set -euo pipefail
cd "$(dirname "$0")"
top=$(cd ../.. && pwd)
seconds=${1:-600}
shift || true
mkdir -p "$top/${TARGET:-target}"
target=$(cd "$top/${TARGET:-target}" && pwd)
"$top/tests/setup.sh" fuzz
export PATH=$target/tools/bin:$PATH CARGO_TARGET_DIR=$target/fuzz
mkdir -p "$CARGO_TARGET_DIR"
cargo=("${CARGO:-cargo}")
if [ -z "${CARGO:-}" ] && cargo +nightly --version >/dev/null 2>&1; then
    cargo+=(+nightly)
    sanitizer=address
else
    echo "fuzz: AddressSanitizer is not used, there is no nightly compiler here" >&2
    sanitizer=none
fi
targets=("$@")
[ "${#targets[@]}" -gt 0 ] || for file in targets/*.rs; do targets+=("$(basename "$file" .rs)"); done

"${cargo[@]}" fuzz build --fuzz-dir . --sanitizer "$sanitizer" >"$target/fuzz-build.log" 2>&1 ||
    { cat "$target/fuzz-build.log" >&2; exit 1; }

# Makes a first input for `image`: the smallest library that has all that is read of an image's
# libc.
mkdir -p "$CARGO_TARGET_DIR/corpus/image"
cc -shared -nostdlib -s -Wl,-z,max-page-size=64,-z,noseparate-code,--build-id=none -xc - \
    -o "$CARGO_TARGET_DIR/corpus/image/library" <<<'int puts(const char *); int main(void) { return puts(""); }'

# Some targets write a file for each input, which takes much longer on a disk.
memory=/dev/shm
[ -w "$memory" ] || memory=$CARGO_TARGET_DIR
TMPDIR=$(mktemp -d -p "$memory" gpuslice-fuzz.XXXXXX)
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT

fuzz() { # TARGET: runs it; its log holds the findings
    local corpus=$CARGO_TARGET_DIR/corpus/$1 seeds=seeds/$1
    mkdir -p "$corpus" "$CARGO_TARGET_DIR/artifacts/$1"
    # `cargo fuzz run` is not used: several of them would wait for each other's lock.
    local built=("$CARGO_TARGET_DIR"/*/release/"$1")
    "${built[0]}" "$corpus" $([ -d "$seeds" ] && echo "$seeds") \
        -artifact_prefix="$CARGO_TARGET_DIR/artifacts/$1/" -max_total_time="$seconds" \
        -max_len=65536 -timeout=10 -rss_limit_mb=2048 >"$CARGO_TARGET_DIR/$1.log" 2>&1
}

report() { # TARGET STATUS
    local log=$CARGO_TARGET_DIR/$1.log
    if [ "$2" = 0 ]; then
        grep -E '^Done ' "$log" | sed "s/^/fuzz: $1: /"
    else
        tail -n 40 "$log" >&2
        echo "fuzz: $1 has found something: the input is in $CARGO_TARGET_DIR/artifacts/$1" >&2
        failed=1
    fi
}

at_once=$(nproc)
[ -z "${FUZZ_TOGETHER:-}" ] || at_once=${#targets[@]}
failed=0
while [ "${#targets[@]}" -gt 0 ]; do
    running=()
    for one in "${targets[@]:0:at_once}"; do
        fuzz "$one" &
        running+=("$!:$one")
    done
    for one in "${running[@]}"; do
        status=0
        wait "${one%%:*}" || status=$?
        report "${one#*:}" "$status"
    done
    targets=("${targets[@]:at_once}")
done
exit $failed
