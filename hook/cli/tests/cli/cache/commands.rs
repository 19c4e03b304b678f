//! `gpuslice drop-cache` and `gpuslice residency`, with real files, mounts and processes.

use crate::support::cached::{
    MAPS, MIB, cached, content, dirty, drop_cache, end, folder, gpuslice, json, names, only,
    python, resident,
};
use crate::support::terminal::Terminal;
use crate::support::told;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn what_was_read_is_gone_and_reads_the_same() {
    let folder = folder();
    let path = folder.path().join("model.gguf");
    cached(&path, 5 * MIB + 17);
    assert!(resident(&path) >= 5 << 20, "the file is not cached");
    let (said, status) = drop_cache(&[&path], &[]);
    let file = only(&said);
    assert_eq!(
        (status, &file["state"], &file["after"]),
        (0, &"dropped".into(), &0.into())
    );
    assert!(file["before"].as_u64().unwrap() >= 5 << 20);
    assert_eq!(resident(&path), 0);
    assert_eq!(fs::read(&path).unwrap(), content(5 * MIB + 17));
}

#[test]
fn what_was_just_written_is_on_the_device_before_it_is_gone() {
    let folder = folder();
    let path = folder.path().join("model.bin");
    dirty(&path, 9 * MIB);
    let (said, status) = drop_cache(&[&path], &[]);
    assert_eq!((status, &only(&said)["after"]), (0, &0.into()), "{said}");
    assert_eq!(fs::read(&path).unwrap(), content(9 * MIB));
}

#[test]
fn residency_on_a_terminal_counts_the_files_that_it_has_looked_at() {
    let folder = folder();
    for number in 0..300 {
        dirty(&folder.path().join(format!("{number}.safetensors")), 1);
    }
    let mut terminal = Terminal::new(24, 100);
    let errors = terminal.errors();
    let mut command = gpuslice();
    command.args(["residency", "--summary"]).arg(folder.path());
    let shown = terminal.run(command.stderr(errors));
    let written = String::from_utf8_lossy(&terminal.written);
    assert!(written.contains("looking at "), "{written}");
    // The line makes room for the result.
    assert!(!shown.contains("looking at "), "{shown}");
    assert!(shown.contains("300 files"), "{shown}");
}

#[test]
fn who_has_mapped_what_stays_is_named_until_it_is_gone() {
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    cached(&path, 4 * MIB);
    let holder = python(MAPS, &[&path]);
    let (said, status) = drop_cache(&[folder.path()], &[]);
    let file = only(&said);
    let expected = serde_json::json!([{"pid": holder.id(), "name": "python3"}]);
    assert_eq!(
        (status, &file["state"], &file["mapped_by"]),
        (1, &"left".into(), &expected)
    );
    assert_eq!(file["after"].as_u64(), Some(4 << 20));
    let (text, err, status) = told(gpuslice().arg("drop-cache").arg(&path));
    let line = format!("  mapped by python3 (pid {})\n", holder.id());
    assert!(
        text.contains(&line) && err.is_empty() && status == 1,
        "{text}{err}"
    );
    end(holder);
    assert_eq!(drop_cache(&[&path], &[]).1, 0);
    assert_eq!(resident(&path), 0);
}

#[test]
fn what_a_live_process_has_mapped_is_paged_out_and_faults_in_again() {
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    cached(&path, 8 * MIB);
    let holder = python(MAPS, &[&path]);
    let pid = holder.id().to_string();
    let (said, status) = drop_cache(&[], &["--live", &pid]);
    assert_eq!(names(&said), ["model.safetensors"]);
    assert!(only(&said)["before"].as_u64().unwrap() >= 8 << 20, "{said}");
    assert_eq!((status, &only(&said)["after"]), (0, &0.into()), "{said}");
    assert_eq!(resident(&path), 0);
    end(holder);
    let (_, err, status) = told(gpuslice().args(["drop-cache", "--live", "999999999"]));
    assert_eq!(
        (err.as_str(), status),
        (
            "gpuslice: no process 999999999: No such process (os error 3)\n",
            125
        )
    );
}

