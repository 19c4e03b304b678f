//! `/proc/meminfo` of containers on unified memory, for programs that no preload reaches: a page that
//! the hook mounts and gpusliced writes.

use gpuslice_containers::bundle::Oci;
use gpuslice_containers::check::Check;
use gpuslice_containers::engine::Engine;
use gpuslice_containers::host::Host;
use gpuslice_containers::podman::Podman;
use gpuslice_containers::ready::ready;
use gpuslice_containers::slice::{GIB, assert_nothing_left, assert_sliced};
use gpuslice_containers::spec::{Image, Spec};
use serde_json::{Value, json};
use std::process::Child;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// The memory of the simulated GB10's host.
const HOST_TOTAL: u64 = 127_600_748 << 10;

/// gpusliced on a machine.
struct Daemon<'h> {
    host: &'h Host,
    process: Child,
}

impl<'h> Daemon<'h> {
    fn start(host: &'h Host) -> Daemon<'h> {
        host.write("/etc/gpuslice/gpusliced.toml", "[meminfo]\n");
        host.sh("ln -sf gpuslice /usr/bin/gpusliced").ok();
        let process = host.spawn("gpusliced", &[], "/run/gpusliced.log");
        let log = || std::fs::read_to_string(host.path("/run/gpusliced.log")).unwrap_or_default();
        host.wait_for("gpusliced writes pages", || log().contains("every 100 ms"));
        Daemon { host, process }
    }

    /// Ends it as the kernel does, without a chance to clean up.
    fn kill(mut self) {
        self.host.sh("kill -9 $(pidof gpusliced)").ok();
        let _ = self.process.wait();
    }
}

/// A container that asks for a page.
fn spark(name: &str) -> Spec {
    let mut spec = Spec::new(name).memory("40GiB");
    spec = spec.annotated("gpuslice.io/meminfo", "mount");
    spec.gpus = "gb10";
    spec
}

/// Total, free and available memory, in bytes.
fn shown(text: &str) -> [u64; 3] {
    ["MemTotal", "MemFree", "MemAvailable"].map(|name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let line = line.unwrap_or_else(|| panic!("no {name}: {text}"));
        let kilobytes: u64 = line.trim_matches([':', ' ', 'k', 'B']).parse().expect(line);
        kilobytes << 10
    })
}

/// What a static program in a container reads.
fn read(engine: &dyn Engine, id: &str, program: &[&str]) -> [u64; 3] {
    let done = engine.exec(id, program);
    shown(&done.ok())
}

const BUSYBOX: [&str; 5] = ["busybox", "head", "-n", "3", "/proc/meminfo"];

/// Puts static readers into a container's `/tmp`, and returns how they are called.
fn readers(host: &Host) -> Vec<(&'static str, String)> {
    host.write(
        "/run/readers/lines.c",
        include_str!("../../../clients/c/meminfo_lines.c"),
    );
    host.write(
        "/run/readers/main.go",
        include_str!("../../../clients/go/meminfo/main.go"),
    );
    host.sh(
        "cd /run/readers && cc -O1 -static -o static lines.c && musl-gcc -O1 -static -o musl lines.c &&
         HOME=/tmp GOCACHE=/run/readers/cache GO111MODULE=off CGO_ENABLED=0 go build -o go main.go && rm -rf cache",
    )
    .ok();
    ["static", "musl", "go"]
        .map(|name| (name, format!("/readers/{name}")))
        .to_vec()
}

fn shows_the_slice(host: &Host, engine: &mut dyn Engine) {
    let name = engine.name();
    let readers = readers(host);
    let mut spec = spark("spark");
    spec.mounts.push(("/run/readers".into(), "/readers".into()));
    let id = engine
        .start(&spec)
        .unwrap_or_else(|done| panic!("{name}: {done:?}"));
    for (reader, program) in &readers {
        let [total, free, available] = read(engine, &id, &[program]);
        assert_eq!((total, free), (40 * GIB, available), "{name} {reader}");
        assert!(
            free > 39 * GIB && free <= 40 * GIB,
            "{name} {reader}: {free}"
        );
    }
    assert_eq!(read(engine, &id, &BUSYBOX)[0], 40 * GIB, "{name} busybox");
    // The library still reads the host's own file, and shows the same.
    assert_sliced(engine, &id, 40 * GIB);
    let library = shown(&engine.exec(&id, &["head", "-n", "3", "/proc/meminfo"]).ok());
    assert_eq!(library[0], 40 * GIB, "{name}");
    engine.remove(&id);
    assert_nothing_left(host);
}

#[test]
fn static_musl_and_go_programs_in_containers_read_the_slice() {
    if !ready() {
        return;
    }
    let host = Host::with("gb10");
    let _daemon = Daemon::start(&host);
    shows_the_slice(&host, &mut Oci::new(&host, "runc", "createRuntime"));
    shows_the_slice(&host, &mut Oci::new(&host, "crun", "createRuntime"));
    shows_the_slice(&host, &mut Podman::new(&host, "crun", "createRuntime"));
    shows_the_slice(&host, &mut Podman::again(&host, "runc"));
}

