# Functions that the tests of all packages share. The tests source this file in a clean root.
set -eu

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# is WHAT EXPECTED GOT
is() { [ "$2" = "$3" ] || fail "$1: expected $2, got $3"; }

# Lists every file that is not a record of the package manager.
snapshot() {
    find / -xdev \( -path /proc -o -path /packages -o -path /tmp -o -path /var/lib/dpkg -o -path /var/lib/rpm -o -path /usr/lib/sysimage \
        -o -path /var/log -o -path /var/cache -o -path /root \) -prune -o -print | LC_ALL=C sort
    find /run -xdev | LC_ALL=C sort
}

# leaves_nothing BEFORE [FILE...]: only these files may be new since the snapshot BEFORE
leaves_nothing() {
    before=$1
    shift
    snapshot >/tmp/after
    left=$(diff "$before" /tmp/after | grep '^[<>]' || true)
    for known; do
        left=$(echo "$left" | grep -vxF "> $known" || true)
    done
    [ -z "$left" ] || fail "the removal left, or took: $left"
}

# consistent COMMAND...: runs gpuslice check in a slice of a simulated card
consistent() {
    said=$("$@" check --sim rtx3090 --memory 8GiB 2>&1) || fail "check: $said"
    case $said in
    *"CONSISTENT: "*) ;;
    *) fail "check: $said" ;;
    esac
}