#[test]
fn memory_is_named_as_what_cannot_be_dropped() {
    let shared = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = shared.path().join("model.gguf");
    fs::write(&path, content(MIB)).unwrap();
    let (said, status) = drop_cache(&[shared.path()], &[]);
    let file = only(&said);
    assert_eq!(
        (status, &file["state"]),
        (0, &"not-droppable".into()),
        "{said}"
    );
    assert_eq!(file["why"], "tmpfs: its pages are the file itself");
    assert_eq!(
        (file["before"].as_u64(), file["after"].as_u64()),
        (Some(1 << 20), Some(1 << 20))
    );
    let script = "
import os, sys
file = os.memfd_create('weights')
os.write(file, bytes(1 << 20))
print('ready', flush=True)
sys.stdin.read()";
    let holder = python(script, &[]);
    let script =
        "for fd in /proc/$0/fd/*; do case $(readlink $fd) in /memfd:*) echo $fd;; esac; done";
    let pid = holder.id().to_string();
    let (memfd, _, _) = told(Command::new("sh").args(["-c", script, &pid]));
    let (said, _) = drop_cache(&[Path::new(memfd.trim())], &[]);
    assert_eq!(only(&said)["why"], "memfd: its pages are the file itself");
    end(holder);
}

#[test]
fn folders_give_their_model_files_once_and_links_lead_where_they_point() {
    let root = folder();
    let at = |name: &str| root.path().join(name);
    fs::create_dir_all(at("snapshots/deep")).unwrap();
    fs::create_dir(at("blobs")).unwrap();
    cached(&at("blobs/4a5b"), MIB);
    cached(&at("blobs/unnamed"), MIB);
    let checksum = format!("blobs/sha256-{}", "0123456789abcdef".repeat(4));
    cached(&at(&checksum), MIB);
    cached(&at("snapshots/deep/plain.GGUF"), MIB);
    cached(&at("notes.txt"), MIB);
    fs::write(at("empty.bin"), "").unwrap();
    symlink("../../blobs/4a5b", at("snapshots/deep/model.safetensors")).unwrap();
    fs::hard_link(at("snapshots/deep/plain.GGUF"), at("again.gguf")).unwrap();
    symlink("../..", at("snapshots/deep/up")).unwrap();
    symlink("itself.bin", at("itself.bin")).unwrap();
    symlink("nowhere", at("dangling.bin")).unwrap();
    let (said, status) = drop_cache(&[root.path(), root.path(), &at("snapshots")], &[]);
    assert_eq!(
        (said["files"].as_array().unwrap().len(), status),
        (4, 0),
        "{said}"
    );
    assert!(names(&said).contains(&"model.safetensors".to_owned()));
    assert_eq!(
        (resident(&at("blobs/4a5b")), resident(&at("again.gguf"))),
        (0, 0)
    );
    assert_eq!(resident(&at(&checksum)), 0);
    for other in ["blobs/unnamed", "notes.txt"] {
        assert!(resident(&at(other)) > 0, "{other} was not meant");
    }
    let (said, _) = drop_cache(&[root.path()], &["--suffix", ".txt"]);
    assert_eq!(names(&said), ["notes.txt"]);
    let (said, status) = drop_cache(&[root.path()], &["--all"]);
    assert_eq!(
        (said["files"].as_array().unwrap().len(), status),
        (6, 0),
        "{said}"
    );
    assert_eq!(resident(&at("blobs/unnamed")), 0);
}

#[test]
fn what_is_not_there_or_no_file_is_named_and_fails() {
    let folder = folder();
    let pipe = folder.path().join("pipe.bin");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let missing = folder.path().join("missing.bin");
    let (said, status) = drop_cache(&[&missing, &pipe], &[]);
    let why = |at: usize| said["files"][at]["why"].as_str().unwrap().to_owned();
    assert_eq!(why(0), "No such file or directory (os error 2)");
    assert_eq!(why(1), "is a pipe, which has no page cache of its own");
    assert_eq!(status, 1);
    // In a folder such a file was not named by the caller, so it is no error.
    assert_eq!(drop_cache(&[folder.path()], &["--all"]).1, 0);
}

/// Runs gpuslice as a user who owns no file here. Only root can change to that user.
fn as_nobody(arguments: &[&str], path: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    // The path to the executable may lead through folders that only its owner may enter.
    let copy = Path::new("/dev/shm").join(format!("gpuslice-nobody-{}", std::process::id()));
    if !copy.exists() {
        // `cp` makes the copy. If this process wrote it, each child forked meanwhile would have it
        // open for writing, and it could not be executed.
        let built = env!("CARGO_BIN_EXE_gpuslice");
        let copied = Command::new("cp").arg(built).arg(&copy).status().unwrap();
        assert!(copied.success());
    }
    command.arg(copy).args(arguments).arg(path);
    command
}

