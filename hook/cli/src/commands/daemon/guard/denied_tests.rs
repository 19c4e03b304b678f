//! Containers that can open no GPU: plain files stand for the devices controller of version 1.

use super::*;
use std::path::Path;

fn places() -> (tempfile::TempDir, HostPaths) {
    let root = tempfile::tempdir().unwrap();
    let places = HostPaths::below(root.path());
    fs::create_dir_all(places.run()).unwrap();
    (root, places)
}

/// A cgroup whose processes can open two GPUs and /dev/zero.
fn cgroup(root: &Path) -> PathBuf {
    let folder = root.join("devices");
    fs::create_dir(&folder).unwrap();
    let rules = "c 1:5 rw\nc 195:0 rw\nc 195:255 rw\n";
    fs::write(folder.join("devices.list"), rules).unwrap();
    folder
}

fn suspect(container: i32) -> Suspect {
    Suspect {
        pod: None,
        slice: "chat".to_owned(),
        user: None,
        containers: vec![container],
        pid: 77,
        name: "server".to_owned(),
        device: "GPU-1".to_owned(),
        bytes: 1 << 30,
        limit: None,
        has_library: false,
    }
}

/// A guard that has refused GPUs to the processes of a cgroup.
fn refused(places: &HostPaths, folder: &Path) -> Denied {
    let mut denied = Denied::new(places, |_| ());
    denied
        .refuse(Group::V1(folder.to_owned()), &[195], &suspect(5))
        .unwrap();
    denied
}

fn last(folder: &Path, name: &str) -> Option<String> {
    fs::read_to_string(folder.join(name)).ok()
}

#[test]
fn a_container_that_a_killed_guard_refused_gpus_gets_them_back_from_the_next() {
    let (root, places) = places();
    let folder = cgroup(root.path());
    let denied = refused(&places, &folder);
    assert_eq!(last(&folder, "devices.deny").unwrap(), "c 195:255 rw");
    // A killed process drops nothing.
    std::mem::forget(denied);
    assert_eq!(last(&folder, "devices.allow"), None);
    drop(Denied::new(&places, |_| ()));
    assert_eq!(last(&folder, "devices.allow").unwrap(), "c 195:255 rw");
    assert!(!places.run().join(FILE).exists());
}

#[test]
fn another_cgroup_at_the_same_path_is_left_alone() {
    let (root, places) = places();
    let folder = cgroup(root.path());
    let denied = refused(&places, &folder);
    std::mem::forget(denied);
    fs::rename(&folder, root.path().join("ended")).unwrap();
    let other = cgroup(root.path());
    drop(Denied::new(&places, |text| panic!("{text}")));
    assert_eq!(last(&other, "devices.allow"), None);
}

#[test]
fn a_damaged_file_is_no_reason_to_fail() {
    let (_root, places) = places();
    fs::write(places.run().join(FILE), "{").unwrap();
    drop(Denied::new(&places, |text| panic!("{text}")));
    assert!(!places.run().join(FILE).exists());
}

#[test]
fn one_sample_without_suspects_gives_nothing_back() {
    let (root, places) = places();
    let folder = cgroup(root.path());
    let mut denied = refused(&places, &folder);
    denied.keep(&[], |_| ());
    denied.keep(&[], |_| ());
    denied.keep(&[suspect(5)], |_| ());
    // A slice of the same name in another container does not count.
    denied.keep(&[suspect(6)], |_| ());
    denied.keep(&[suspect(6)], |_| ());
    assert_eq!(last(&folder, "devices.allow"), None);
    denied.keep(&[suspect(6)], |_| ());
    assert_eq!(last(&folder, "devices.allow").unwrap(), "c 195:255 rw");
    assert!(!places.run().join(FILE).exists());
}
