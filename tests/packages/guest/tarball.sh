# Tests the unpacked archive: installed by root, and by a user into ~/.local.
. /packages/tests/guest/common.sh
mkdir -p /tmp/archive /home/ann
tar -xzf "$(echo /packages/built/gpuslice-[0-9]*-linux-x86_64.tar.gz)" -C /tmp/archive
tar -xzf "$(echo /packages/built/gpuslice-sim-*-linux-x86_64.tar.gz)" -C /tmp/archive
cd /tmp/archive/gpuslice-*
chmod 755 /tmp/archive
# Lists files, and folders of gpuslice. Folders that other programs share may stay.
files() { snapshot | while read -r path; do case $path in *gpuslice*) echo "$path" ;; *) [ -d "$path" ] || echo "$path" ;; esac; done; }
files >/tmp/before

# The second installation is an update.
./install.sh >/tmp/said 2>&1 || fail "$(cat /tmp/said)"
./install.sh >/tmp/said 2>&1 || fail "$(cat /tmp/said)"
consistent gpuslice
grep -q 'ExecStart=/usr/local/bin/gpuslice gc' /usr/local/lib/systemd/system/gpuslice-gc.service || fail "the unit names another prefix"
grep -q '^library = "/usr/local/lib/gpuslice/libgpuslice.so"' /etc/gpuslice/config.toml || fail "the policy names no library"
gpuslice-hook --version >/dev/null || fail "the hook does not start"
./install.sh --uninstall >/tmp/said || fail "$(cat /tmp/said)"
grep -q '/etc/gpuslice is left' /tmp/said || fail "no word of /etc/gpuslice"
rm -r /etc/gpuslice
rm -rf /run/gpuslice # until the next boot
left=$(files | diff /tmp/before - | grep '^>' || true)
[ -z "$left" ] || fail "the removal left: $left"

# systemd reads no unit below another prefix.
./install.sh --prefix /opt/one >/tmp/said 2>&1 || fail "$(cat /tmp/said)"
grep -q 'ExecStart=/opt/one/bin/gpuslice gc' /etc/systemd/system/gpuslice-gc.service || fail "systemd finds no unit"
[ -e /etc/tmpfiles.d/gpuslice.conf ] || fail "systemd finds no rules for temporary files"
./install.sh --prefix /opt/two >/tmp/said 2>&1 || fail "$(cat /tmp/said)"
./install.sh --prefix /opt/two --uninstall >/tmp/said || fail "$(cat /tmp/said)"
./install.sh --prefix /opt/one >/tmp/said 2>&1 || fail "$(cat /tmp/said)"
grep -q 'ExecStart=/opt/one/bin/gpuslice gc' /etc/systemd/system/gpuslice-gc.service || fail "another installation changed the unit"
./install.sh --prefix /opt/one --uninstall >/tmp/said || fail "$(cat /tmp/said)"
rm -rf /etc/gpuslice /run/gpuslice
left=$(files | diff /tmp/before - | grep '^>' || true)
[ -z "$left" ] || fail "the removal from other prefixes left: $left"

chown 1000:1000 /home/ann
if command -v setpriv >/dev/null; then
    user() { setpriv --reuid=1000 --regid=1000 --clear-groups env HOME=/home/ann "$@"; }
    user ./install.sh >/tmp/said 2>&1 || fail "$(cat /tmp/said)"
    consistent user /home/ann/.local/bin/gpuslice
    [ ! -e /home/ann/.local/lib/systemd ] && [ ! -e /etc/gpuslice ] || fail "a user's installation has root's files"
    user ./install.sh --uninstall >/tmp/said || fail "$(cat /tmp/said)"
    left=$(find /home/ann -name '*gpuslice*')
    [ -z "$left" ] || fail "the removal left $left"
fi
echo "tarball on $(. /etc/os-release && echo "$PRETTY_NAME"), glibc $(ldd --version | sed -n '1s/.* //p'): ok"
