//! Attacks on a slice's ledger from inside its container: as any user, and as root with the
//! capabilities that engines give.

use gpuslice_containers::bundle::Oci;
use gpuslice_containers::engine::Engine;
use gpuslice_containers::host::{Done, Host};
use gpuslice_containers::patience;
use gpuslice_containers::ready::ready;
use gpuslice_containers::slice::assert_nothing_left;
use gpuslice_containers::spec::Spec;

const LEDGER: &str = "/.gpuslice/ledger/ledger";
const LOCKS: &str = "/.gpuslice/ledger/locks";
const USERS: [&str; 2] = ["1000:1000", "0:0"];

/// A container with a slice of 8 GiB, and the attacking program in it.
struct Attacked<'h> {
    host: &'h Host,
    runtime: &'static str,
    oci: Oci<'h>,
    id: String,
}

impl<'h> Attacked<'h> {
    fn new(host: &'h Host, runtime: &'static str, spec: &Spec) -> Attacked<'h> {
        Attacked::at("createRuntime", host, runtime, spec)
    }

    fn at(stage: &'static str, host: &'h Host, runtime: &'static str, spec: &Spec) -> Attacked<'h> {
        let mut oci = Oci::new(host, runtime, stage);
        let id = oci.start(spec).expect("it starts");
        let root = format!("{}/rootfs", Oci::bundle(&id));
        host.sh(&format!(
            "cp /run/build/containers/ledger {root}/usr/bin/ledger && chmod 1777 {root}/tmp"
        ))
        .ok();
        Attacked {
            host,
            runtime,
            oci,
            id,
        }
    }

    fn line(&self, user: &str, words: &[&str]) -> Vec<String> {
        let exec = ["exec", "--user", user, &self.id, "/usr/bin/ledger"];
        exec.iter().chain(words).map(|&word| word.into()).collect()
    }

    /// Runs the program as a user of the container.
    fn run(&self, user: &str, words: &[&str]) -> Done {
        let line = self.line(user, words);
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        self.host.run(self.runtime, &line)
    }

    fn got(&self, mib: &str) -> String {
        self.run("0:0", &["alloc", mib]).out
    }

    fn start(&self, user: &str, words: &[&str], log: &str) -> std::process::Child {
        let line = self.line(user, words);
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        self.host.spawn(self.runtime, &line, log)
    }

    fn read(&self, path: &str) -> String {
        self.oci.exec(&self.id, &["cat", path]).out
    }

    fn waits_for(&self, path: &str, text: &str) {
        self.host.wait_for(text, || self.read(path).contains(text));
    }
}

/// A `truncate -s 0` of the ledger, by any user, lifted the limit and killed all processes that had
/// it mapped.
fn a_ledger_is_not_cut(runtime: &'static str, stage: &'static str) {
    let host = Host::new();
    let spec = Spec::new("cut").memory("8GiB");
    let mut attacked = Attacked::at(stage, &host, runtime, &spec);
    let mut victim = attacked.start("1000:1000", &["hold", "4096", "/tmp/victim"], "/tmp/log");
    attacked.waits_for("/tmp/victim", "got 4096");
    for user in USERS {
        let done = attacked.run(user, &["cut", LEDGER]);
        assert_eq!(done.ok(), "", "{runtime} {stage}: {user} succeeded");
        // The lock file may be cut, because it has no content.
        attacked.run(user, &["cut", LOCKS]);
        assert_eq!(
            attacked.got("20000"),
            "got 3584\n",
            "{runtime} {stage}: {user}"
        );
    }
    attacked
        .oci
        .exec(&attacked.id, &["touch", "/tmp/victim.stop"]);
    attacked.waits_for("/tmp/victim", "alive");
    assert!(patience::ends(&mut victim), "the holder does not end");
    attacked.oci.remove(&attacked.id.clone());
}

#[test]
fn no_user_of_a_container_cuts_its_ledger() {
    if ready() {
        for runtime in ["runc", "crun"] {
            for stage in ["prestart", "createRuntime", "createContainer"] {
                a_ledger_is_not_cut(runtime, stage);
            }
        }
    }
}

/// A record lock on every byte, by any user, lifted the limit of all processes that started later.
#[test]
fn locking_every_byte_refuses_memory_until_the_locker_ends() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let spec = Spec::new("lock").memory("8GiB");
    let mut attacked = Attacked::new(&host, "runc", &spec);
    for user in USERS {
        for file in [LOCKS, LEDGER] {
            let script = format!("ledger lock {file} >/tmp/out 2>&1");
            let line = ["exec", "--user", user, &attacked.id, "sh", "-c", &script];
            attacked.oci.exec(&attacked.id, &["rm", "-f", "/tmp/out"]);
            let mut locker = host.spawn("runc", &line, "/tmp/log");
            attacked.waits_for("/tmp/out", "locked");
            let expected = match file {
                LOCKS => "got -1\n",
                // The locks on an overlay's file are separate, and the ledger does not use them.
                _ => "got 7936\n",
            };
            assert_eq!(attacked.got("20000"), expected, "{user} {file}");
            let kill = "for p in /proc/[0-9]*; do [ \"$(cat $p/comm)\" = ledger ] && kill -9 ${p#/proc/}; done; true";
            attacked.oci.exec(&attacked.id, &["sh", "-c", kill]).ok();
            assert!(patience::ends(&mut locker), "the locker does not end");
            assert_eq!(attacked.got("20000"), "got 7936\n", "{user} {file}");
        }
    }
    attacked.oci.remove(&attacked.id.clone());
}

