#!/usr/bin/env bash
# Adds to the seeds of the fuzzers what the corpora in target/fuzz cover beyond them: inputs of at
# most 4 KiB, and at most 64 seeds for each target. A seed with a name in words stays.
# Usage: tests/fuzz/minimise.sh [TARGET...], after tests/fuzz/run.sh, which builds the fuzzers.
set -euo pipefail
cd "$(dirname "$0")"
fuzz=$(cd "../../${TARGET:-target}/fuzz" && pwd)
export TMPDIR=$fuzz/tmp
mkdir -p "$TMPDIR"
targets=("$@")
[ "${#targets[@]}" -gt 0 ] || for file in targets/*.rs; do targets+=("$(basename "$file" .rs)"); done

for target in "${targets[@]}"; do
    built=("$fuzz"/*/release/"$target")
    from=$TMPDIR/small to=$TMPDIR/seeds
    rm -rf "$from" "$to"
    mkdir -p "$from" "$to" "seeds/$target"
    find "seeds/$target" -type f -regextype posix-extended ! -regex '.*/[0-9a-f]{40}' -exec cp -t "$to" {} +
    find "$fuzz/corpus/$target" "seeds/$target" -type f -size -4097c -exec cp -t "$from" {} +
    "${built[0]}" -merge=1 -rss_limit_mb=2048 "$to" "$from" >"$fuzz/$target-merge.log" 2>&1 ||
        { tail -n 20 "$fuzz/$target-merge.log" >&2; exit 1; }
    # Of the inputs that no one has named, the smallest ones stay.
    named=$(find "$to" -type f -regextype posix-extended ! -regex '.*/[0-9a-f]{40}' | wc -l)
    find "$to" -type f -regextype posix-extended -regex '.*/[0-9a-f]{40}' -printf '%s %p\n' |
        sort -n | tail -n "+$((64 - named + 1))" | cut -d' ' -f2- | xargs -r rm
    rm -rf "seeds/$target"
    mv "$to" "seeds/$target"
    echo "fuzz: $target has $(find "seeds/$target" -type f | wc -l) seeds"
done
