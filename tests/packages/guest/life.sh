# Tests a deb or an rpm with a running slice: install, upgrade, downgrade, remove, purge.
# Usage: life.sh deb | rpm
. /packages/tests/guest/common.sh
kind=$1

case $kind in
deb)
    put() { dpkg --force-confold -i "$1"/gpuslice_*_amd64.deb "$1"/gpuslice-sim_*_amd64.deb >/tmp/said 2>&1 || fail "$(cat /tmp/said)"; }
    downgrade() { put "$@"; }
    take() { dpkg -r gpuslice-sim gpuslice >/tmp/said 2>&1 || fail "$(cat /tmp/said)"; }
    purge() { dpkg -P gpuslice-sim gpuslice >/tmp/said 2>&1 || fail "$(cat /tmp/said)"; }
    version() { dpkg-query -W -f '${Version}' gpuslice; }
    ;;
rpm)
    # The root is Debian's, so rpm knows of no libc. Package scripts get a PATH of rpm's.
    rpm() { command rpm --define '_install_script_path /usr/local/bin:/usr/sbin:/usr/bin' "$@"; }
    put() { rpm -U --nodeps "$1"/gpuslice-[0-9]*.x86_64.rpm "$1"/gpuslice-sim-*.x86_64.rpm >/tmp/said 2>&1 || fail "$(cat /tmp/said)"; }
    downgrade() { rpm -U --nodeps --oldpackage "$1"/gpuslice-[0-9]*.x86_64.rpm "$1"/gpuslice-sim-*.x86_64.rpm >/tmp/said 2>&1 || fail "$(cat /tmp/said)"; }
    take() { rpm -e gpuslice-sim gpuslice >/tmp/said 2>&1 || fail "$(cat /tmp/said)"; }
    purge() { rm -f /etc/gpuslice/config.toml.rpmsave; rmdir /etc/gpuslice; }
    version() { rpm -q --qf '%{VERSION}' gpuslice; }
    ;;
esac

# A host with engines, and a systemctl that records its calls. It changes links but starts nothing.
mkdir -p /etc/docker /etc/containerd /run/systemd/system
echo '{"log-level": "warn"}' >/etc/docker/daemon.json
echo 'version = 2' >/etc/containerd/config.toml
cat >/usr/local/bin/systemctl <<'STUB'
#!/bin/sh
echo "$*" >>/tmp/systemctl
case "$*" in
*--root=* | *is-enabled* | *preset* | *disable*) exec env SYSTEMD_OFFLINE=1 /usr/bin/systemctl "$@" ;;
esac
STUB
chmod 755 /usr/local/bin/systemctl
: >/tmp/systemctl
engines=$(cat /etc/docker/daemon.json /etc/containerd/config.toml | cksum)
# The first package with units makes deb-systemd-helper and rpm create these folders.
mkdir -p /etc/systemd/system/multi-user.target.wants /etc/systemd/system/timers.target.wants /var/lib/systemd
snapshot >/tmp/before

put /packages/older
[ "$(stat -c '%a %U' /run/gpuslice)" = "711 root" ] || fail "/run/gpuslice is $(stat -c '%a %U' /run/gpuslice)"
consistent gpuslice
for unit in gpuslice-devices.service gpuslice-gc.service gpuslice-gc.timer gpusliced.service gpuslice@.service; do
    [ -f /usr/lib/systemd/system/$unit ] || fail "no $unit"
done
for page in gpuslice-run.1 gpusliced.1; do [ -f /usr/share/man/man1/$page.gz ] || fail "no page $page"; done
said=$(systemd-analyze verify --man=no /usr/lib/systemd/system/gpuslice*.service /usr/lib/systemd/system/gpuslice*.timer 2>&1) || fail "the units: $said"
[ -z "$said" ] || fail "the units: $said"
rm -f /run/systemd/systemd-units-load # systemd-analyze's own
for page in gpuslice-slices.5 gpuslice-config.5; do [ -f /usr/share/man/man5/$page.gz ] || fail "no page $page"; done
[ -L /etc/systemd/system/multi-user.target.wants/gpuslice-devices.service ] || fail "gpuslice-devices is off"
[ -L /etc/systemd/system/timers.target.wants/gpuslice-gc.timer ] || fail "the timer is off"
[ ! -e /etc/systemd/system/multi-user.target.wants/gpusliced.service ] || fail "gpusliced is on"

