#!/usr/bin/env bash
# Boots the machine anew: an empty /run and /dev/shm, no containers' mounts, network or cgroups, and idle
# GPUs. No process but process 1 and the caller runs.
# Usage: boot.sh GPUS CGROUP
set -euo pipefail
while read -r _ _ _ _ point _; do
    case $point in
    /run | /run/* | /dev/shm | /var/lib/kubelet/* | /var/lib/containerd/*) echo "$point" ;;
    esac
done </proc/self/mountinfo | sort -r | while read -r point; do umount -l "$point" 2>/dev/null || true; done
mount -t tmpfs -o mode=755 machine /run
mkdir -p /run/lock
mount -t tmpfs -o mode=1777 machine /dev/shm
ip link delete cni0 2>/dev/null || true
rm -rf /var/lib/cni
for top in /sys/fs/cgroup /sys/fs/cgroup/*; do
    [ ! -d "$top/$2" ] || find "$top/$2" -mindepth 1 -depth -type d -exec rmdir {} +
done
"${BASH_SOURCE%/*}/gpus.sh" "$1"
