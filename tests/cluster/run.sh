#!/usr/bin/env bash
# Runs the scenario on a cluster of one node: Kubernetes' own programs, containerd, the chart's
# manifests, simulated GPUs.
# Usage: KUBE_BIN=DIR tests/cluster/run.sh [STEP...]
# DIR has kube-apiserver, kube-scheduler, kube-controller-manager, kubelet and etcd. Programs that it
# may have: kubectl, runc, containerd with containerd-shim-runc-v2 and ctr; and a folder cni.
# Without KUBE_BIN it prints one line and succeeds. Logs stay in target/cluster/logs.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=$PATH:/sbin:/usr/sbin
wanted="kube-apiserver, kube-scheduler, kube-controller-manager, kubelet, etcd"

not_run() { echo "NOT RUN: the scenario on a real cluster: $*"; exit 0; }
fail() { echo "tests/cluster/run.sh: $*" >&2; exit 1; }

[ -n "${KUBE_BIN:-}" ] || not_run "KUBE_BIN does not name a folder with $wanted"
for program in ${wanted//,/}; do
    [ -x "$KUBE_BIN/$program" ] || fail "$KUBE_BIN has no $program (wanted: $wanted)"
done
[ "$(id -u)" = 0 ] || fail "it needs root"
kube=$(cd "$KUBE_BIN" && pwd)
target=$(cd "${TARGET:-target}" && pwd)

# What the folder may lack: containerd 1.7 of the other tests, kubectl of the chart's tests, and the
# network plugins of Debian.
engine=$kube
[ -x "$kube/containerd" ] || engine=$target/containers/containerd/usr/bin
tools=$kube
[ -x "$kube/kubectl" ] || tools=$target/kube-tools
cni=$kube/cni
[ -x "$cni/bridge" ] || cni=$target/cluster/cni/usr/lib/cni
if [ ! -x "$cni/bridge" ]; then
    mkdir -p "$target/cluster/cni"
    (cd "$target/cluster/cni" && apt-get -qq -o APT::Sandbox::User=root download containernetworking-plugins &&
        dpkg -x containernetworking-plugins_*.deb .) ||
        fail "no network plugins (put bridge, host-local and loopback into $kube/cni)"
fi
for path in "$engine/containerd" "$engine/ctr" "$tools/kubectl" "$target/kube-tools/helm" "$target/containers/made" \
    "$target/debug/gpuslice-dra" "$target/debug/gpuslice-node" "$target/release/gpuslice-hook" "$target/sim/gpuslice-sim"; do
    [ -e "$path" ] || fail "$path is missing: run make cluster"
done

logs=$target/cluster/logs
rm -rf "$logs"
mkdir -p "$logs"
group=gpuslice-cluster-$$
# The machine's cgroups outlive its processes.
trap 'for top in /sys/fs/cgroup /sys/fs/cgroup/*; do
    [ ! -d "$top/$group" ] || find "$top/$group" -depth -type d -exec rmdir {} + 2>/dev/null
done || true' EXIT
unshare --mount --propagation private --pid --fork --mount-proc --kill-child --net --uts --ipc \
    env -i HOME=/root TERM="${TERM:-dumb}" PYTHON="$(python3 -c 'import sys; print(sys.executable)')" \
    CLUSTER_PATIENCE="${CLUSTER_PATIENCE:-}" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    tests/cluster/machine.sh "$PWD" "$target" "$logs" "$group" "$kube" "$engine" "$tools" "$cni" "$@"