mkfifo /tmp/in /tmp/out
gpuslice run --name chat --sim rtx3090 --memory 8GiB -- python3 /packages/tests/guest/hold.py </tmp/in >/tmp/out &
exec 3>/tmp/in 4</tmp/out
read -r line <&4
is "the program starts" ready "$line"
sees() { # WHAT EXPECTED LINE: sends LINE to hold.py, and compares its answer
    echo "$3" >&3
    read -r line <&4
    is "$1" "$2" "$line"
}
shown() { gpuslice status chat | grep -q '1.2[0-9]* GiB' || fail "status: $(gpuslice status chat)"; }
sees "with the older package" "8 8 refused refused" child

echo '# the administrator was here' >>/etc/gpuslice/config.toml
put /packages/built
new=$(version)
sees "after the upgrade" "8 8 refused refused" child
shown
consistent gpuslice
is "gpuslice --version" "gpuslice $new" "$(gpuslice --version)"
grep -q 'administrator was here' /etc/gpuslice/config.toml || fail "the configuration was replaced"

downgrade /packages/older
sees "after the downgrade" "8 8 refused refused" child
shown
put /packages/built
sees "after the second upgrade" "8 8 refused refused" child

# The removal warns that engines and slices still need the package.
echo '{"runtimes": {"gpuslice": {"path": "/usr/bin/gpuslice-runtime"}}}' >/etc/docker/daemon.json
# containerd's configuration names only the base specification, which has the hook.
k3s=/var/lib/rancher/k3s/agent/etc/containerd
mkdir -p $k3s
for folder in /etc/containerd $k3s; do
    echo '{"hooks": {"createRuntime": [{"path": "/usr/bin/gpuslice-hook"}]}}' >$folder/gpuslice-base-spec.json
done
take
for file in /etc/docker/daemon.json /etc/containerd/gpuslice-base-spec.json $k3s/gpuslice-base-spec.json; do
    grep -q "gpuslice: $file still names gpuslice" /tmp/said || fail "no word of $file: $(cat /tmp/said)"
done
! grep -q 'config.toml still names' /tmp/said || fail "a file without gpuslice is named: $(cat /tmp/said)"
rm -r /etc/containerd/gpuslice-base-spec.json /var/lib/rancher
grep -q 'gpuslice: slices are running' /tmp/said || fail "no word of the slice: $(cat /tmp/said)"
echo '{"log-level": "warn"}' >/etc/docker/daemon.json
sees "after the removal" "8 - refused" alone
exec 3>&- 4<&-
wait || true
[ ! -e /usr/bin/gpuslice ] || fail "gpuslice is still there"
for second in 1 2 3 4 5 6 7 8 9 10; do # the run's watcher removes its link
    [ -L "$(echo /run/gpuslice/chat-*)" ] || break
    sleep 1
done
purge
case $kind in
deb) leaves_nothing /tmp/before ;;
# These folders belong to Fedora's package filesystem, or the slice used them when the package was
# removed.
rpm) leaves_nothing /tmp/before /usr/share/fish/vendor_completions.d /usr/share/licenses /usr/share/zsh/site-functions /run/gpuslice ;;
esac

is "the engines' configuration" "$engines" "$(cat /etc/docker/daemon.json /etc/containerd/config.toml | cksum)"
! grep -E 'docker|containerd|crio|podman|kubelet' /tmp/systemctl || fail "an engine was touched"
if grep -v -e gpuslice -e daemon-reload -e '^is-enabled' -e '^--quiet is-enabled' /tmp/systemctl; then fail "other units were touched"; fi
echo "$kind: ok"
