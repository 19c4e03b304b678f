//! The pages of model files are dropped before a container starts and after it has stopped.
//! Touches: files on a disk; mount namespaces of its own. Needs root.

use crate::support::{Host, is_root, patience};
use gpuslice_hook::apply::page_cache::{Dropped, drop_folder, drop_folders};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

const LENGTH: usize = 1 << 20;

fn model(path: &Path) {
    let mut file = File::create(path).unwrap();
    file.write_all(&vec![7; LENGTH]).unwrap();
    file.sync_all().unwrap();
    drop(file);
    assert_eq!(fs::read(path).unwrap().len(), LENGTH);
}

fn resident(path: &Path) -> usize {
    let mut fincore = Command::new("fincore");
    let asks = fincore.args(["--bytes", "--noheadings", "--output", "RES"]);
    let said = patience::output(asks.arg(path));
    String::from_utf8(said.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}

/// Whether the file is still cached. The kernel may have evicted some of its pages.
fn is_cached(path: &Path) -> bool {
    resident(path) > LENGTH / 2
}

/// Makes a folder on a disk, because the pages of a tmpfs cannot be dropped.
fn folder() -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let on_disk = nix::sys::statfs::statfs(folder.path())
        .unwrap()
        .filesystem_type()
        != nix::sys::statfs::TMPFS_MAGIC;
    if !on_disk {
        println!("not run: {} is a tmpfs", folder.path().display());
    }
    on_disk.then_some(folder)
}

#[test]
fn what_is_in_the_folder_goes_and_what_a_link_names_stays() {
    let Some(folder) = folder() else { return };
    let outside = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let other = outside.path().join("other");
    model(&other);
    let models = folder.path();
    fs::create_dir_all(models.join("hub/blobs")).unwrap();
    let (one, two) = (models.join("one.safetensors"), models.join("hub/blobs/two"));
    model(&one);
    model(&two);
    symlink(&other, models.join("link")).unwrap();
    symlink(outside.path(), models.join("hub/folder-link")).unwrap();
    nix::unistd::mkfifo(&models.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(is_cached(&one) && is_cached(&two));
    let done = drop_folder(models).unwrap();
    let expected = Dropped {
        files: 2,
        unread: 0,
        unfinished: false,
    };
    assert_eq!(done, expected);
    assert_eq!((resident(&one), resident(&two)), (0, 0));
    assert!(is_cached(&other));
    assert!(drop_folder(&models.join("link")).is_err());
}

#[test]
fn a_policys_mounts_are_dropped_before_the_start_and_after_the_stop() {
    if !is_root() {
        return;
    }
    let Some(folder) = folder() else { return };
    let file = folder.path().join("model");
    model(&file);
    let host = Host::new();
    host.policy("[page-cache]\nmode = \"drop\"\nmounts = [\"/models\"]");
    let container = host.container("c1");
    let spec = serde_json::json!({
        "root": {"path": "rootfs"}, "annotations": {"gpuslice.io/memory": "8GiB"},
        "mounts": [{"destination": "/models", "type": "bind", "source": folder.path()}],
    });
    let config = container.bundle.join("config.json");
    fs::write(&config, spec.to_string()).unwrap();
    assert!(is_cached(&file));
    container.is_given_its_slice();
    assert_eq!(resident(&file), 0);
    assert_eq!(fs::read(&file).unwrap().len(), LENGTH);
    assert!(is_cached(&file));
    // The bundle is gone when the runtime calls poststop.
    fs::remove_file(&config).unwrap();
    assert!(container.hook(&["poststop"]).status.success());
    assert_eq!(resident(&file), 0);
}

#[test]
fn a_volume_with_very_many_files_keeps_no_container_waiting() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for file in 0..10_100 {
        File::create(folder.path().join(file.to_string())).unwrap();
    }
    let done = drop_folder(folder.path()).unwrap();
    assert_eq!((done.files, done.unfinished), (10_000, true));
}

/// The runtime waits for the hook, however many folders an annotation names.
#[test]
fn the_limit_on_files_is_one_for_all_folders_of_a_container() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    for folder in &folders {
        for number in 0..6_000 {
            File::create(folder.path().join(number.to_string())).unwrap();
        }
    }
    let paths = folders.each_ref().map(|folder| folder.path().to_owned());
    let lines = drop_folders(&paths);
    assert_eq!(
        lines,
        [format!(
            "dropped the pages of 4000 files in {} and stopped after 10000 files or 10 s; the other files \
             stay cached",
            paths[1].display()
        )]
    );
}

/// A folder of a file system whose server never answers, as NFS without its server.
struct Silent {
    folder: tempfile::TempDir,
    _server: File,
}

impl Silent {
    fn new() -> Option<Silent> {
        let server = File::options().read(true).write(true).open("/dev/fuse");
        let server = server.ok().filter(|_| is_root())?;
        let folder = tempfile::tempdir().unwrap();
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0",
            std::os::fd::AsRawFd::as_raw_fd(&server)
        );
        let (kind, flags) = (Some("fuse"), nix::mount::MsFlags::empty());
        let options = Some(options.as_str());
        nix::mount::mount(Some("silent"), folder.path(), kind, flags, options).ok()?;
        Some(Silent {
            folder,
            _server: server,
        })
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let flags = nix::mount::MntFlags::MNT_FORCE | nix::mount::MntFlags::MNT_DETACH;
        let _ = nix::mount::umount2(self.folder.path(), flags);
    }
}

#[test]
fn a_file_system_that_does_not_answer_keeps_no_container_waiting() {
    let Some(silent) = Silent::new() else {
        println!("not run: no FUSE here, or not root");
        return;
    };
    let start = std::time::Instant::now();
    let path = silent.folder.path().to_owned();
    let lines = drop_folders(std::slice::from_ref(&path));
    assert_eq!(
        lines,
        [format!(
            "stopped dropping the pages of {} after 11 s: a file system or a disk does not answer",
            path.display()
        )]
    );
    assert!(start.elapsed().as_secs() < 60);
}
