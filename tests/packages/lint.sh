#!/usr/bin/env bash
# Checks that lintian and rpmlint find nothing in the packages.
# Usage: tests/packages/lint.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/../.."

folder=${1:?usage: tests/packages/lint.sh FOLDER}
lintian --allow-root --no-cfg --fail-on error,warning "$folder"/*.deb
rpmlint --strict --config tests/packages/rpmlint.toml "$folder"/*.rpm
echo "lint: ok"
