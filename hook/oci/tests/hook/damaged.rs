//! A slice record or a ledger that cannot be read. No other container gets its memory, and it is
//! removed only when its container is gone.
//! Touches: mount namespaces and cgroups of its own. Needs root.

use crate::support::{Container, Host, is_root, patience};
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::slices::gc::{self, Collected, Unreadable};
use std::fs;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

fn force(host: &Host) -> Collected {
    gc::collect_all(&HostPaths::below(host.path("")), Unreadable::Remove).unwrap()
}

/// Overwrites a container's record, so that it no longer names its container.
fn damage(host: &Host, id: &str) {
    fs::write(host.run(&format!("slices/{id}.json")), "\0\0").unwrap();
}

/// Asserts that `gc --force` keeps the record, names this sign of life, and removes no file of the
/// slice.
fn is_kept(host: &Host, container: &Container<'_>, sign: &str) {
    let left = host.left();
    let collected = force(host);
    let [said] = collected.failures.as_slice() else {
        panic!("{collected:?}");
    };
    let file = host.run(&format!("slices/{}.json", container.id));
    let begins = format!("{} is not a valid slice record (", file.display());
    assert!(said.starts_with(&begins) && said.contains(sign), "{said}");
    assert!(said.contains("stop the container of slice "), "{said}");
    let nothing = Collected {
        failures: collected.failures.clone(),
        ..Collected::default()
    };
    assert_eq!(collected, nothing);
    assert_eq!(host.left(), left);
}

#[test]
fn a_living_containers_damaged_record_stays_until_it_is_gone() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let mut container = host.asking("c1", &[("gpuslice.io/memory", "20GiB")]);
    container.is_given_its_slice();
    damage(&host, "c1");
    let other = host.container("other");
    let said = other.is_refused();
    let file = host.run("slices/c1.json").display().to_string();
    for part in [
        file.as_str(),
        "so no slice is admitted",
        "run gpuslice gc --force",
    ] {
        assert!(said.contains(part), "{said}");
    }
    // A container that requests no slice starts.
    host.asking("none", &[]).is_given_its_slice();
    is_kept(
        &host,
        &container,
        &format!("process {} has its files mounted", container.pid()),
    );
    // The mount of the ledger is not the only sign of life.
    let ledger = container
        .inside(".gpuslice/ledger/ledger")
        .display()
        .to_string();
    let seen = ledger.split_once("/root/").unwrap().1;
    let said = container.run_inside(&["umount", "-l", &format!("/{seen}")]);
    assert!(said.status.success(), "{said:?}");
    is_kept(&host, &container, "has its files mounted");
    // The page of its meminfo, and one of a slice that is long gone.
    let pages = HostPaths::below(host.path("")).pages();
    fs::create_dir_all(&pages).unwrap();
    for page in ["c1", "gone"] {
        fs::write(pages.join(page), "").unwrap();
    }
    container.dies();
    let refused = other.is_refused();
    assert!(
        refused.contains("gpuslice gc --force"),
        "only by force: {refused}"
    );
    let collected = force(&host);
    assert_eq!(collected.records, [host.run("slices/c1.json")]);
    assert!(collected.failures.is_empty(), "{collected:?}");
    assert_eq!(fs::read_dir(&pages).unwrap().count(), 0);
    fs::remove_dir(&pages).unwrap();
    assert_eq!(host.left(), Vec::<String>::new());
    other.is_given_its_slice();
}

#[test]
fn a_damaged_record_goes_with_its_container_when_the_runtime_says_so() {
    if !is_root() {
        return;
    }
    let host = Host::spark();
    let mut container = host.container("c1");
    container.is_given_its_slice();
    damage(&host, "c1");
    // While the container lives, even the runtime's poststop does not remove the record.
    let said = container.hook(&["poststop"]);
    assert!(
        String::from_utf8(said.stderr)
            .unwrap()
            .contains("not a valid slice record")
    );
    assert!(host.run("slices/c1.json").exists());
    container.dies();
    let said = container.hook(&["poststop"]);
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    // The promise is removed with the record.
    assert_eq!(host.left(), Vec::<String>::new());
}

