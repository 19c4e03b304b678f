#!/usr/bin/env bash
# Builds the command gpuslice, and puts it beside the library.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${TARGET:-target}
"${CARGO:-cargo}" build --locked --profile quick --target-dir "$target" -p gpuslice
mkdir -p "$target/release"
# Replaced, not written over: it may be running.
cp "$target/quick/gpuslice" "$target/release/gpuslice.new"
mv "$target/release/gpuslice.new" "$target/release/gpuslice"