#[test]
fn who_may_not_know_is_told_that_and_never_a_guess() {
    if !nix::unistd::geteuid().is_root() {
        // Without root there is only one user, and that user may know.
        return;
    }
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (path, secret) = (
        folder.path().join("a.bin"),
        folder.path().join("secret.bin"),
    );
    cached(&path, MIB);
    cached(&secret, MIB);
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let state = |said: &Value, name: &str| {
        let files = said["files"].as_array().unwrap();
        let file = files
            .iter()
            .find(|file| file["path"].as_str().unwrap().ends_with(name));
        (
            file.unwrap()["state"].clone(),
            file.unwrap()["before"].clone(),
        )
    };
    let (said, status) = json(&mut as_nobody(&["residency"], folder.path()));
    assert_eq!(status, 1);
    assert_eq!(state(&said, "/a.bin"), ("unknown".into(), Value::Null));
    assert_eq!(
        state(&said, "/secret.bin"),
        ("unreadable".into(), Value::Null)
    );
    // This user may drop a file that it can read, but cannot see whether the pages are gone.
    let (said, status) = json(&mut as_nobody(&["drop-cache"], folder.path()));
    assert_eq!((status, state(&said, "/a.bin").0), (1, "unknown".into()));
    assert_eq!(resident(&path), 0);
    assert!(resident(&secret) > 0);
    // Of its own file it sees all, but not whether processes of root map it, such as this one.
    std::os::unix::fs::chown(&path, Some(65534), Some(65534)).unwrap();
    cached(&path, MIB);
    let (said, status) = json(&mut as_nobody(&["drop-cache", "--dry-run"], &path));
    assert_eq!((status, state(&said, "/a.bin").0), (0, "cached".into()));
    let unseen = said["unseen_processes"].as_array().unwrap();
    let is_own = |one: &&Value| one["pid"] == std::process::id();
    assert_eq!(unseen.iter().filter(is_own).count(), 1, "{said}");
    let _ = fs::remove_file(format!("/dev/shm/gpuslice-nobody-{}", std::process::id()));
}

#[test]
fn through_an_overlay_the_pages_below_are_counted_and_dropped() {
    let folder = folder();
    let (below, other) = (folder.path().join("below"), folder.path().join("other"));
    let merged = folder.path().join("merged");
    for one in [&below, &other, &merged] {
        fs::create_dir(one).unwrap();
    }
    cached(&below.join("model.gguf"), 6 * MIB);
    let mut command = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    let script = "mount -t overlay overlay -o lowerdir=$1:$2 $3 && cat $3/model.gguf >/dev/null &&
        $0 residency --json $3 && $0 drop-cache --json $3";
    command.args([
        "--mount",
        "sh",
        "-c",
        script,
        env!("CARGO_BIN_EXE_gpuslice"),
    ]);
    let (out, err, status) = told(command.args([&below, &other, &merged]));
    assert_eq!((err.as_str(), status), ("", 0));
    let mut said = serde_json::Deserializer::from_str(&out).into_iter::<Value>();
    let (shown, dropped) = (said.next().unwrap().unwrap(), said.next().unwrap().unwrap());
    assert_eq!(only(&shown)["counted_by"], "mincore");
    // The kernel may have evicted some of the 6 MiB.
    let before = only(&shown)["before"].as_u64();
    assert!(
        before.is_some_and(|before| (3 << 20..=6 << 20).contains(&before)),
        "{shown}"
    );
    assert_eq!(only(&dropped)["state"], "dropped");
    assert_eq!(resident(&below.join("model.gguf")), 0);
}

#[test]
fn files_that_come_and_go_meanwhile_do_no_harm() {
    let folder = folder();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let name = |number: usize| folder.path().join(format!("{number}.bin"));
            for number in 0.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                fs::write(name(number % 50), content(70_000)).unwrap();
                let _ = fs::remove_file(name((number * 7) % 50));
            }
        });
        for _ in 0..20 {
            let (said, status) = drop_cache(&[folder.path()], &[]);
            let unexpected = |file: &&Value| {
                !["dropped", "not-cached", "left"].contains(&file["state"].as_str().unwrap())
            };
            let bad: Vec<&Value> = said["files"]
                .as_array()
                .unwrap()
                .iter()
                .filter(unexpected)
                .collect();
            assert!(bad.is_empty() && [0, 1].contains(&status), "{bad:?}");
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(drop_cache(&[folder.path()], &[]).1, 0);
}
