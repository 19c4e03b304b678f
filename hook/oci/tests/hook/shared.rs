//! State that slices share: the ledger of a pod, and the promises of a machine with unified memory.
//! Touches: mount namespaces of its own. Needs root.

use crate::support::{Container, Host, SPARKS_MEMINFO, is_root, text};
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::machine::pod::Pod;
use gpuslice_host::machine::process::ProcessId;
use gpuslice_host::slices::{records, tenants};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

#[test]
fn the_containers_of_a_pod_share_one_ledger_until_the_last_is_gone() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let pod = |id: &str, memory: &str| {
        let annotations = [
            ("gpuslice.io/memory", memory),
            ("gpuslice.io/share", "pod"),
            ("io.kubernetes.cri.container-name", id),
            (
                "io.kubernetes.cri.sandbox-id",
                "0123456789abcdef0123456789abcdef",
            ),
        ];
        host.asking(id, &annotations)
    };
    let (one, two, other) = (
        pod("one", "20GiB"),
        pod("two", "20GiB"),
        pod("other", "4GiB"),
    );
    one.is_given_its_slice();
    two.is_given_its_slice();
    let ledger = |container: &Container<'_>| {
        let facts = fs::metadata(container.inside(".gpuslice/ledger/ledger")).unwrap();
        (facts.dev(), facts.ino())
    };
    assert_eq!(ledger(&one), ledger(&two));
    let said = other.is_refused();
    assert!(
        said.contains("is shared with one, which has another budget"),
        "{said}"
    );
    assert!(one.hook(&["poststop"]).status.success());
    let slice = fs::read_dir(host.run("slices")).unwrap().next().unwrap();
    let slice = slice.unwrap().path().file_stem().unwrap().to_owned();
    assert!(host.run("ledgers").join(&slice).join("ledger").exists());
    // A stranger that knows the slice's name and the start of the sandbox's id cannot join the
    // slice.
    let stranger = |id: &str, sandbox: &str, namespace: &str| {
        let annotations = [
            ("gpuslice.io/memory", "20GiB"),
            ("gpuslice.io/share", "pod"),
            ("io.kubernetes.cri.container-name", "x"),
            ("io.kubernetes.cri.sandbox-id", sandbox),
            ("io.kubernetes.cri.sandbox-namespace", namespace),
        ];
        host.asking(id, &annotations).is_refused()
    };
    let own = "0123456789abcdef0123456789abcdef";
    let said = stranger("s1", &format!("{}-i-do-not-know-the-rest", &own[..16]), "");
    assert!(said.contains("no room for"), "{said}");
    let said = stranger("s2", own, "attacker");
    assert!(said.contains("belongs to another pod (one)"), "{said}");
    let annotations = [("gpuslice.io/memory", "20GiB")];
    let said = host
        .asking(slice.to_str().unwrap(), &annotations)
        .is_refused();
    assert!(
        said.contains("is reserved for gpuslice's own slices and runs"),
        "{said}"
    );
    assert!(two.hook(&["poststop"]).status.success());
    assert_eq!(host.left(), Vec::<String>::new());
}

#[test]
fn on_unified_memory_a_container_has_its_own_promise_and_reads_the_others() {
    if !is_root() {
        return;
    }
    let host = Host::spark();
    host.policy("reserve = \"8GiB\"");
    let asking = |id: &str, memory: &str| host.asking(id, &[("gpuslice.io/memory", memory)]);
    let one = asking("one", "60GiB");
    one.is_given_its_slice();
    assert_eq!(text(one.inside(".gpuslice/meminfo")), SPARKS_MEMINFO);
    // 100 - 8 - 60 = 32 GiB are left. More is free only when the first container has spent some of
    // its promise.
    let two = asking("two", "40GiB");
    let said = two.is_refused();
    assert!(
        said.contains(
            "a slice of 40.00 GiB does not fit on this host, which can promise 32.00 GiB"
        ) && said.contains("(held by one 60.00 GiB)"),
        "{said}"
    );
    let spent = (10u64 << 30).to_le_bytes();
    fs::write(one.inside(".gpuslice/promise"), spent).unwrap();
    two.is_given_its_slice();
    let promise = two
        .inside(".gpuslice/promises")
        .join(format!("{}.one", 60u64 << 30));
    assert_eq!(fs::read(&promise).unwrap(), spent);
    assert!(
        fs::write(&promise, "lies").is_err(),
        "another's promise was written to"
    );
    assert_eq!(
        fs::metadata(two.inside(".gpuslice/promise")).unwrap().len(),
        4096
    );
    for container in [&one, &two] {
        assert!(container.hook(&["poststop"]).status.success());
    }
    assert_eq!(host.left(), Vec::<String>::new());
}

