#!/usr/bin/env bash
# Downloads NVIDIA's user-space libraries (libcuda, NVML, nvidia-smi) and unpacks them. They come
# from Debian's component non-free. The script installs nothing and does not change the host's apt.
# Usage: tests/clients/nvidia.sh FOLDER
# Makes FOLDER/535 and FOLDER/550 (x86-64), FOLDER/535-arm64 and FOLDER/550-arm64. Each folder holds
# libcuda.so.1, libnvidia-ml.so.1 and nvidia-smi.
# Exit status: 1 if the libraries cannot be fetched; standard error names the reason.
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
say() { echo "gpuslice: NVIDIA's libraries cannot be had: $*" >&2; exit 1; }
# Only one copy of this script works at a time, because tests that need the libraries run in
# parallel.
exec 9>"$folder/lock"
flock -w 1800 9 || say "another one has fetched them for half an hour"
[ -e "$folder/complete" ] && exit 0

command -v apt-get >/dev/null || say "they come from Debian's packages, and there is no apt-get here"
command -v dpkg >/dev/null || say "dpkg is missing"

# Uses the mirror from which this machine gets Debian itself, with another component.
site=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep '/debian/*$' | sort -u | head -n 1)
[ -n "$site" ] || say "this machine's apt names no Debian mirror"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$keyring" ] || say "$keyring is missing (apt-get install debian-archive-keyring)"

apt=$folder/apt
rm -rf "$apt"
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
for suite in bookworm trixie; do
    echo "deb [signed-by=$keyring] $site $suite non-free"
done >"$apt/sources.list"
own=(-qq -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o Dir::State::Lists="$apt/lists" -o Dir::State::Status=/dev/null -o Dir::Cache="$apt/cache"
    -o APT::Architectures::=amd64 -o APT::Architectures::=arm64 -o APT::Sandbox::User=root
    -o Acquire::Languages=none)
apt-get "${own[@]}" update || say "apt-get update failed for $site"

unpack() { # BRANCH ARCHITECTURE FOLDER
    local branch=$1 architecture=$2 into=$3 package version
    rm -rf "$apt/debs" "$into"
    mkdir -p "$apt/debs" "$into"
    cd "$apt/debs"
    for package in libcuda1 libnvidia-ml1 nvidia-smi; do
        version=$(apt-cache "${own[@]}" madison "$package:$architecture" | awk -F'|' '{gsub(/ /, "", $2); print $2}' |
            grep "^$branch\." | head -n 1)
        [ -n "$version" ] || say "Debian has no $package $branch for $architecture"
        apt-get "${own[@]}" download "$package:$architecture=$version" || say "$package $version cannot be downloaded"
    done
    for package in ./*.deb; do
        dpkg -x "$package" root
    done
    find root -name 'libcuda.so.[0-9]*.*' -exec cp {} "$into/libcuda.so.1" \;
    find root -name 'libnvidia-ml.so.[0-9]*.*' -exec cp {} "$into/libnvidia-ml.so.1" \;
    find root -name 'nvidia-smi' -type f -perm -1 -exec cp {} "$into/nvidia-smi" \;
    for package in libcuda.so.1 libnvidia-ml.so.1 nvidia-smi; do
        [ -s "$into/$package" ] || say "the packages of $branch for $architecture hold no $package"
    done
    cd "$folder"
    rm -rf "$apt/debs"
}
for branch in 535 550; do
    unpack "$branch" amd64 "$folder/$branch"
    unpack "$branch" arm64 "$folder/$branch-arm64"
done
rm -rf "$apt"
touch "$folder/complete"
