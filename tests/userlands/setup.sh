#!/usr/bin/env bash
# Installs old C libraries, as Debian and Ubuntu published them, and links the simulated driver for
# them.
# Usage: tests/userlands/setup.sh NAME...
# NAME: xenial, bionic, focal, bullseye; with Python 3.8: bionic-python, focal-python.
# Touches: target/userlands (packages, roots, a build of the simulated driver).
# The script is quick when everything is there already.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${TARGET:-target}
mkdir -p "$target/userlands/packages"
here=$(cd "$target/userlands" && pwd)
# Only one copy of this script works at a time, because tests that need a userland run in parallel.
exec 9>"$here/lock"
flock -w 1800 9 || { echo "tests/userlands/setup.sh: another one has run for half an hour" >&2; exit 1; }

# Only the oldest root has headers, because a library that is linked against it loads everywhere.
OLDEST=xenial
ubuntu=http://archive.ubuntu.com/ubuntu/pool/main
universe=http://archive.ubuntu.com/ubuntu/pool/universe
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
    bionic-python) # glibc 2.27, Python 3.8.0, a shell
        packages_of bionic
        cat <<LIST
565631b85c9373f8df30c00765589448c4a5ef5a83117bee37510c4e8531989d $universe/p/python3.8/python3.8-minimal_3.8.0-3ubuntu1~18.04.2_amd64.deb
ebf5a3bf93dd7c8f5e45f4703c0e334bf3a715ebd0523df7d9fcf93ac5a0d0e0 $universe/p/python3.8/libpython3.8-minimal_3.8.0-3ubuntu1~18.04.2_amd64.deb
8832a0a1f4663f76a8e82ba2d32c50eecfc8139415928f2fc69a8f1018f9d275 $universe/p/python3.8/libpython3.8-stdlib_3.8.0-3ubuntu1~18.04.2_amd64.deb
fa26945b0aadfc72ec623c68be9cc59235a7fe42e2388f7015fd131f4fb06dc9 $ubuntu/libf/libffi/libffi6_3.2.1-8_amd64.deb
2e6dafb986ee8ebbc4e1c344fab090a41710cab878fc9cd89336cdd1740518c5 $ubuntu/z/zlib/zlib1g_1.2.11.dfsg-0ubuntu2_amd64.deb
202db01e1b4204b6e34e44b4f4a6ba6b3928089c2fa728db86e13cd4b8548191 $ubuntu/e/expat/libexpat1_2.2.5-3_amd64.deb
51fe28b98b8e023325ae8868f29807cdb53f6f2eac943723b5e6bd47cde0cb2c $ubuntu/d/dash/dash_0.5.8-2.10_amd64.deb
8658198b6e5df429446bfdfa128b86ad25948420188ade12bf673bfb88dbfdce $ubuntu/b/busybox/busybox-static_1.27.2-2ubuntu3_amd64.deb
LIST
        ;;
    focal-python) # glibc 2.31, Python 3.8.2, a shell
        packages_of focal
        cat <<LIST
b3f1fe647f9af294a184449845ea7f9b5f144c7e9fbfc8b7daf77288af86f131 $ubuntu/p/python3.8/python3.8-minimal_3.8.2-1ubuntu1_amd64.deb
70686b82fdbc4dd1514c30bdff299ab6bc4f6e4a3a0d3f50c324d64720d25378 $ubuntu/p/python3.8/libpython3.8-minimal_3.8.2-1ubuntu1_amd64.deb
6e455e429ee3dec44cf1440ea91c9cde4c03cf5e4a06e54b0d5b5d8b95b7de03 $ubuntu/p/python3.8/libpython3.8-stdlib_3.8.2-1ubuntu1_amd64.deb
4584aa8fef1bf5086168ce2f7078cd2ebd78fdc4cc0d86d958d795d4e0b0f50d $ubuntu/libf/libffi/libffi7_3.3-4_amd64.deb
dbfea100d99ffe17fcb94f62b396c0b27c15aa46e875556126c4f769dc77f1f1 $ubuntu/z/zlib/zlib1g_1.2.11.dfsg-2ubuntu1_amd64.deb
342720dc6e3c55dee5b863a86dc2090d8c716f5c5116ab55066a5eb0433bd6c1 $ubuntu/e/expat/libexpat1_2.2.9-1build1_amd64.deb
12607b28478fb815952f47c53394b57405244e675ff3220a982a0b8c7d826b0c $ubuntu/d/dash/dash_0.5.10.2-6_amd64.deb
9d3f3287853ac1c26af7ac1cf2b9bc81e71b3a01e998c7f18a83c9b61de5d714 $ubuntu/b/busybox/busybox-static_1.30.1-4ubuntu6_amd64.deb
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

# Links the simulated driver against the oldest root. The linker fails at a symbol that the root
# lacks. gcc searches the folders beside itself before those below --sysroot, so each folder is
# named.
root=$here/$OLDEST
words="--sysroot=$root -B$root/usr/lib/x86_64-linux-gnu -L$root/usr/lib/x86_64-linux-gnu -L$root/lib/x86_64-linux-gnu"
triple=x86_64-unknown-linux-gnu
RUSTFLAGS="$(printf -- '-C link-arg=%s ' $words -Wl,-z,defs)" CARGO_TARGET_DIR=$here/build \
    "${CARGO:-cargo}" build --quiet --locked --release --target $triple -p gpuslice-sim-cuda -p gpuslice-sim-nvml
sim=$here/sim
mkdir -p "$sim"
put() { # FROM TO: replaces TO by renaming, if FROM differs
    cmp -s "$1" "$2" || { cp "$1" "$2.part" && mv "$2.part" "$2"; }
}
put "$here/build/$triple/release/libgpuslice_sim_cuda.so" "$sim/libcuda.so.1"
put "$here/build/$triple/release/libgpuslice_sim_nvml.so" "$sim/libnvidia-ml.so.1"
