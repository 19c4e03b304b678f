#!/usr/bin/env bash
# Real engines load the container image, run its hook, and copy its files.
# Usage: tests/packages/image.sh FOLDER VERSION
# Touches: namespaces of its own; images lie in memory.
set -euo pipefail
file=$(realpath "${1:?usage: tests/packages/image.sh FOLDER VERSION}/gpuslice-$2-oci-x86_64.tar")
exec unshare --mount --pid --fork --mount-proc --kill-child bash -euo pipefail -c '
    file=$1 version=$2
    fail() { echo "FAILED: $*" >&2; exit 1; }
    mount --make-rprivate /
    mount -t tmpfs -o mode=755 none /run
    for folder in containers docker containerd; do mkdir -p /var/lib/$folder; mount -t tmpfs none /var/lib/$folder; done
    # crun and runc refuse two versions of cgroups at once.
    if mountpoint -q /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi
    printf "[containers]\ndefault_ulimits = []\nnetns = \"none\"\n[engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\nruntime = \"runc\"\n" >/run/containers.conf
    export CONTAINERS_CONF=/run/containers.conf
    size=$(stat -c %s "$file")
    [ "$size" -le $((15 << 20)) ] || fail "the image has $size bytes, more than 15 MiB"
    tested=
    wait_for() { for try in $(seq 100); do "$@" >/dev/null 2>&1 && return; sleep 0.2; done; fail "no answer: $*"; }

    if command -v podman >/dev/null; then
        podman --storage-driver vfs load -q -i "$file" >/run/said 2>&1 || fail "podman: $(cat /run/said)"
        said=$(podman --storage-driver vfs run --rm "docker.io/library/gpuslice:$version" 2>&1) || fail "podman: $said"
        [ "$said" = "gpuslice-hook $version" ] || fail "podman: $said"
        # Another image copies the files in this way: COPY --from=gpuslice /usr /usr
        podman --storage-driver vfs create -q --name files "docker.io/library/gpuslice:$version" >/dev/null
        podman --storage-driver vfs cp files:/usr/lib/gpuslice/libgpuslice.so /run/copy.so
        [ -s /run/copy.so ] || fail "podman: there is no library in the image"
        said=$(podman --storage-driver vfs run --rm --entrypoint /usr/bin/gpuslice-dra "docker.io/library/gpuslice:$version" --version 2>&1) || fail "podman: $said"
        [ "$said" = "gpuslice-dra $version" ] || fail "podman: $said"
        # A pod of the Helm chart installs the files on its node.
        mkdir /run/node
        said=$(podman --storage-driver vfs run --rm -v /run/node:/opt/gpuslice \
            --entrypoint /usr/bin/gpuslice-node "docker.io/library/gpuslice:$version" install /opt/gpuslice 2>&1) || fail "podman: $said"
        [ "$(/run/node/bin/gpuslice-hook --version)" = "gpuslice-hook $version" ] || fail "podman: $said"
        tested="$tested podman"
    fi
    if command -v containerd >/dev/null; then
        printf "version = 2\nroot = \"/var/lib/containerd\"\nstate = \"/run/containerd\"\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n[grpc]\naddress = \"/run/ctr.sock\"\n" >/run/containerd.toml
        containerd -c /run/containerd.toml -l error >/run/containerd.log 2>&1 &
        export CONTAINERD_ADDRESS=/run/ctr.sock
        wait_for ctr version
        ctr image import --snapshotter native "$file" >/run/said 2>&1 || fail "containerd: $(cat /run/said)"
        said=$(ctr run --snapshotter native --rm "docker.io/library/gpuslice:$version" test 2>&1) || fail "containerd: $said"
        [ "$said" = "gpuslice-hook $version" ] || fail "containerd: $said"
        tested="$tested containerd"
    fi
    if command -v dockerd >/dev/null; then
        dockerd --host unix:///run/docker.sock --bridge none --iptables=false --storage-driver vfs --exec-root /run/docker-state \
            ${CONTAINERD_ADDRESS:+--containerd "$CONTAINERD_ADDRESS"} --pidfile /run/docker.pid --log-level error >/run/dockerd.log 2>&1 &
        export DOCKER_HOST=unix:///run/docker.sock
        wait_for docker version
        docker load -q -i "$file" >/run/said 2>&1 || fail "docker: $(cat /run/said)"
        said=$(docker run --rm --network none "gpuslice:$version" 2>&1) || fail "docker: $said"
        [ "$said" = "gpuslice-hook $version" ] || fail "docker: $said"
        tested="$tested docker"
    fi
    [ -n "$tested" ] || fail "there is no container engine here"
    echo "image, loaded and started by$tested: ok"
' image.sh "$file" "$2"
