#!/usr/bin/env bash
# Prints the version of the packages: the workspace's, or GPUSLICE_VERSION.
set -euo pipefail
[ -z "${GPUSLICE_VERSION:-}" ] || { echo "$GPUSLICE_VERSION"; exit; }
sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$(dirname "$0")/../../Cargo.toml"
