//! The lever on real cgroups: /dev/null and /dev/zero (major 1) stand for GPUs.

use super::*;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn the_group_of_a_process_is_found_in_both_versions() {
    let root = tempfile::tempdir().unwrap();
    let v1 = "5:devices:/docker/ab\n0::/docker/ab\n";
    let found = Group::in_text(v1, root.path());
    assert_eq!(
        found,
        Some(Group::V1(root.path().join("devices/docker/ab")))
    );
    let v2 = "0::/system.slice/docker-ab.scope\n";
    let path = "system.slice/docker-ab.scope";
    let found = Group::in_text(v2, root.path());
    assert_eq!(found, Some(Group::V2(root.path().join(path))));
    fs::create_dir(root.path().join("unified")).unwrap();
    let found = Group::in_text(v2, root.path());
    assert_eq!(
        found,
        Some(Group::V2(root.path().join("unified").join(path)))
    );
    let both = "5:devices:/\n0::/docker/ab\n";
    let found = Group::in_text(both, root.path());
    assert_eq!(
        found,
        Some(Group::V2(root.path().join("unified/docker/ab")))
    );
    for none in ["", "5:devices:/\n0::/\n", "0::/\n", "0::/../../host\n", "x"] {
        assert_eq!(Group::in_text(none, root.path()), None, "{none}");
    }
}

#[test]
fn this_process_is_in_no_container() {
    let own = i32::try_from(std::process::id()).unwrap();
    assert_eq!(Group::of_container(own), None);
    assert_eq!(Group::of_container(-1), None);
}

#[test]
fn the_numbers_of_the_devices_are_read() {
    let text = "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n236 nvidia-caps\n\
                510 nvidia-uvm\n\nBlock devices:\n  7 loop\n195 nvidia\n";
    assert_eq!(majors_in(text), [195, 236, 510]);
    assert_eq!(majors_in(""), Vec::<u32>::new());
}

/// A shell in a cgroup, which opens /dev/zero for each line of its input.
struct Opener {
    shell: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Opener {
    fn start(folder: &Path) -> Opener {
        let script = "echo $$ > \"$0\"; echo ready; while read line; do \
                      if { : < /dev/zero; } 2>&-; then echo opened; else echo refused; fi; done";
        let mut shell = Command::new("bash")
            .args(["-c", script])
            .arg(folder.join("cgroup.procs"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(shell.stdout.take().unwrap());
        let mut opener = Opener { shell, out };
        assert_eq!(opener.line(), "ready\n");
        opener
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line
    }

    fn opens(&mut self) -> bool {
        writeln!(self.shell.stdin.as_mut().unwrap(), "open").unwrap();
        self.line() == "opened\n"
    }
}

/// A cgroup of a test, which is removed at the end.
struct Own(PathBuf);

impl Own {
    /// Creates a cgroup with this name below a hierarchy. None if the hierarchy is not mounted, or if
    /// this process may not change it.
    fn new(root: &str, name: &str) -> Option<Own> {
        let root = Path::new(root);
        let is_there = root.join("cgroup.procs").exists() && nix::unistd::geteuid().is_root();
        let folder = root.join(format!("gpuslice-lever-{name}-{}", std::process::id()));
        (is_there && fs::create_dir(&folder).is_ok()).then_some(Own(folder))
    }

    /// Creates one of version 2, on a host that has only this version or both.
    fn of_version_2(name: &str) -> Option<Own> {
        Own::new("/sys/fs/cgroup/unified", name).or_else(|| Own::new(ROOT, name))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn new_opens_are_refused_until_the_lever_is_dropped(group: &Group, folder: &Path) {
    let mut opener = Opener::start(folder);
    assert!(opener.opens());
    let lever = Lever::pull(group, &[1, 195], |_| ()).unwrap();
    assert!(!opener.opens());
    // Others are not affected.
    File::open("/dev/zero").unwrap();
    drop(lever);
    assert!(opener.opens());
    opener.shell.kill().unwrap();
    opener.shell.wait().unwrap();
}

/// A daemon that starts a program has a child for a moment that shares all of its descriptors.
#[test]
fn a_copy_of_the_link_in_a_child_does_not_keep_the_lever() {
    let Some(own) = Own::of_version_2("copy") else {
        eprintln!("not run: no cgroup of version 2, or not root");
        return;
    };
    let mut opener = Opener::start(&own.0);
    let lever = Lever::pull(&Group::V2(own.0.clone()), &[1], |_| ()).unwrap();
    let Lever::V2(link) = &lever else {
        panic!("{lever:?} is of version 2");
    };
    let copy = link.try_clone().unwrap();
    assert!(!opener.opens());
    drop(lever);
    assert!(opener.opens());
    drop(copy);
    opener.shell.kill().unwrap();
    opener.shell.wait().unwrap();
}

#[test]
fn version_1_refuses_new_opens_until_the_lever_is_dropped() {
    let Some(own) = Own::new("/sys/fs/cgroup/devices", "rules") else {
        eprintln!("not run: no devices controller of version 1, or not root");
        return;
    };
    new_opens_are_refused_until_the_lever_is_dropped(&Group::V1(own.0.clone()), &own.0);
    // A container's list of single devices comes back as it was.
    fs::write(own.0.join("devices.deny"), "a").unwrap();
    for rule in ["c 1:5 rw", "c 195:0 rwm", "c 5:* rwm"] {
        fs::write(own.0.join("devices.allow"), rule).unwrap();
    }
    let list = || fs::read_to_string(own.0.join("devices.list")).unwrap();
    let before = list();
    let lever = Lever::pull(&Group::V1(own.0.clone()), &[1, 195], |_| ()).unwrap();
    assert_eq!(list(), "c 5:* rwm\n");
    drop(lever);
    let sorted = |text: String| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(list()), sorted(before));
    let none = Lever::pull(&Group::V1(own.0.clone()), &[77], |_| ()).unwrap_err();
    assert_eq!(none.kind(), io::ErrorKind::NotFound);
}

#[test]
fn version_2_refuses_new_opens_until_the_lever_is_dropped() {
    let Some(own) = Own::of_version_2("opens") else {
        eprintln!("not run: no cgroup of version 2, or not root");
        return;
    };
    new_opens_are_refused_until_the_lever_is_dropped(&Group::V2(own.0.clone()), &own.0);
}

/// The kernel gives up checking a program with EAGAIN when a signal arrives.
#[test]
fn a_signal_does_not_keep_the_lever_from_being_pulled() {
    let Some(own) = Own::of_version_2("signals") else {
        eprintln!("not run: no cgroup of version 2, or not root");
        return;
    };
    extern "C" fn ignore(_: libc::c_int) {}
    let action = SigAction::new(
        SigHandler::Handler(ignore),
        SaFlags::SA_RESTART,
        SigSet::empty(),
    );
    // SAFETY: the handler does nothing, and no other test of this binary uses the signal.
    unsafe { sigaction(Signal::SIGURG, &action) }.unwrap();
    // SAFETY: this only asks for the calling thread's identity.
    let target = unsafe { libc::pthread_self() };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // SAFETY: the thread waits for the end of this scope, so it exists.
                unsafe { libc::pthread_kill(target, libc::SIGURG) };
                std::thread::sleep(Duration::from_micros(20));
            }
        });
        let pulls = (0..200).map(|_| Lever::pull(&Group::V2(own.0.clone()), &[1], |_| ()));
        let refused: Vec<_> = pulls.filter_map(Result::err).collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(refused.is_empty(), "{refused:?}");
    });
}
