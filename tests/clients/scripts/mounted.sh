#!/bin/sh
# Runs a program in an imitation of a container with a slice, made of this machine's own files.
# /.gpuslice is mounted. /proc/meminfo is a copy that shows what the container may have, as lxcfs
# provides one.
# Usage: mounted.sh FOLDER SLICE_JSON LEDGER HOSTS_MEMINFO COPY PROGRAM [ARGUMENT...], as root in a
# mount namespace of its own.
# Touches: FOLDER, and mounts that disappear with the namespace.
set -eu
folder=$1 slice=$2 ledger=$3 hosts=$4 copy=$5
shift 5
mkdir -p "$folder/root" "$folder/layers"
mount -t tmpfs none "$folder/layers"
mkdir "$folder/layers/upper" "$folder/layers/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/layers/upper,workdir=$folder/layers/work" "$folder/root"
root=$folder/root
for kept in proc dev tmp; do
    mount --rbind "/$kept" "$root/$kept"
done
mkdir -p "$root/.gpuslice"
mount -t tmpfs none "$root/.gpuslice"
mkdir "$root/.gpuslice/ledger" "$root/.gpuslice/promises"
cp "$ledger" "$root/.gpuslice/ledger/ledger"
truncate -s 4096 "$root/.gpuslice/promises/42949672960.own" "$root/.gpuslice/promise"
mount --bind "$root/.gpuslice/promises/42949672960.own" "$root/.gpuslice/promise"
cp "$slice" "$root/.gpuslice/slice.json"
touch "$root/.gpuslice/meminfo"
mount --bind "$hosts" "$root/.gpuslice/meminfo"
mount --bind "$copy" "$root/proc/meminfo"
exec chroot "$root" "$@"
