#!/bin/sh
# Installs gpuslice from this folder: ./install.sh [--prefix DIR] [--uninstall]
# The prefix is /usr/local for root and ~/.local for other users. Slices of containers need root.
# No container engine is configured or restarted. DESTDIR installs into a root that is not running.
# The simulated driver is an archive of its own: unpacked in the same place, it is installed too.
set -eu
umask 022
here=$(cd "$(dirname "$0")" && pwd)

usage() {
    sed -n '2,5s/^# //p' "$0"
    exit "$1"
}
fail() {
    echo "install.sh: $*" >&2
    exit 1
}

if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=$HOME/.local; fi
action=install
while [ $# -gt 0 ]; do
    case $1 in
    --prefix) [ $# -gt 1 ] || usage 2 >&2; prefix=$2; shift ;;
    --prefix=*) prefix=${1#*=} ;;
    --uninstall) action=uninstall ;;
    -h | --help) usage 0 ;;
    *) usage 2 >&2 ;;
    esac
    shift
done
case $prefix in
/*) ;;
*) fail "the prefix must be absolute: $prefix" ;;
esac
case $prefix in
*[!A-Za-z0-9_./+@-]*) fail "LD_PRELOAD and systemd cannot name a folder like this one: $prefix" ;;
esac
while [ "$prefix" != "${prefix%/}" ]; do prefix=${prefix%/}; done
root=${DESTDIR:-}
list=$root$prefix/lib/gpuslice/installed

remove() { # LIST: removes the files that it names, and folders that are then empty
    while IFS= read -r name; do
        rm -f "$root$name"
        folder=${name%/*}
        # Only gpuslice's own folders are removed, not those that other programs share.
        while :; do
            case $folder in
            *gpuslice* | */examples) rmdir "$root$folder" 2>/dev/null || break ;;
            *) break ;;
            esac
            folder=${folder%/*}
        done
    done <"$1"
}

own_unit() { # the file of gpuslice's unit that systemd uses
    for folder in /etc/systemd/system /usr/local/lib/systemd/system /usr/lib/systemd/system; do
        if [ -e "$folder/gpuslice-gc.service" ]; then break; fi
    done
    echo "$folder/gpuslice-gc.service"
}

leave() { # stops gpuslice's own units, and names what still uses it
    for file in /etc/docker/daemon.json /etc/containerd/*.toml /etc/containerd/*.json \
        /etc/containerd/conf.d/*.toml /etc/crio/crio.conf /etc/crio/crio.conf.d/* \
        /etc/containers/containers.conf /etc/containers/containers.conf.d/* \
        /etc/containers/oci/hooks.d/*.json /etc/nvidia-container-runtime/config.toml \
        /etc/cdi/* /run/cdi/* /etc/k0s/*.toml /etc/k0s/*.json /etc/k0s/containerd.d/* \
        /var/lib/rancher/*/agent/etc/containerd/*.toml* \
        /var/lib/rancher/*/agent/etc/containerd/*.json \
        /var/snap/microk8s/current/args/*.toml /var/snap/microk8s/current/args/*.json; do
        if [ -f "$file" ] && grep -q "$prefix/bin/gpuslice" "$file"; then
            echo "gpuslice: $file still names gpuslice. Its engine will fail to start containers:" >&2
            echo "gpuslice: remove the lines that name it (after a reinstallation: gpuslice runtime configure --runtime ENGINE --remove)" >&2
        fi
    done
    for record in /run/gpuslice/slices/*.json /run/gpuslice/tenants/run.*; do
        if [ -f "$record" ]; then
            echo "gpuslice: slices are running. Programs that they start from now on have no limit" >&2
            break
        fi
    done
    if [ -d /run/systemd/system ] && grep -q "$prefix/bin/gpuslice" "$(own_unit)" 2>/dev/null; then
        for unit in gpuslice-gc.timer gpuslice-devices.service gpusliced.service gpuslice-guard.service; do
            systemctl disable --now "$unit" >/dev/null 2>&1 || true
        done
    fi
}

if [ "$action" = uninstall ]; then
    [ -f "$list" ] || fail "nothing is installed in $prefix by install.sh ($list is missing)"
    if [ "$(id -u)" = 0 ] && [ -z "$root" ]; then leave; fi
    names=$(mktemp)
    cp "$list" "$names"
    rm -f "$list"
    remove "$names"
    rm -f "$names"
    rmdir "$root$prefix/lib/gpuslice" 2>/dev/null || true
    if [ "$(id -u)" = 0 ] && [ -z "$root" ] && [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
    [ ! -e "$root/etc/gpuslice" ] || echo "/etc/gpuslice is left; remove it if it is of no use any more"
    exit 0
fi

machine=$(uname -m)
[ -n "$root" ] || [ "$machine" = "$(cat "$here/architecture")" ] ||
    fail "this is the archive for $(cat "$here/architecture"), and the machine is $machine"

# Units, /etc and hooks are only for root. Other users get the command and the library.
is_for_root() {
    case $1 in
    /etc/* | */systemd/* | */tmpfiles.d/* | */hooks.d/* | */gpuslice-hook | */gpuslice-runtime | */gpusliced | */man8/* | */gpusliced.1) ;;
    *) return 1 ;;
    esac
}

