#!/usr/bin/env bash
# Makes a machine of its own out of this one: its own /run, its own writable copies of /etc, /usr and
# the like, its own processes. Nothing that happens here changes the machine below, and all of it
# is gone, mounts and processes, when standard input closes.
# Called as process 1 of new mount and pid namespaces: host.sh BUILD CGROUP
set -euo pipefail
build=$1
mount -t tmpfs -o mode=755 host /run
mkdir -p /run/lock /run/build /run/changed
mount --bind "$build" /run/build
for folder in etc usr var opt root home srv tmp; do
    [ -d "/$folder" ] && [ ! -L "/$folder" ] || continue
    mkdir "/run/changed/$folder" "/run/changed/.$folder"
    chmod --reference="/$folder" "/run/changed/$folder"
    mount -t overlay -o "lowerdir=/$folder,upperdir=/run/changed/$folder,workdir=/run/changed/.$folder" host "/$folder"
done
# Images and containers lie in memory, each runtime's apart: an overlay cannot be another's upper folder.
for folder in containers docker containerd; do
    mkdir -p "/var/lib/$folder"
    mount -t tmpfs -o mode=711 host "/var/lib/$folder"
done
# Beside version 1, version 2 has no controllers, and crun will not have both.
if mountpoint -q /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi

# As the packages do.
mkdir -p /usr/lib/gpuslice /etc/gpuslice /usr/share/containers/oci/hooks.d /etc/containers /etc/containerd /etc/docker
install -m 755 /run/build/release/libgpuslice.so /usr/lib/gpuslice/
install -m 755 /run/build/release/gpuslice /usr/bin/
if [ -e /run/build/release/gpuslice-hook ]; then
    install -m 755 /run/build/release/gpuslice-hook /usr/bin/
    ln -sf gpuslice-hook /usr/bin/gpuslice-runtime
fi
# The host's driver is the simulated one, where ld.so looks without being told.
for library in /run/build/sim/lib*.so.*; do ln -sf "$library" "/usr/lib/x86_64-linux-gnu/${library##*/}"; done
# What a root without CAP_SYS_RESOURCE can run: no rlimit is raised, no network is made.
cat >/etc/containers/containers.conf <<'CONF'
[containers]
default_ulimits = []
netns = "none"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
infra_image = "localhost/pause:1"
CONF
echo ready
# Process 1 reaps whoever is left to it while it waits for this one.
cat >/dev/null
