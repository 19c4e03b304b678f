#!/usr/bin/env bash
# Old C libraries, as Debian and Ubuntu published them, and the simulated driver linked for them.
# Usage: tests/userlands/setup.sh NAME...    (xenial bionic focal bullseye)
# Touches: target/userlands: packages, roots, a build of the simulated driver. Quick when all is there.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${TARGET:-target}
mkdir -p "$target/userlands/packages"
here=$(cd "$target/userlands" && pwd)

# The oldest root has the headers: what is linked against it loads everywhere.
OLDEST=xenial
ubuntu=http://archive.ubuntu.com/ubuntu/pool/main
debian=http://deb.debian.org/debian/pool/main

packages_of() { # NAME: SHA-256 and address of each package
    case $1 in
    xenial) # glibc 2.23
        cat <<LIST
68d69a0fb2dae7578a2a7054bc0cd5f0994d523f60d540bc6708ff3f2fb33e18 $ubuntu/g/glibc/libc6_2.23-0ubuntu3_amd64.deb
16e68695491fa070e06112fa5647732bb83164c2c3c5732774c1472fcdd79ce2 $ubuntu/g/glibc/libc6-dev_2.23-0ubuntu3_amd64.deb
6e374d7b6ee1ffbcff568705b7f9ec7b9befbfcf17e683a21ef6480dc9d0cfe0 $ubuntu/g/gccgo-6/libgcc1_6.0.1-0ubuntu1_amd64.deb
b79bb61ae018a452185253073301f3a8a8945aca329a29938068e05560089347 $ubuntu/l/linux/linux-libc-dev_4.4.0-21.37_amd64.deb
LIST
        ;;
    bionic) # glibc 2.27
        cat <<LIST
1e1eb86fd646aa68f7144ec692b837b6b352d215880c6a2d0c92c19d36938427 $ubuntu/g/glibc/libc6_2.27-3ubuntu1_amd64.deb
c5a6df527fdfe0da45ff0538414535a04a6753e93a9f5902689cf1a73265423b $ubuntu/g/gcc-8/libgcc1_8-20180414-1ubuntu2_amd64.deb
LIST
        ;;
    focal) # glibc 2.31
        cat <<LIST
847a68e5f1ec2cd4e6fc191c5eaf0547445dd5c473c7617c068ba4441f63b292 $ubuntu/g/glibc/libc6_2.31-0ubuntu9_amd64.deb
fb69f47490d22988ad8a1b3c19d5292e1ccdbd30661eedcd680f9a78b9b55d60 $ubuntu/g/gcc-10/libgcc-s1_10-20200411-0ubuntu1_amd64.deb
LIST
        ;;
    bullseye) # glibc 2.31, with Debian's patches
        cat <<LIST
05f7264da867b37f4c5ce49266b558ea1e81e05a9464f623152fca70f3550282 $debian/g/glibc/libc6_2.31-13+deb11u11_amd64.deb
e478f2709d8474165bb664de42e16950c391f30eaa55bc9b3573281d83a29daf $debian/g/gcc-10/libgcc-s1_10.2.1-6_amd64.deb
LIST
        ;;
    *)
        echo "gpuslice: no userland is called $1 (try xenial, bionic, focal, bullseye)" >&2
        exit 2
        ;;
    esac
}

fetch() { # SHA256 ADDRESS: prints the path of the package
    local sum=$1 from=$2 file
    file=$here/packages/${from##*/}
    if ! [ -e "$file" ]; then
        # A release that left the mirrors moves to the archive.
        curl -fsSL --retry 3 --max-time 120 -o "$file.part" "$from" ||
            curl -fsSL --retry 3 --max-time 120 -o "$file.part" "${from/deb.debian.org/archive.debian.org}" || {
            echo "gpuslice: $from cannot be downloaded: the tests of old C libraries need it" >&2
            exit 1
        }
        echo "$sum  $file.part" | sha256sum --check --quiet >&2 || {
            echo "gpuslice: $from is not the package that this script names" >&2
            exit 1
        }
        mv "$file.part" "$file"
    fi
    echo "$file"
}

root() { # NAME
    local name=$1 sum from file
    [ -d "$here/$name" ] && return
    rm -rf "$here/$name.part"
    mkdir -p "$here/$name.part"
    while read -r sum from; do
        file=$(fetch "$sum" "$from")
        dpkg-deb -x "$file" "$here/$name.part"
    done < <(packages_of "$name")
    # The linker would follow an absolute link out of the root.
    find "$here/$name.part/usr/lib" -type l -lname '/*' | while read -r link; do
        ln -sfn "../../..$(readlink "$link")" "$link"
    done
    mv "$here/$name.part" "$here/$name"
}

for command in curl dpkg-deb sha256sum; do
    command -v $command >/dev/null || {
        echo "gpuslice: $command is missing: the tests of old C libraries need it" >&2
        exit 1
    }
done
packages_of "${1:?usage: tests/userlands/setup.sh NAME...}" >/dev/null
for name in $OLDEST "$@"; do
    root "$name"
done

# The simulated driver and the clients, linked against the oldest root. A symbol that it lacks stops the linker.
# gcc looks for libraries beside itself before it looks below --sysroot: so each folder is named.
root=$here/$OLDEST
words="--sysroot=$root -B$root/usr/lib/x86_64-linux-gnu -L$root/usr/lib/x86_64-linux-gnu -L$root/lib/x86_64-linux-gnu"
triple=x86_64-unknown-linux-gnu
RUSTFLAGS="$(printf -- '-C link-arg=%s ' $words -Wl,-z,defs)" CARGO_TARGET_DIR=$here/build \
    "${CARGO:-cargo}" build --quiet --locked --release --target $triple -p gpuslice-sim-cuda -p gpuslice-sim-nvml
sim=$here/sim
mkdir -p "$sim"
put() { # FROM TO: only what changed, by renaming
    cmp -s "$1" "$2" || { cp "$1" "$2.part" && mv "$2.part" "$2"; }
}
put "$here/build/$triple/release/libgpuslice_sim_cuda.so" "$sim/libcuda.so.1"
put "$here/build/$triple/release/libgpuslice_sim_nvml.so" "$sim/libnvidia-ml.so.1"