#[test]
fn a_static_or_musl_image_reads_the_slice_although_it_has_no_library() {
    if !ready() {
        return;
    }
    let host = Host::with("gb10");
    let _daemon = Daemon::start(&host);
    readers(&host);
    for binary in ["runc", "crun"] {
        for image in [Image::Musl, Image::Static] {
            let mut oci = Oci::new(&host, binary, "createRuntime");
            let mut spec = spark("other").running(&["/bin/hello", "wait"]);
            spec.image = image;
            spec.mounts.push(("/run/readers".into(), "/readers".into()));
            oci.prepare(&spec);
            let points = "mkdir -p opt sim state readers && touch opt/gpuslice";
            let root = format!("{}/rootfs", Oci::bundle("other"));
            host.sh(&format!("cd {root} && {points}")).ok();
            let done = oci.run("other");
            assert_eq!(done.code, 0, "{binary} {image:?}: {done:?}");
            let [total, ..] = read(&oci, "other", &["/readers/static"]);
            assert_eq!(total, 40 * GIB, "{binary} {image:?}");
            oci.remove("other");
            assert_nothing_left(&host);
        }
    }
}

#[test]
fn the_page_library_and_cuda_of_a_container_agree() {
    if !ready() {
        return;
    }
    let host = Host::with("gb10");
    let _daemon = Daemon::start(&host);
    let mut oci = Oci::new(&host, "runc", "createRuntime");
    let id = oci.start(&spark("spark")).expect("it starts");
    let start = Instant::now();
    loop {
        // The free memory of `check` is that of a process that has a context.
        let free = Check::run(&oci, &id).free();
        let [_, page, _] = read(&oci, &id, &BUSYBOX);
        let library = shown(&oci.exec(&id, &["head", "-n", "3", "/proc/meminfo"]).ok());
        let near = |one: u64, other: u64| one.abs_diff(other) < MIB;
        let context = free.first().map_or(0, |free| page.saturating_sub(*free));
        if near(page, library[1]) && near(context, 256 * MIB) {
            break;
        }
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{free:?} {page} {library:?}"
        );
    }
    oci.remove(&id);
}

#[test]
fn without_the_daemon_the_library_alone_shows_the_slice() {
    if !ready() {
        return;
    }
    let host = Host::with("gb10");
    let mut oci = Oci::new(&host, "crun", "createRuntime");
    let spec = spark("spark").annotated("run.oci.hooks.stderr", "/run/hook.err");
    let id = oci.start(&spec).expect("it starts");
    let warned = std::fs::read_to_string(host.path("/run/hook.err")).expect("its output");
    let line = "/proc/meminfo shows the slice only to programs that load the library: gpusliced does \
                not run with [meminfo]";
    assert!(warned.contains(line), "{warned}");
    assert_ne!(read(&oci, &id, &BUSYBOX)[0], 40 * GIB);
    assert_sliced(&oci, &id, 40 * GIB);
    oci.remove(&id);
    assert_nothing_left(&host);
}

#[test]
fn the_policy_mounts_pages_and_an_annotation_forbids_them() {
    if !ready() {
        return;
    }
    let host = Host::with("gb10");
    let _daemon = Daemon::start(&host);
    host.write("/etc/gpuslice/config.toml", "meminfo = \"mount\"\n");
    let mut oci = Oci::new(&host, "runc", "createRuntime");
    let mut spec = Spec::new("spark").memory("40GiB");
    spec.gpus = "gb10";
    let id = oci.start(&spec).expect("it starts");
    assert_eq!(read(&oci, &id, &BUSYBOX)[0], 40 * GIB);
    oci.remove(&id);
    let id = oci
        .start(&spec.clone().annotated("gpuslice.io/meminfo", "preload"))
        .expect("it starts");
    assert_ne!(read(&oci, &id, &BUSYBOX)[0], 40 * GIB);
    oci.remove(&id);
    let discrete = spec.annotated("gpuslice.io/present-as", "discrete");
    let id = oci.start(&discrete).expect("it starts");
    assert_ne!(read(&oci, &id, &BUSYBOX)[0], 40 * GIB);
    oci.remove(&id);
}

