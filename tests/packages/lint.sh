#!/usr/bin/env bash
# Checks that lintian and rpmlint find nothing in the packages.
# Usage: tests/packages/lint.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/../.."

folder=${1:?usage: tests/packages/lint.sh FOLDER}
for tool in lintian rpmlint; do
    command -v $tool >/dev/null || { echo "gpuslice: $tool is missing (on Debian: apt-get install $tool)" >&2; exit 1; }
done
lintian --allow-root --no-cfg --fail-on error,warning "$folder"/*.deb
rpmlint --strict --config tests/packages/rpmlint.toml "$folder"/*.rpm
echo "lint: ok"
