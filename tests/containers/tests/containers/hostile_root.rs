//! Images that attack through their file system. No attack writes to the host or mounts anything on
//! it. The container gets its slice or does not start.

use gpuslice_containers::bundle::Oci;
use gpuslice_containers::engine::Engine;
use gpuslice_containers::host::{Done, Host};
use gpuslice_containers::ready::ready;
use gpuslice_containers::slice::{GIB, assert_nothing_left, assert_sliced};
use gpuslice_containers::spec::Spec;
use serde_json::json;

const STAGES: [&str; 3] = ["prestart", "createRuntime", "createContainer"];

/// The state of the host that an attack could change.
#[derive(Debug, PartialEq)]
struct Untouched {
    files: String,
    run: Vec<String>,
    mounts: Vec<String>,
}

impl Untouched {
    fn of(host: &Host) -> Untouched {
        let mut run = host.list("/run");
        // The runtimes, the tests and we have folders there.
        run.retain(|name| !matches!(name.as_str(), "gpuslice" | "runc" | "crun" | "bundles"));
        let mut mounts = host.mounts();
        mounts.retain(|point| !point.starts_with("/run/bundles/"));
        Untouched {
            files: host.changes(),
            run,
            mounts,
        }
    }
}

/// Starts a container whose root a script has prepared, at every stage of both runtimes.
fn attack(host: &Host, script: &str, judge: impl Fn(&Oci, &str, &Done)) {
    let spec = Spec::new("attacker").memory("2GiB");
    for binary in ["runc", "crun"] {
        for stage in STAGES {
            let mut oci = Oci::new(host, binary, stage);
            oci.prepare(&spec);
            let root = format!("{}/rootfs", Oci::bundle("attacker"));
            host.sh(&format!("cd {root} && {script}")).ok();
            let before = Untouched::of(host);
            let done = oci.run("attacker");
            judge(&oci, &format!("{binary} {stage}: {script}"), &done);
            oci.remove("attacker");
            assert_eq!(Untouched::of(host), before, "{binary} {stage}: {script}");
            assert_nothing_left(host);
        }
    }
}

/// Asserts that the container did not start, and that the message names gpuslice if the runtime
/// passes it on.
fn refused(oci: &Oci, case: &str, done: &Done) {
    assert_ne!(done.code, 0, "{case} started");
    let said = format!("{}{}", done.out, done.err);
    // crun reports only the exit status of a hook.
    if oci.name() == "runc" {
        assert!(said.contains("gpuslice"), "{case}: {said}");
    }
}

fn sliced(oci: &Oci, case: &str, done: &Done) {
    assert_eq!(done.code, 0, "{case}: {done:?}");
    assert_sliced(oci, "attacker", 2 * GIB);
}

/// CVE-2024-0132, CVE-2025-23359, CVE-2025-23267: a path in the image leads out of it.
#[test]
fn cve_2024_0132_links_that_lead_out_of_the_root() {
    if !ready() {
        return;
    }
    let host = Host::new();
    host.sh("mkdir /opt/host-etc && echo mine > /opt/host-etc/ld.so.conf")
        .ok();
    for target in [
        "/opt/host-etc",
        "../../../../../../opt/host-etc",
        "../../../../../../../etc",
    ] {
        attack(
            &host,
            &format!("mv etc etc.real && ln -s {target} etc"),
            refused,
        );
    }
    attack(&host, "mv etc usr/etc && ln -s usr/etc etc", sliced);
}

/// CVE-2025-23267, CVE-2024-21626: links of /proc lead to another root or an open folder.
#[test]
fn cve_2025_23267_magic_links() {
    if !ready() {
        return;
    }
    let host = Host::new();
    for target in [
        "/proc/self/root/etc",
        "/proc/1/root/etc",
        "/proc/self/cwd/../../../etc",
        "/proc/self/fd/7",
    ] {
        attack(
            &host,
            &format!("mv etc etc.real && ln -s {target} etc"),
            refused,
        );
    }
}

