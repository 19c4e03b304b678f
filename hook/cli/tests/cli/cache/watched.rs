//! The filesystems that `gpusliced` watches: those that cannot be watched, those that are mounted
//! later, and files on them that cannot be opened.
//! Touches: children in mount namespaces of their own; sysfs, without a change. Needs root.

use super::gpusliced::{Daemon, folder, own, write};
use crate::support::told;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// A configuration that watches `paths` for files with this suffix.
fn watch(paths: &[&Path], suffix: &str) -> String {
    format!(
        "[page-cache]\npaths = {paths:?}\nsmallest = \"4MiB\"\nsuffixes = [\"{suffix}\"]\n\
         settle_seconds = 0.0\n"
    )
}

/// Adds metrics on a socket to a configuration.
fn served(config: &str, socket: &Path) -> String {
    format!("[metrics]\nlisten = {socket:?}\n{config}")
}

fn health(socket: &Path) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.rsplit("\r\n").next().unwrap().to_owned()
}

/// A file of sysfs that no process may read, not even root.
fn write_only() -> PathBuf {
    let buses = fs::read_dir("/sys/bus").unwrap();
    let mut files = buses.map(|bus| bus.unwrap().path().join("uevent"));
    let is_it = |file: &PathBuf| file.metadata().unwrap().permissions().mode() & 0o777 == 0o200;
    files.find(is_it).unwrap()
}

#[test]
fn a_closed_file_that_it_may_not_open_does_not_stop_the_daemon() {
    let folder = folder();
    let suffix = own("beside");
    let config = watch(&[folder.path(), Path::new("/sys/bus")], &suffix);
    let mut daemon = Daemon::start_by(&[], folder.path(), &config);
    daemon.until("watching the filesystem of /sys/bus");
    let hidden = write_only();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The kernel reports the error only if this file is the first of the queue.
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                drop(File::options().write(true).open(&hidden).unwrap());
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        daemon.until("a file that was closed cannot be opened, and is skipped: EACCES");
        is_over.store(true, Ordering::Relaxed);
    });
    write(&folder.path().join(format!("model.{suffix}")));
    daemon.until(&format!("/model.{suffix}, 0 B left"));
}

#[test]
fn a_missing_folder_stops_no_other_part_and_is_watched_once_it_exists() {
    let folder = folder();
    let suffix = own("partly");
    let (late, socket) = (folder.path().join("late"), folder.path().join("socket"));
    let config = served(&watch(&[&late, folder.path()], &suffix), &socket);
    let mut daemon = Daemon::start_by(&[], folder.path(), &config);
    let of = |path: &Path| format!("the filesystem of {}", path.display());
    daemon.until(&format!(
        "cannot watch {}: ENOENT: No such file or directory; trying again",
        of(&late)
    ));
    daemon.until("metrics are at");
    assert_eq!(health(&socket), "ok\n");
    write(&folder.path().join(format!("model.{suffix}")));
    daemon.until(&format!("/model.{suffix}, 0 B left"));
    fs::create_dir(&late).unwrap();
    let said = daemon.until(&format!("watching {}", of(&late)));
    assert_eq!(said.len(), 1, "the reason is told again: {said:?}");
}

#[test]
fn a_daemon_that_may_not_watch_still_serves_metrics() {
    let folder = folder();
    let socket = folder.path().join("socket");
    let config = served(&watch(&[folder.path()], "never"), &socket);
    let without = ["setpriv", "--bounding-set=-sys_admin"];
    let mut daemon = Daemon::start_by(&without, folder.path(), &config);
    daemon.until("cannot watch filesystems (requires CAP_SYS_ADMIN): EPERM");
    daemon.until("metrics are at");
    assert_eq!(health(&socket), "ok\n");
}

/// Runs a shell script in the mount namespace of a daemon.
fn inside(daemon: &Daemon, script: &str, argument: &Path) {
    let namespace = format!("--mount=/proc/{}/ns/mnt", daemon.process.id());
    let mut command = Command::new("nsenter");
    command
        .args([&namespace, "sh", "-ec", script])
        .arg(argument);
    assert_eq!(told(&mut command), (String::new(), String::new(), 0));
}

/// A shell script that mounts an overlay on `models` of the current folder.
const MOUNT: &str =
    "mount -t overlay overlay -o lowerdir=models,upperdir=upper,workdir=work models";

/// Makes a folder with what [`MOUNT`] needs.
fn layers() -> TempDir {
    let folder = folder();
    for name in ["models", "upper", "work"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    folder
}

#[test]
fn a_filesystem_that_is_mounted_later_is_watched_instead_of_the_one_below() {
    let folder = layers();
    let suffix = own("mounted");
    let at = |name: &str| folder.path().join(name);
    let apart = "mount --make-rprivate / && exec \"$0\" \"$@\"";
    let by = ["unshare", "--mount", "sh", "-c", apart];
    let config = watch(&[&at("models")], &suffix);
    let mut daemon = Daemon::start_by(&by, folder.path(), &config);
    let watching = format!("watching the filesystem of {}", at("models").display());
    let dropped = |name: &str| format!("/{name}.{suffix}, 0 B left");
    daemon.until(&watching);

    let mount = &format!("cd \"$0\"; {MOUNT}");
    inside(&daemon, mount, folder.path());
    daemon.until(&watching);
    write(&at(&format!("below.{suffix}")));
    let copy = format!("cd \"$0\"; cp below.{suffix} models/above.{suffix}");
    inside(&daemon, &copy, folder.path());
    let said = daemon.until(&dropped("above"));
    let below = said.iter().find(|line| line.contains(&dropped("below")));
    assert_eq!(below, None);

    // An event that waits to be read holds its file, and so the filesystem.
    let unmount = "cd \"$0\"; until umount models 2> /dev/null; do sleep 0.01; done";
    inside(&daemon, unmount, folder.path());
    daemon.until(&watching);
    write(&at(&format!("models/again.{suffix}")));
    daemon.until(&dropped("again"));

    // Another filesystem, to which the kernel gives the numbers of the former.
    inside(&daemon, mount, folder.path());
    daemon.until(&watching);
    inside(&daemon, &format!("{unmount}; {mount}"), folder.path());
    daemon.until(&watching);
    inside(&daemon, &copy.replace("above", "anew"), folder.path());
    daemon.until(&dropped("anew"));
}

#[test]
fn a_sparse_file_of_terabytes_does_not_keep_the_daemon_busy() {
    let folder = layers();
    let suffix = own("sparse");
    // On an overlay, the daemon cannot count pages by cachestat.
    let apart = format!(
        "mount --make-rprivate / && cd {:?} && {MOUNT} && exec \"$0\" \"$@\"",
        folder.path()
    );
    let by = ["unshare", "--mount", "sh", "-c", &apart];
    let config = watch(&[&folder.path().join("models")], &suffix);
    let mut daemon = Daemon::start_by(&by, folder.path(), &config);
    daemon.until("watching the filesystem of");
    let sparse = format!("cd \"$0/models\"; truncate -s 15T long.{suffix}");
    inside(&daemon, &sparse, folder.path());
    daemon.until(&format!("/long.{suffix}, whose cached amount is unknown"));
    let model = format!("cd \"$0/models\"; head -c 8M /dev/zero > model.{suffix}");
    inside(&daemon, &model, folder.path());
    daemon.until(&format!("/model.{suffix}, 0 B left"));
}
