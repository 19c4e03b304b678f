#!/usr/bin/env bash
# Turns new namespaces into a machine of its own, and runs the scenario on it. No change reaches the
# machine below: its folders are overlays, its network has no way out, and all its processes end with
# process 1. Only empty cgroups stay, which run.sh removes.
# Runs as process 1: machine.sh TREE TARGET LOGS CGROUP KUBE ENGINE TOOLS CNI [STEP...]
set -euo pipefail
tree=$1 target=$2 logs=$3 group=$4 kube=$5 engine=$6 tools=$7 cni=$8
shift 8
mount -t tmpfs -o mode=755 machine /mnt
mkdir /mnt/{tree,build,logs,kube,engine,tools,cni,changed,state,sim,sysctl}
chmod 777 /mnt/sim
mount --bind "$tree" /mnt/tree
mount --bind "$target" /mnt/build
mount --bind "$logs" /mnt/logs
mount --bind "$kube" /mnt/kube
mount --bind "$engine" /mnt/engine
mount --bind "$tools" /mnt/tools
mount --bind "$cni" /mnt/cni
for folder in etc usr var opt root; do
    [ -d "/$folder" ] && [ ! -L "/$folder" ] || continue
    mkdir "/mnt/changed/$folder" "/mnt/changed/.$folder"
    chmod --reference="/$folder" "/mnt/changed/$folder"
    mount -t overlay -o "lowerdir=/$folder,upperdir=/mnt/changed/$folder,workdir=/mnt/changed/.$folder" machine "/$folder"
done
# An overlay cannot be the upper folder of the containers' overlays.
for folder in kubelet containerd; do
    rm -rf "/var/lib/$folder"
    mkdir -p "/var/lib/$folder"
    mount -t tmpfs -o mode=711 machine "/var/lib/$folder"
done
rm -rf /etc/cni /etc/cdi /etc/gpuslice /opt/gpuslice
mkdir -p /etc/cni/net.d /etc/containerd
# Mounted together with version 1, cgroup version 2 has no controllers.
if mountpoint -q /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi

# The kubelet writes these settings. They belong to the machine below, so it gets files instead.
for pair in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    file=/mnt/sysctl/${pair//[\/=]/-}
    echo "${pair#*=}" >"$file"
    mount --bind "$file" "/proc/sys/${pair%=*}"
done

hostname node1
ip link set lo up
# The node, and the first address of the services, at which pods find the API server: without
# kube-proxy, it listens there itself.
ip address add 10.99.0.1/32 dev lo
ip address add 10.99.1.1/32 dev lo

for top in /sys/fs/cgroup/*/; do
    [ -e "$top/cgroup.procs" ] && [ -e "$top/tasks" ] || continue
    mkdir "$top/$group"
    for file in cpuset.cpus cpuset.mems; do
        [ ! -e "$top/$file" ] || cat "$top/$file" >"$top/$group/$file"
    done
done
[ ! -e /sys/fs/cgroup/cgroup.controllers ] || mkdir "/sys/fs/cgroup/$group"

# The simulated driver is in a folder that ld.so searches by default.
for library in /mnt/build/sim/lib*.so.*; do ln -sf "$library" "/usr/lib/x86_64-linux-gnu/${library##*/}"; done

# Containers see mounts that the node makes later.
mount --make-rshared /
export CLUSTER_GROUP=$group PYTHONDONTWRITEBYTECODE=1
PATH=/mnt/kube:/mnt/engine:/mnt/tools:$PATH
# A child, because this shell reaps orphaned processes.
"${PYTHON:-python3}" /mnt/tree/tests/cluster/scenario.py "$@"
