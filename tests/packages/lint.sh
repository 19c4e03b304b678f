#!/usr/bin/env bash
# Checks that lintian and rpmlint find nothing in the packages, and that each removal looks for gpuslice in
# the same files of engines.
# Usage: tests/packages/lint.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/../.."

folder=${1:?usage: tests/packages/lint.sh FOLDER}
# The files that a removal reads, without the layout of the list.
engines() { sed -n '/for file in .etc.docker/,/; do/p' "$1" | tr -d ' \t\\\n'; }
expected=$(engines packaging/debian/gpuslice.prerm)
for removal in packaging/rpm/gpuslice.spec packaging/tarball/install.sh Makefile; do
    [ -n "$expected" ] && [ "$(engines $removal)" = "$expected" ] ||
        { echo "FAILED: $removal and packaging/debian/gpuslice.prerm look for gpuslice in different files" >&2; exit 1; }
done
lintian --allow-root --no-cfg --fail-on error,warning "$folder"/*.deb
rpmlint --strict --config tests/packages/rpmlint.toml "$folder"/*.rpm
echo "lint: ok"
