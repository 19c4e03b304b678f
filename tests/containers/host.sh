#!/usr/bin/env bash
# Turns new namespaces into a machine of its own: its own /run, its own processes, and writable
# copies of /etc, /usr and the like. No change reaches the machine below. All mounts and processes
# end when standard input closes.
# Runs as process 1 of new mount and pid namespaces: host.sh BUILD CGROUP
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
# Images and containers lie in memory, one tmpfs for each engine: an overlay cannot be the upper
# folder of another.
for folder in containers docker containerd; do
    mkdir -p "/var/lib/$folder"
    mount -t tmpfs -o mode=711 host "/var/lib/$folder"
done
# Mounted together with version 1, cgroup version 2 has no controllers, and crun refuses the
# combination.
if mountpoint -q /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi

# The files are where the packages install them.
mkdir -p /usr/lib/gpuslice /etc/gpuslice /usr/share/containers/oci/hooks.d /etc/containers /etc/containerd /etc/docker
install -m 755 /run/build/release/libgpuslice.so /usr/lib/gpuslice/
install -m 755 /run/build/release/gpuslice /usr/bin/
if [ -e /run/build/release/gpuslice-hook ]; then
    install -m 755 /run/build/release/gpuslice-hook /usr/bin/
    ln -sf gpuslice-hook /usr/bin/gpuslice-runtime
fi
# The host has the simulated driver in a folder that ld.so searches by default.
for library in /run/build/sim/lib*.so.*; do ln -sf "$library" "/usr/lib/x86_64-linux-gnu/${library##*/}"; done
# Settings for a root without CAP_SYS_RESOURCE: no rlimit is raised, and no network is created.
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
# Process 1 reaps orphaned processes while it waits for this cat.
cat >/dev/null
