//! The filesystems that `gpusliced` watches, and files on them that cannot be opened.
//! Touches: sysfs, without a change. Needs root.

use super::gpusliced::{Daemon, folder, own, write};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A configuration that watches `paths` for files with this suffix.
fn watch(paths: &[&Path], suffix: &str) -> String {
    format!(
        "[page-cache]\npaths = {paths:?}\nsmallest = \"4MiB\"\nsuffixes = [\"{suffix}\"]\n\
         settle_seconds = 0.0\n"
    )
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