/// A user namespace shifts the ids of the container, so its root has no rights on the ledger.
#[test]
fn a_container_in_a_user_namespace_is_counted_and_cannot_cut_its_ledger() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let mut spec = Spec::new("shifted").memory("8GiB");
    spec.user_namespace = true;
    let mut attacked = Attacked::new(&host, "runc", &spec);
    for user in USERS {
        assert_eq!(attacked.run(user, &["cut", LEDGER]).ok(), "", "{user}");
        let got = attacked.run(user, &["alloc", "20000"]);
        assert_eq!(got.out, "got 7936\n", "{user}");
    }
    attacked.oci.remove(&attacked.id.clone());
}

/// The host recognises a sealed ledger by its file system, and reads it like any other.
#[test]
fn the_host_reads_a_sealed_ledger() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let spec = Spec::new("read").memory("8GiB");
    let mut attacked = Attacked::new(&host, "crun", &spec);
    let kind = host
        .sh("stat -f -c %T /run/gpuslice/ledgers/read/ledger")
        .ok();
    assert_eq!(kind, "overlayfs\n");
    let mut victim = attacked.start("0:0", &["hold", "1024", "/tmp/victim"], "/tmp/log");
    attacked.waits_for("/tmp/victim", "got 1024");
    let status = host.run("gpuslice", &["status", "--json"]).ok();
    assert!(
        status.contains("\"used\": 1340080128") || status.contains("\"used\":1340080128"),
        "{status}"
    );
    attacked
        .oci
        .exec(&attacked.id, &["touch", "/tmp/victim.stop"]);
    assert!(patience::ends(&mut victim), "the holder does not end");
    attacked.oci.remove(&attacked.id.clone());
    assert_nothing_left(&host);
}

/// A child that outlived its container's first process kept 6 GiB. The next container was promised
/// them as well, and `gpuslice status` reported no running slices.
#[test]
fn memory_of_a_process_that_outlives_its_container_stays_promised() {
    if !ready() {
        return;
    }
    let host = Host::new();
    for runtime in ["runc", "crun"] {
        let mut oci = Oci::new(&host, runtime, "createRuntime");
        let script = "busybox setsid ledger hold 4096 /tmp/held >/dev/null 2>&1 & \
                      for i in {1..600}; do grep -q got /tmp/held 2>/dev/null && break; busybox sleep 0.1; done";
        let spec = Spec::new("early").memory("8GiB");
        let spec = spec.running(&["/usr/bin/bash", "-c", script]);
        let mut config = oci.config(&spec);
        let namespaces = config["linux"]["namespaces"].as_array_mut();
        namespaces
            .expect("a list")
            .retain(|one| one["type"] != "pid");
        oci.prepare_as(&spec, &config);
        let root = format!("{}/rootfs", Oci::bundle("early"));
        host.sh(&format!(
            "cp /run/build/containers/ledger {root}/usr/bin/ledger && chmod 1777 {root}/tmp"
        ))
        .ok();
        assert_eq!(oci.run("early").code, 0, "{runtime}");
        let stopped = format!("{runtime} state early | grep -q stopped");
        host.wait_for("it stops", || host.sh(&stopped).code == 0);

        let next = Spec::new("next").memory("23GiB");
        let refused = oci.start(&next).expect_err("8 GiB are still held");
        assert!(
            runtime == "crun" || refused.out.contains("early"),
            "{refused:?}"
        );
        let status = host.run("gpuslice", &["status", "early"]).ok();
        assert!(status.contains("used 4.25 GiB"), "{status}");
        host.sh(&format!("touch {root}/tmp/held.stop")).ok();
        host.wait_for("its end", || {
            std::fs::read_to_string(host.path(&format!("{root}/tmp/held")))
                .is_ok_and(|said| said.contains("alive"))
        });
        let mut started = oci.start(&next);
        host.wait_for("room", || {
            started.is_ok() || {
                started = oci.start(&next);
                started.is_ok()
            }
        });
        oci.remove("next");
        oci.remove("early");
        assert_nothing_left(&host);
    }
}

/// A ledger that cannot be sealed is a plain file. It can be cut, and then all memory is refused.
#[test]
fn a_ledger_that_cannot_be_sealed_is_cut_and_refuses() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let mut oci = Oci::new(&host, "runc", "createRuntime");
    // Without this capability the kernel refuses the attribute, as does one that does not know it.
    for hook in oci.hooks.as_object_mut().expect("hooks").values_mut() {
        for hook in hook.as_array_mut().expect("a list") {
            let path = hook["path"].clone();
            let mut line = vec![
                "setpriv".into(),
                "--bounding-set".into(),
                "-setfcap".into(),
                path,
            ];
            let words = hook["args"].as_array().cloned().unwrap_or_default();
            line.extend(words.into_iter().skip(1));
            hook["path"] = "/usr/bin/setpriv".into();
            hook["args"] = line.into();
        }
    }
    let spec = Spec::new("plain").memory("8GiB");
    let id = oci.start(&spec).expect("it starts");
    let root = format!("{}/rootfs", Oci::bundle(&id));
    host.sh(&format!(
        "cp /run/build/containers/ledger {root}/usr/bin/ledger"
    ))
    .ok();
    let kind = "stat -f -c %T /run/gpuslice/ledgers/plain/ledger";
    assert_eq!(host.sh(kind).ok(), "tmpfs\n");
    let got = || oci.exec(&id, &["ledger", "alloc", "20000"]).out;
    assert_eq!(got(), "got 7936\n");
    oci.exec(&id, &["truncate", "-s", "0", LEDGER]).ok();
    assert_eq!(got(), "got -1\n");
    oci.remove(&id);
    assert_nothing_left(&host);
}
