//! Attacks on a slice by root inside its container, with the capabilities that engines give. All
//! fail.

use gpuslice_containers::bundle::Oci;
use gpuslice_containers::engine::Engine;
use gpuslice_containers::host::Host;
use gpuslice_containers::patience;
use gpuslice_containers::podman::Podman;
use gpuslice_containers::ready::ready;
use gpuslice_containers::slice::{GIB, assert_sliced};
use gpuslice_containers::spec::Spec;

/// Each line of shell must fail. Because of CVE-2019-5736, writes are tried under every name of a
/// file.
const ATTACKS: &[&str] = &[
    "rm -f /.gpuslice/slice.json",
    "rm -rf /.gpuslice/ledger",
    "rmdir /.gpuslice",
    "mv /.gpuslice /gone",
    "mv /.gpuslice/slice.json /.gpuslice/other",
    "mv /tmp /.gpuslice",
    "echo '{\"version\":1}' > /.gpuslice/slice.json",
    "echo x >> /.gpuslice/libgpuslice.so",
    "echo x >> /proc/self/root/.gpuslice/slice.json",
    "chmod 777 /.gpuslice/slice.json",
    "chown 1 /.gpuslice/libgpuslice.so",
    "touch /.gpuslice/new",
    "ln -sf /tmp/x /.gpuslice/slice.json",
    "busybox umount /.gpuslice",
    "busybox umount -l /.gpuslice",
    "busybox umount -l /.gpuslice/ledger",
    "busybox mount -t tmpfs none /.gpuslice",
    "busybox mount --bind /tmp /.gpuslice",
    "busybox mount -o remount,rw /.gpuslice",
    "busybox unshare -m true",
    "rm -f /etc/ld.so.preload",
    "mv /etc/ld.so.preload /etc/gone",
    "echo > /etc/ld.so.preload",
    "echo /tmp/x.so > /tmp/x && mv /tmp/x /etc/ld.so.preload",
    "ln -sf /tmp/x /etc/ld.so.preload",
    "busybox umount /etc/ld.so.preload",
    "busybox mount --bind /tmp/x /etc/ld.so.preload",
    // An overlay refuses it. LIMITS.md names the file systems that do not.
    "mv /etc /etc.gone",
    "busybox mknod /.gpuslice/x b 8 0",
    "truncate -s 0 /.gpuslice/meminfo",
    "rm -f /.gpuslice/meminfo",
    "touch /.gpuslice/promises/mine",
];

fn withstands(engine: &mut dyn Engine) {
    let id = engine.start(&Spec::new("root").memory("2GiB"));
    let id = id.unwrap_or_else(|done| panic!("{}: {done:?}", engine.name()));
    for attack in ATTACKS {
        let done = engine.exec(&id, &["bash", "-c", attack]);
        assert_ne!(done.code, 0, "{}: {attack} succeeded", engine.name());
        assert_ne!(
            done.code,
            127,
            "{}: {attack} was not tried: {done:?}",
            engine.name()
        );
    }
    assert_sliced(engine, &id, 2 * GIB);
    engine.remove(&id);
}

#[test]
fn container_root_cannot_remove_rename_cover_or_rewrite_its_slice() {
    if ready() {
        let host = Host::new();
        for stage in ["createRuntime", "createContainer"] {
            withstands(&mut Oci::new(&host, "runc", stage));
            withstands(&mut Oci::new(&host, "crun", stage));
        }
        withstands(&mut Podman::new(&host, "crun", "createRuntime"));
    }
}

/// Every user of the container counts in the ledger, and no user can fill the host's memory through
/// it.
#[test]
fn the_ledger_is_for_every_user_and_has_a_size() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let mut oci = Oci::new(&host, "runc", "createRuntime");
    let id = oci
        .start(&Spec::new("ledger").memory("2GiB"))
        .expect("it starts");
    let mounts = oci.exec(&id, &["cat", "/proc/mounts"]).ok();
    let line = mounts
        .lines()
        .find(|line| line.contains(" /.gpuslice/ledger"));
    let line = line.unwrap_or_else(|| panic!("no ledger: {mounts}"));
    for option in ["rw", "noexec", "nosuid", "nodev"] {
        assert!(line.contains(option), "{line}");
    }
    let mut arguments = host.command("runc");
    arguments.args(["exec", "--user", "1000:1000", &id, "sh", "-c"]);
    arguments.arg("exec 3<>/.gpuslice/ledger/ledger && echo open");
    let done = gpuslice_containers::host::Done::from(&patience::output(&mut arguments));
    assert_eq!(done.ok(), "open\n");
    // A write beyond the ledger's size reaches the end of its file system.
    let script = "head -c 100000000 /dev/zero >> /.gpuslice/ledger/ledger; stat -c %s /.gpuslice/ledger/ledger";
    let filled = oci.exec(&id, &["sh", "-c", script]);
    let size: u64 = filled.out.trim().parse().expect("its size");
    assert!(size <= 168 << 10, "{size} bytes of the host's memory");
    oci.remove(&id);
}
