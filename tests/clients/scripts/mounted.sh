#!/bin/sh
# Runs a program in an imitation of a container with a slice, made of this machine's own files.
# The slice is mounted at PLACE, /.gpuslice or /dev/gpuslice. /proc/meminfo is a copy that shows what the
# container may have, as lxcfs provides one. The container's memory cgroup holds BYTES, none of which
# can be reclaimed; 0: it has no cgroup.
# Usage: mounted.sh FOLDER PLACE BYTES SLICE_JSON LEDGER HOSTS_MEMINFO COPY PROGRAM [ARGUMENT...], as
# root in a mount namespace of its own.
# Touches: FOLDER, and mounts that disappear with the namespace.
set -eu
folder=$1 place=$2 bytes=$3 slice=$4 ledger=$5 hosts=$6 copy=$7
shift 7
mkdir -p "$folder/root" "$folder/layers"
mount -t tmpfs none "$folder/layers"
mkdir "$folder/layers/upper" "$folder/layers/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/layers/upper,workdir=$folder/layers/work" "$folder/root"
root=$folder/root
for kept in proc dev tmp; do
    mount --rbind "/$kept" "$root/$kept"
done
if [ "$place" = /dev/gpuslice ]; then
    mount -t tmpfs none "$root/dev"
    touch "$root/dev/null"
    mount --bind /dev/null "$root/dev/null"
fi
at=$root$place
mkdir -p "$at"
mount -t tmpfs none "$at"
mkdir "$at/ledger" "$at/promises"
cp "$ledger" "$at/ledger/ledger"
truncate -s 4096 "$at/promises/42949672960.own" "$at/promise"
mount --bind "$at/promises/42949672960.own" "$at/promise"
cp "$slice" "$at/slice.json"
touch "$at/meminfo"
mount --bind "$hosts" "$at/meminfo"
if [ "$bytes" != 0 ]; then
    mkdir -p "$root/sys/fs/cgroup"
    echo "$bytes" >"$root/sys/fs/cgroup/memory.current"
    printf 'inactive_file 0\nactive_file 0\nslab_reclaimable 0\n' >"$root/sys/fs/cgroup/memory.stat"
fi
mount --bind "$copy" "$root/proc/meminfo"
exec chroot "$root" "$@"