#[test]
fn root_in_a_container_cannot_write_or_remove_its_page() {
    if !ready() {
        return;
    }
    let host = Host::with("gb10");
    let _daemon = Daemon::start(&host);
    for mut engine in [
        Oci::new(&host, "runc", "createRuntime"),
        Oci::new(&host, "crun", "createRuntime"),
    ] {
        let id = engine.start(&spark("root")).expect("it starts");
        let page = host.list("/run/gpuslice/meminfo");
        let path = host.path(&format!("/run/gpuslice/meminfo/{}", page[0]));
        let before = std::fs::read(&path).expect("the page");
        for attack in [
            "echo x > /proc/meminfo",
            "truncate -s 0 /proc/meminfo",
            "rm -f /proc/meminfo",
            "mv /tmp /proc/meminfo",
            "chmod 777 /proc/meminfo",
            "busybox umount /proc/meminfo",
            "busybox umount -l /proc/meminfo",
            "busybox mount -o remount,rw,bind /proc/meminfo",
            "busybox mount --bind /etc/hosts /proc/meminfo",
            "echo x > /proc/self/root/proc/meminfo",
        ] {
            let done = engine.exec(&id, &["bash", "-c", attack]);
            assert!(done.code != 0 && done.code != 127, "{attack}: {done:?}");
        }
        assert_eq!(std::fs::read(&path).expect("the page"), before);
        engine.remove(&id);
    }
}

/// Findings of `gpuslice doctor` about a container.
fn findings(host: &Host) -> Vec<Value> {
    let done = host.run("gpuslice", &["doctor", "spark", "--json"]);
    let answer: Value = serde_json::from_str(&done.out).unwrap_or_else(|_| panic!("{done:?}"));
    let findings = answer["findings"].as_array().expect("a list").iter();
    findings.map(|finding| finding["code"].clone()).collect()
}

#[test]
fn a_page_outlives_its_daemon_and_doctor_says_that_it_is_old() {
    if !ready() {
        return;
    }
    let host = Host::with("gb10");
    let daemon = Daemon::start(&host);
    let mut oci = Oci::new(&host, "runc", "createRuntime");
    let id = oci.start(&spark("spark")).expect("it starts");
    let before = read(&oci, &id, &BUSYBOX);
    assert_eq!(findings(&host), Vec::<Value>::new());
    daemon.kill();
    // The last numbers stay, and reading neither hangs nor fails.
    assert_eq!(read(&oci, &id, &BUSYBOX), before);
    host.wait_for("the page is old", || {
        findings(&host) == [json!("meminfo-old")]
    });
    // What the service leaves behind is never more than what the page showed.
    host.sh("gpusliced --leave-pages").ok();
    let left = read(&oci, &id, &BUSYBOX);
    assert!(left[1] <= before[1], "{left:?} {before:?}");
    // The next daemon finds the page, and the container needs no new start.
    let _daemon = Daemon::start(&host);
    host.wait_for("the page is new", || findings(&host).is_empty());
    assert_eq!(read(&oci, &id, &BUSYBOX)[0], 40 * GIB);
    assert_ne!(before[0], HOST_TOTAL);
    oci.remove(&id);
}

#[test]
#[ignore = "make readers: installs node and Java"]
fn node_and_java_in_a_container_read_the_slice() {
    if !ready() {
        return;
    }
    let host = Host::with("gb10");
    let _daemon = Daemon::start(&host);
    let java = std::fs::canonicalize("/usr/bin/java").expect("tests/setup.sh readers installs it");
    let java = java.to_str().expect("a path in ASCII").to_owned();
    let settings = std::fs::read_dir("/etc").expect("/etc");
    let settings = settings
        .flatten()
        .map(|entry| entry.path().display().to_string());
    let mut settings = settings.filter(|path| path.starts_with("/etc/java-"));
    let settings = settings.next().expect("Java's settings");
    for binary in ["runc", "crun"] {
        let mut oci = Oci::new(&host, binary, "createRuntime");
        let mut spec = spark("readers");
        // The image has neither of them: it gets those of this machine.
        for folder in ["/usr", &settings] {
            spec.mounts.push((folder.to_owned(), folder.to_owned()));
        }
        let id = oci.start(&spec).expect("it starts");
        let script =
            "os.totalmem() + ' ' + fs.readFileSync('/proc/meminfo', 'utf8').split('\\n')[0]";
        let said = oci.exec(&id, &["node", "-p", script]).ok();
        let (total, line) = said.split_once(' ').expect("two answers");
        assert_eq!(total, (40 * GIB).to_string(), "{binary}");
        assert_eq!(
            line.split_whitespace().nth(1),
            Some("41943040"),
            "{binary}: {line}"
        );
        let flags = [
            "-XX:MaxRAMPercentage=50",
            "-XX:+PrintFlagsFinal",
            "-version",
        ];
        let said = oci.exec(&id, &[&[java.as_str()][..], &flags].concat()).ok();
        let heap = said.lines().find(|line| line.contains(" MaxHeapSize "));
        let heap: u64 = heap
            .and_then(|line| line.split_whitespace().nth(3)?.parse().ok())
            .unwrap_or_else(|| panic!("no heap: {said}"));
        assert!(heap.abs_diff(20 * GIB) < 64 * MIB, "{binary}: {heap}");
        oci.remove(&id);
        assert_nothing_left(&host);
    }
}