/// CVE-2024-0133, CVE-2024-0134: an image makes the host create empty files.
#[test]
fn cve_2024_0133_links_where_files_are_made() {
    if !ready() {
        return;
    }
    let host = Host::new();
    for target in ["/opt/made", "../../../../opt/made", "/proc/1/root/opt/made"] {
        attack(&host, &format!("ln -s {target} etc/ld.so.preload"), refused);
        attack(&host, &format!("ln -s {target} .gpuslice"), refused);
    }
}

/// CVE-2025-31133, CVE-2025-52565, CVE-2025-52881: another kind of file is where a regular file
/// belongs.
#[test]
fn cve_2025_31133_pipes_devices_and_folders_as_preload_files() {
    if !ready() {
        return;
    }
    let host = Host::new();
    for make in [
        "mkfifo etc/ld.so.preload",
        "mkdir etc/ld.so.preload",
        "mknod etc/ld.so.preload c 1 5",
        "ln -s /dev/zero etc/ld.so.preload",
        "mkfifo .gpuslice",
        "mknod .gpuslice c 1 3",
    ] {
        attack(&host, make, refused);
    }
}

#[test]
fn a_preload_file_of_the_image_is_kept_behind_ours() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let script = "echo /lib/x86_64-linux-gnu/libacl.so.1 > etc/ld.so.preload";
    attack(&host, script, |oci, case, done| {
        sliced(oci, case, done);
        let text = oci.exec("attacker", &["cat", "/etc/ld.so.preload"]).ok();
        let words: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(
            words,
            [
                "/.gpuslice/libgpuslice.so",
                "/lib/x86_64-linux-gnu/libacl.so.1"
            ],
            "{case}"
        );
    });
    // The hook does not read an endless file to its end.
    attack(
        &host,
        "head -c 1000000 /dev/zero > etc/ld.so.preload",
        refused,
    );
}

/// The runtime masks paths after all hooks. A mask over the preload list gave a container the whole
/// card without a message.
#[test]
fn a_mask_over_the_slice_is_refused() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let spec = Spec::new("attacker").memory("2GiB");
    for binary in ["runc", "crun"] {
        for stage in STAGES {
            let mut oci = Oci::new(&host, binary, stage);
            for (mask, link) in [
                ("/etc/ld.so.preload", ""),
                ("/etc/", ""),
                ("/usr/../etc/ld.so.preload", ""),
                ("/.gpuslice", ""),
                ("/.gpuslice/libgpuslice.so", ""),
                ("/masked", "ln -s etc/ld.so.preload masked"),
                ("/proc/self/root/etc/ld.so.preload", ""),
                ("/masked", "ln -s /proc/self/root/etc masked"),
                ("/proc/1/root/etc", ""),
            ] {
                let mut config = oci.config(&spec);
                config["linux"]["maskedPaths"] = json!(["/proc/kcore", mask]);
                oci.prepare_as(&spec, &config);
                let root = format!("{}/rootfs", Oci::bundle("attacker"));
                host.sh(&format!(
                    "cd {root} && {}",
                    if link.is_empty() { "true" } else { link }
                ))
                .ok();
                let done = oci.run("attacker");
                refused(&oci, &format!("{binary} {stage}: {mask}"), &done);
                oci.remove("attacker");
                assert_nothing_left(&host);
            }
            // Masks over other paths hide no file of ours.
            let mut config = oci.config(&spec);
            config["linux"]["maskedPaths"] = json!(["/proc/kcore", "/etc/shadow", "/not/there"]);
            oci.prepare_as(&spec, &config);
            let done = oci.run("attacker");
            sliced(&oci, &format!("{binary} {stage}"), &done);
            oci.remove("attacker");
        }
    }
}

#[test]
fn what_the_image_has_at_our_place_is_covered() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let fake = r#"mkdir .gpuslice && echo '{"version":1,"name":"mine","memory":99999999999}' > .gpuslice/slice.json"#;
    attack(&host, fake, sliced);
}