is_of_another() { # NAME: whether another installation has this unit, or these rules for temporary files
    etc=/etc/${1#/usr/lib/}
    if grep -qxF "$etc" "$list" 2>/dev/null; then return 1; fi
    [ -e "$root$1" ] || [ -e "$root/usr/local${1#/usr}" ] || { [ -e "$root$etc" ] && ! grep -qxF "$etc" "$names"; }
}

names=$(mktemp)
trap 'rm -f "$names"' EXIT
put() { # NAME: installs a file of the archive, by renaming, because it may be running
    from=$here/files$1
    case $1 in
    /etc/*) to=$1 ;;
    *) to=$prefix${1#/usr} ;;
    esac
    # systemd reads units and rules for temporary files only below /usr, /usr/local and /etc.
    case $prefix,$1 in
    /usr,* | /usr/local,*) ;;
    *,/usr/lib/systemd/system/* | *,/usr/lib/tmpfiles.d/*)
        is_of_another "$1" || to=/etc/${1#/usr/lib/}
        ;;
    esac
    if is_for_root "$1" && [ "$(id -u)" != 0 ] && [ -z "$root" ]; then return; fi
    mkdir -p "$root${to%/*}"
    if [ "$1" = /etc/gpuslice/config.toml ]; then
        # The administrator may have changed it, so an existing file stays.
        [ ! -e "$root$to" ] || return 0
    else
        echo "$to" >>"$names"
    fi
    new=$root$to.gpuslice-new
    if [ -L "$from" ]; then
        rm -f "$new"
        ln -s "$(readlink "$from")" "$new"
    else
        case $1 in
        *.service | *.json | *.toml | *.timer | *.yaml | *.container)
            sed -e "s,/usr/bin/gpuslice,$prefix/bin/gpuslice,g" -e "s,/usr/lib/gpuslice,$prefix/lib/gpuslice,g" "$from" >"$new"
            # The policy names both, also for a hook that is copied elsewhere.
            [ "$1" != /etc/gpuslice/config.toml ] || [ "$prefix" = /usr ] || {
                sed -e 's/^#\(library\|command\) = /\1 = /' "$new" >"$new.2"
                mv "$new.2" "$new"
            }
            ;;
        *) cp "$from" "$new" ;;
        esac
        if [ -x "$from" ]; then chmod 755 "$new"; else chmod 644 "$new"; fi
    fi
    mv -f "$new" "$root$to"
}

for names_of in "$here/names" "$here/names-sim"; do
    [ -f "$names_of" ] || continue
    while IFS= read -r name; do put "$name"; done <"$names_of"
done
# Removes the files that an older version installed and this version does not have.
if [ -f "$list" ]; then
    old=$(mktemp)
    grep -vxFf "$names" "$list" >"$old" || true
    remove "$old"
    rm -f "$old"
fi
cp "$names" "$list"
chmod 644 "$list"

echo "gpuslice is installed in $prefix"
case :$PATH: in
*":$prefix/bin:"*) ;;
*) echo "$prefix/bin is not in PATH" ;;
esac
if [ "$(id -u)" = 0 ] && [ -z "$root" ]; then
    if command -v systemd-tmpfiles >/dev/null 2>&1; then systemd-tmpfiles --create gpuslice.conf 2>/dev/null || true; fi
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload || true
        unit=$(own_unit)
        grep -q "$prefix/bin/gpuslice" "$unit" 2>/dev/null ||
            echo "systemd uses $unit, which is another installation's"
        echo "for containers: systemctl enable --now gpuslice-devices.service gpuslice-gc.timer, then $prefix/bin/gpuslice runtime configure --runtime ENGINE"
    fi
fi
