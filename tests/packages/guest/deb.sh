# The deb in a root without systemd: install, gpuslice check, remove, purge.
. /packages/tests/guest/common.sh
snapshot >/tmp/before
dpkg -i /packages/built/gpuslice_*_amd64.deb /packages/built/gpuslice-sim_*_amd64.deb >/tmp/said 2>&1 || fail "$(cat /tmp/said)"
consistent gpuslice
gpuslice-hook --version >/dev/null || fail "the hook does not start"
dpkg -P gpuslice-sim gpuslice >/tmp/said 2>&1 || fail "$(cat /tmp/said)"
# What dpkg keeps of any package that has units or a configuration.
leaves_nothing /tmp/before
echo "deb on $(. /etc/os-release && echo "$PRETTY_NAME"), glibc $(ldd --version | sed -n '1s/.* //p'): ok"
