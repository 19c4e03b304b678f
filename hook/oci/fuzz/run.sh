#!/usr/bin/env bash
# Fuzzes what the hook reads, all targets at once, for SECONDS each (600 unless told).
# Usage: hook/oci/fuzz/run.sh [SECONDS]
set -euo pipefail
cd "$(dirname "$0")/../../.."
seconds=${1:-600}
tools=$PWD/${TARGET:-target}/tools
if ! rustc +nightly --version >/dev/null 2>&1; then
    echo "fuzz: not run, there is no nightly compiler here (rustup toolchain install nightly)" >&2
    exit 1
fi
[ -x "$tools/bin/cargo-fuzz" ] || "${CARGO:-cargo}" install --quiet --locked --root "$tools" cargo-fuzz@0.13.1
export PATH=$tools/bin:$PATH CARGO_TARGET_DIR=$PWD/${TARGET:-target}/fuzz
cd hook/oci
targets=(state spec annotations policy image)
# One after the other: they share a build. No target triple of the project's toolchain file.
for target in "${targets[@]}"; do
    cargo +nightly fuzz build --fuzz-dir fuzz "$target"
done
running=()
for target in "${targets[@]}"; do
    corpus=$CARGO_TARGET_DIR/corpus/$target
    mkdir -p "$corpus"
    seeds=fuzz/seeds/$target
    cargo +nightly fuzz run --fuzz-dir fuzz "$target" "$corpus" $([ -d "$seeds" ] && echo "$seeds") -- \
        -max_total_time="$seconds" -max_len=65536 -timeout=10 -rss_limit_mb=2048 >"$CARGO_TARGET_DIR/$target.log" 2>&1 &
    running+=($!)
done
status=0
for at in "${!targets[@]}"; do
    if wait "${running[$at]}"; then
        grep -E '^Done ' "$CARGO_TARGET_DIR/${targets[$at]}.log" | sed "s/^/${targets[$at]}: /"
    else
        tail -n 40 "$CARGO_TARGET_DIR/${targets[$at]}.log" >&2
        echo "fuzz: ${targets[$at]} has found something" >&2
        status=1
    fi
done
exit $status
