#!/usr/bin/env bash
# Prints the version of the packages: GPUSLICE_VERSION if it is set, else the workspace's.
set -euo pipefail
[ -z "${GPUSLICE_VERSION:-}" ] || { echo "$GPUSLICE_VERSION"; exit; }
sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$(dirname "$0")/../../Cargo.toml"