#[test]
fn an_over_committed_slice_takes_nothing_from_those_admitted_before() {
    if !is_root() {
        return;
    }
    let host = Host::spark();
    host.policy("reserve = \"8GiB\"\novercommit = true");
    let asking = |id: &str, memory: &str| host.asking(id, &[("gpuslice.io/memory", memory)]);
    let admitted = asking("one", "60GiB");
    admitted.is_given_its_slice();
    let two = asking("two", "40GiB");
    let said = two.hook(&["createRuntime"]);
    assert!(said.status.success(), "{said:?}");
    assert_eq!(
        String::from_utf8(said.stderr).unwrap(),
        "gpuslice: two is over-committed by 8.00 GiB: it requests 40.00 GiB and is promised the \
         remaining 32.00 GiB\n"
    );
    let promises = || {
        let names = fs::read_dir(host.run("promises")).unwrap();
        let mut names: Vec<_> = names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    let both = [
        format!("{}.two", 32u64 << 30),
        format!("{}.one", 60u64 << 30),
    ];
    assert_eq!(promises(), both);
    fs::write(two.inside(".gpuslice/promise"), "spent").unwrap();
    assert!(
        fs::read(host.run("promises").join(&both[0]))
            .unwrap()
            .starts_with(b"spent")
    );
    // The hook may be configured twice. The second call keeps the promise and prints no second
    // message.
    two.is_given_its_slice();
    assert_eq!(promises(), both);
    for container in [&two, &admitted] {
        assert!(container.hook(&["poststop"]).status.success());
    }
    assert_eq!(host.left(), Vec::<String>::new());
}

/// A tenant may extend its own promise file, but there is still room for the promises of others.
#[test]
fn a_tenant_cannot_fill_the_promises() {
    if !is_root() {
        return;
    }
    let host = Host::spark();
    let (liar, honest) = (host.container("liar"), host.container("honest"));
    liar.is_given_its_slice();
    let filled = fs::write(liar.inside(".gpuslice/promise"), vec![1; 8 << 20]);
    assert!(
        filled.is_err(),
        "the promises are not in a file system of their own"
    );
    honest.is_given_its_slice();
    assert_eq!(
        fs::metadata(honest.inside(".gpuslice/promise"))
            .unwrap()
            .len(),
        4096
    );
}

/// The state that `gpuslice run` without the right to mount leaves: a private folder with its lock and
/// its promise.
#[test]
fn a_run_before_the_first_container_keeps_no_container_from_starting() {
    if !is_root() {
        return;
    }
    let host = Host::spark();
    let own = |name: &str, mode| {
        fs::set_permissions(host.run(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    fs::create_dir(host.run("promises")).unwrap();
    own("promises", 0o700);
    own("", 0o700);
    fs::write(host.run("lock"), "").unwrap();
    let run = ProcessId::of(std::process::id().cast_signed()).unwrap();
    let id = tenants::promise_id(&run, "model");
    let promise = format!("promises/{}.{id}", 10u64 << 30);
    let spent = (4u64 << 30).to_le_bytes();
    fs::write(host.run(&promise), spent).unwrap();
    own(&promise, 0o644);
    // 100 GiB are available, 8 GiB are reserved, and 6 GiB are promised to the run: 86 GiB are
    // left.
    let second = host.asking("second", &[("gpuslice.io/memory", "87GiB")]);
    let said = second.is_refused();
    let holder = format!("held by model (pid {}) 6.00 GiB", run.pid);
    assert!(said.contains(&holder), "{said}");
    let first = host.container("first");
    first.is_given_its_slice();
    assert_eq!(fs::read(host.run(&promise)).unwrap()[..8], spent);
    let facts = |name: &str| fs::metadata(host.run(name)).unwrap();
    assert_eq!(facts("").mode() & 0o777, 0o711);
    assert_eq!(facts("promises").mode() & 0o777, 0o755);
    // The promises have a file system of their own, so a tenant cannot fill the host's.
    assert_ne!(facts("promises").dev(), facts("").dev());
    let fill = "head -c 300000000 /dev/zero >>\"$0\"; stat -c %s \"$0\"";
    let file = first.inside(".gpuslice/promise");
    let file = format!(
        "/{}",
        file.to_str().unwrap().split_once("/root/").unwrap().1
    );
    let filled = first.run_inside(&["sh", "-c", fill, &file]);
    let size: u64 = String::from_utf8_lossy(&filled.stdout)
        .trim()
        .parse()
        .unwrap();
    assert!(size <= 4 << 20, "{size}");
    // Any one of the folders may be missing.
    for folder in ["slices", "containers", "ledgers"] {
        let host = Host::spark();
        host.container("c1").is_given_its_slice();
        host.collect();
        fs::remove_dir(host.run(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
        host.container("c2").is_given_its_slice();
    }
}

#[test]
fn a_record_names_the_pod_of_its_container() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let annotations = [
        ("gpuslice.io/memory", "8GiB"),
        ("io.kubernetes.cri.container-name", "server"),
        ("io.kubernetes.cri.sandbox-name", "web"),
        ("io.kubernetes.cri.sandbox-namespace", "team"),
        ("io.kubernetes.cri.sandbox-uid", "0e5c-11"),
    ];
    let one = host.asking("one", &annotations);
    one.is_given_its_slice();
    let plain = host.asking("plain", &[("gpuslice.io/memory", "8GiB")]);
    plain.is_given_its_slice();
    let places = HostPaths::below(host.path(""));
    let records = records::records(&places).unwrap();
    let pods: Vec<Option<Pod>> = records
        .into_iter()
        .map(|mut record| record.containers.remove(0).pod)
        .collect();
    let pod = Pod {
        namespace: "team".to_owned(),
        name: "web".to_owned(),
        uid: "0e5c-11".to_owned(),
        container: "server".to_owned(),
    };
    assert_eq!(pods, [Some(pod), None]);
}

/// The promise of a run that was killed with its watcher kept containers from starting.
#[test]
fn the_promise_of_a_run_that_has_ended_keeps_no_container_from_starting() {
    if !is_root() {
        return;
    }
    let host = Host::spark();
    fs::create_dir(host.run("promises")).unwrap();
    let mut run = ProcessId::of(std::process::id().cast_signed()).unwrap();
    // A process that had this number before.
    run.start_time -= 1;
    let id = tenants::promise_id(&run, "model");
    let promise = format!("promises/{}.{id}", 10u64 << 30);
    fs::write(host.run(&promise), [0; 8]).unwrap();
    // 92 GiB are left beside the reserve, and 82 beside the promise.
    let container = host.asking("c1", &[("gpuslice.io/memory", "87GiB")]);
    container.is_given_its_slice();
}

/// A tenant took all memory of the promises' file system, by an allocation that does not make its own
/// file longer. No other container started from then on.
#[test]
fn memory_that_a_tenant_allocates_beyond_its_promise_keeps_no_container_from_starting() {
    use nix::fcntl::{FallocateFlags, fallocate};
    if !is_root() {
        return;
    }
    let host = Host::spark();
    let first = host.asking("first", &[("gpuslice.io/memory", "8GiB")]);
    first.is_given_its_slice();
    let promise = host.run("promises").join(format!("{}.first", 8u64 << 30));
    let file = fs::File::options().write(true).open(&promise).unwrap();
    let keep = FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let page = |at: i64| fallocate(&file, keep, at * 4096, 4096);
    assert!((1..100_000).any(|at| page(at).is_err()), "it is never full");
    let facts = || file.metadata().unwrap();
    assert!(facts().len() == 4096 && facts().blocks() > 1000);
    let second = host.asking("second", &[("gpuslice.io/memory", "8GiB")]);
    second.is_given_its_slice();
    assert_eq!((facts().len(), facts().blocks()), (4096, 8));
}
