#!/usr/bin/env bash
# Downloads containerd 1.7, the oldest that knows CDI devices, from the packages of Debian 13, and
# unpacks it. The script installs nothing and does not change the host's apt.
# Usage: tests/containers/containerd.sh FOLDER
# Makes FOLDER/usr/bin/containerd, containerd-shim-runc-v2 and ctr.
# Exit status: 1 if the package cannot be fetched; standard error names the reason.
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
say() { echo "gpuslice: containerd 1.7 cannot be had: $*" >&2; exit 1; }
# Only one copy of this script works at a time.
exec 9>"$folder/lock"
flock -w 1800 9 || say "another one has fetched it for half an hour"
[ -e "$folder/complete" ] && exit 0

# Uses the mirror from which this machine gets Debian itself, with another release.
site=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep '/debian/*$' | sort -u | head -n 1)
[ -n "$site" ] || say "this machine's apt names no Debian mirror"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$keyring" ] || say "$keyring is missing (apt-get install debian-archive-keyring)"

apt=$folder/apt
rm -rf "$apt"
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/debs"
echo "deb [signed-by=$keyring] $site trixie main" >"$apt/sources.list"
own=(-qq -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o Dir::State::Lists="$apt/lists" -o Dir::State::Status=/dev/null -o Dir::Cache="$apt/cache"
    -o APT::Sandbox::User=root -o Acquire::Languages=none)
apt-get "${own[@]}" update || say "apt-get update failed for $site"
(cd "$apt/debs" && apt-get "${own[@]}" download containerd) || say "the package cannot be downloaded"
dpkg -x "$apt"/debs/containerd_*.deb "$apt/root"
mkdir -p "$folder/usr/bin"
for program in containerd containerd-shim-runc-v2 ctr; do
    cp "$apt/root/usr/bin/$program" "$folder/usr/bin/" || say "the package holds no $program"
done
rm -rf "$apt"
touch "$folder/complete"
