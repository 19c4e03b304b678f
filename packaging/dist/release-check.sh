#!/usr/bin/env bash
# Builds all packages twice in clean clones, tests them, and writes the release notes.
# Usage: packaging/dist/release-check.sh
# Called by make release-check. ARCHES and PREVIOUS are those of make dist and make packages-test.
# Touches: target/release-check (two clones), target/dist/release: packages, SHA256SUMS, NOTES.md.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
target=$(cd "${TARGET:-target}" && pwd)
arches=${ARCHES:-x86_64 aarch64}
version=$(packaging/dist/version.sh)
say() { echo "release-check: $*"; }
fail() {
    say "$*" >&2
    exit 1
}

[ -z "$(git status --porcelain)" ] || fail "there are changes that are not committed"
commit=$(git rev-parse HEAD)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
unset TARGET
notes=$(python3 packaging/dist/notes.py "$version" CHANGELOG.md)
grep -q "\"gpuslice $version\"" packaging/man/gpuslice.1 || fail "the man pages are not of version $version: make goldens"

tests/setup.sh packages

# The clones differ in name and depth, so a path in a binary would make the builds differ.
work=$target/release-check
first=$work/tree second=$work/another/place
for tree in "$first" "$second"; do
    rm -rf "$tree"
    git clone -q "$root" "$tree"
    git -C "$tree" checkout -q "$commit"
    mkdir -p "$tree/target/tools"
    # The tools are not checked here: requirements.txt pins them.
    [ ! -e "$target/tools/dist/installed" ] || ln -s "$target/tools/dist" "$tree/target/tools/dist"
    make --no-print-directory -C "$tree" dist ARCHES="$arches"
done
say "built twice from $commit"
cmp "$first/target/dist/packages/SHA256SUMS" "$second/target/dist/packages/SHA256SUMS" ||
    fail "two builds differ: $(diff "$first/target/dist/packages/SHA256SUMS" "$second/target/dist/packages/SHA256SUMS" | grep '^>' | sed 's/.* //' | paste -sd' ')"
say "two builds are the same bytes"

mkdir -p "$target/roots"
ln -sfn "$target/roots" "$first/target/roots"
make --no-print-directory -C "$first" packages-test PREVIOUS="${PREVIOUS:-}"
[ -n "${PREVIOUS:-}" ] || say "PREVIOUS names no earlier release: how the two get on was not tested"

rm -rf "$target/dist/release"
mkdir -p "$target/dist/release"
cp "$first"/target/dist/packages/* "$target/dist/release/"
printf '# gpuslice %s\n\n%s\n' "$version" "$notes" >"$target/dist/release/NOTES.md"
say "gpuslice $version is in ${target#"$root"/}/dist/release"