#[test]
fn what_is_no_file_and_what_is_named_like_a_folder_above_harm_nobody() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let container = host.container("c1");
    container.is_given_its_slice();
    let before = host.left();
    for name in ["...json", "..json"] {
        fs::write(host.run("slices").join(name), "{").unwrap();
    }
    nix::unistd::mkfifo(&host.run("slices/pipe.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let collected = force(&host);
    assert_eq!(
        (collected.records.len(), collected.failures.len()),
        (3, 0),
        "{collected:?}"
    );
    assert_eq!(host.left(), before);
    assert!(container.hook(&["poststop"]).status.success());
    assert_eq!(host.left(), Vec::<String>::new());
}

/// Overwrites the first bytes of a container's ledger, as a tenant can in a sealed one, too.
fn damage_ledger(container: &Container<'_>) {
    let path = container.inside(".gpuslice/ledger/ledger");
    let file = fs::OpenOptions::new().read(true).write(true).open(path);
    let file = file.unwrap();
    let (length, access) = (4096, libc::PROT_READ | libc::PROT_WRITE);
    let (none, shared, fd) = (std::ptr::null_mut(), libc::MAP_SHARED, file.as_raw_fd());
    // SAFETY: a new mapping. Its first page is within the file.
    let page = unsafe { libc::mmap(none, length, access, shared, fd, 0) };
    assert_ne!(page, libc::MAP_FAILED);
    // SAFETY: the page is mapped, and no reference to it exists.
    unsafe { page.cast::<u64>().write_volatile(7) };
    // SAFETY: the mapping is this function's, and is not used any more.
    assert_eq!(unsafe { libc::munmap(page, length) }, 0);
}

/// With `--pid=host` a child outlives its container's first process. Its slice was given away.
#[test]
fn a_child_keeps_its_memory_promised_though_its_ledger_is_damaged() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let mut container = host.asking("early", &[("gpuslice.io/memory", "20GiB")]);
    container.is_given_its_slice();
    let target = container.pid().to_string();
    let mut child = Command::new("nsenter");
    let child = child.args(["--target", &target, "--mount", "--"]);
    let child = child.args(["sh", "-c", "echo; exec sleep 600"]);
    let child = child.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let _ = patience::lines(&mut child, "a container's child").next();
    damage_ledger(&container);
    container.dies();
    let left = host.left();
    let said = container.hook(&["poststop"]);
    let line = "early: one of its processes may still hold GPU memory: the slice is released when that \
                process ends";
    assert!(String::from_utf8(said.stderr).unwrap().contains(line));
    host.collect();
    assert_eq!(host.left(), left);
    let next = host.container("next");
    let said = next.is_refused();
    assert!(said.contains("held by early 20.00 GiB"), "{said}");
    // A damaged ledger keeps the slice no longer than its processes live.
    patience::kill(&mut child);
    next.is_given_its_slice();
    assert!(next.hook(&["poststop"]).status.success());
    assert_eq!(host.left(), Vec::<String>::new());
}

/// A process that waits in the driver survives SIGKILL, so it can live at poststop. Its slice was given
/// away if its ledger was damaged as well.
#[test]
fn a_first_process_that_lives_keeps_a_slice_with_a_damaged_ledger() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let mut container = host.asking("stuck", &[("gpuslice.io/memory", "20GiB")]);
    container.is_given_its_slice();
    damage_ledger(&container);
    let left = host.left();
    let said = container.hook(&["poststop"]);
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains("may still hold GPU memory"), "{said}");
    assert_eq!(host.left(), left);
    let next = host.container("next");
    let said = next.is_refused();
    assert!(said.contains("held by stuck 20.00 GiB"), "{said}");
    container.dies();
    next.is_given_its_slice();
    assert!(next.hook(&["poststop"]).status.success());
    assert_eq!(host.left(), Vec::<String>::new());
}
