//! The conditions under which a tenant's record counts.
//! Touches: temporary folders, this process's own identity.

use super::*;
use crate::slices::record_lock::{lock, whole};
use gpuslice_config::words::units::Bytes;
use nix::fcntl::{FcntlArg, fcntl};
use std::fs::File;
use std::os::unix::fs::{chown, symlink};

fn own() -> ProcessId {
    ProcessId::of(i32::try_from(std::process::id()).unwrap()).unwrap()
}

/// A process that has ended.
fn gone() -> ProcessId {
    let ProcessId { pid, start_time } = own();
    let start_time = start_time.wrapping_sub(1);
    ProcessId { pid, start_time }
}

fn budget() -> DeviceBudget {
    DeviceBudget {
        uuid: "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4".parse().unwrap(),
        memory: Bytes::gib(8),
        integrated: false,
    }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = living(folder, |_| false)
        .into_iter()
        .map(|one| one.name)
        .collect();
    names.sort();
    names
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

#[test]
fn a_record_counts_while_its_process_lives_and_says_what_it_holds() {
    let folder = folder();
    let path = write(folder.path(), &own(), "llama", &[budget()]).unwrap();
    write(folder.path(), &gone(), "dead", &[budget()]).unwrap();
    let found = living(folder.path(), |_| false);
    let uid = nix::unistd::geteuid().as_raw();
    let expected = Tenant {
        file: path.clone(),
        uid,
        owner: Some(own()),
        name: "llama".to_owned(),
        devices: vec![budget()],
    };
    assert_eq!(found, [expected]);
    assert_eq!(found[0].shown(uid), format!("llama (pid {})", own().pid));
    let other = format!("llama (pid {}, uid {uid})", own().pid);
    assert_eq!(found[0].shown(uid + 1), other);
    remove_dead(folder.path(), |_| false);
    assert_eq!(
        sys::names(folder.path()).unwrap(),
        [path.file_name().unwrap()]
    );
}

#[test]
fn a_record_that_a_watcher_has_locked_counts_without_its_process() {
    let folder = folder();
    let path = write(folder.path(), &gone(), "left", &[budget()]).unwrap();
    let watcher = File::options().write(true).open(&path).unwrap();
    lock(&watcher).unwrap();
    assert_eq!(names(folder.path()), ["left"]);
    // A read lock, which every user can take, does not count.
    drop(watcher);
    let reader = File::open(&path).unwrap();
    fcntl(&reader, FcntlArg::F_OFD_SETLK(&whole(libc::F_RDLCK))).unwrap();
    assert!(names(folder.path()).is_empty());
}

#[test]
fn links_and_second_names_of_a_record_do_not_count() {
    let folder = folder();
    let path = write(folder.path(), &own(), "llama", &[budget()]).unwrap();
    let at = |name: String| folder.path().join(name);
    let ProcessId { pid, start_time } = own();
    fs::hard_link(&path, at(format!("run.0{pid}.{start_time}"))).unwrap();
    fs::hard_link(&path, at(format!("run.+{pid}.{start_time}"))).unwrap();
    fs::hard_link(&path, at("run.1.1.1".to_owned())).unwrap();
    symlink(&path, at("run.1.2".to_owned())).unwrap();
    assert_eq!(names(folder.path()), ["llama"]);
}

#[test]
fn a_user_cannot_write_a_record_of_anothers_process_or_of_a_container() {
    if !is_root() {
        return;
    }
    let folder = folder();
    let path = write(folder.path(), &own(), "forged", &[budget()]).unwrap();
    chown(&path, Some(65534), None).unwrap();
    assert!(names(folder.path()).is_empty());
    let container = folder.path().join("container.abc");
    fs::copy(&path, &container).unwrap();
    assert_eq!(names(folder.path()), ["forged"]);
    chown(&container, Some(65534), None).unwrap();
    assert!(names(folder.path()).is_empty());
}

#[test]
fn what_is_no_record_is_not_counted_and_only_root_removes_it() {
    let folder = folder();
    let path = write(folder.path(), &own(), "garbled", &[]).unwrap();
    for text in [
        "",
        "{}",
        "{\"version\":2,\"name\":\"x\",\"devices\":[]}",
        "[",
        "\0",
    ] {
        fs::write(&path, text).unwrap();
        assert!(names(folder.path()).is_empty(), "{text}");
    }
    fs::write(&path, vec![b' '; CAP + 1]).unwrap();
    assert!(names(folder.path()).is_empty());
    fs::write(folder.path().join("notes"), "hello").unwrap();
    remove_dead(folder.path(), |_| false);
    assert_eq!(sys::names(folder.path()).unwrap().is_empty(), is_root());
    assert!(living(Path::new("/no/such/folder"), |_| false).is_empty());
}

#[test]
fn a_containers_record_is_there_as_long_as_the_hooks_own() {
    let root = folder();
    let paths = HostPaths::below(root.path());
    fs::create_dir_all(paths.run()).unwrap();
    let record = serde_json::json!({
        "version": 1, "slice": "abc.def", "name": "team/abc", "devices": [budget()], "containers": [],
    });
    let record: SliceRecord = serde_json::from_value(record).unwrap();
    publish(&paths, &record).unwrap();
    let folder = paths.run().join(FOLDER);
    let expected: &[&str] = if is_root() { &["team/abc"] } else { &[] };
    assert_eq!(names(&folder), expected);
    assert!(runs(&paths).is_empty());
    keep_containers(&paths, |slice| slice == "abc.def");
    assert_eq!(names(&folder), expected);
    keep_containers(&paths, |_| false);
    assert!(names(&folder).is_empty());
    publish(&paths, &record).unwrap();
    withdraw(&paths, "abc.def").unwrap();
    withdraw(&paths, "abc.def").unwrap();
    assert!(names(&folder).is_empty());
}

#[test]
fn a_process_whose_name_is_cut_inside_a_letter_has_its_user() {
    let folder = folder();
    // The kernel keeps 15 bytes of this name.
    let program = folder.path().join("éééééééé");
    symlink("/bin/sleep", &program).unwrap();
    let mut child = std::process::Command::new(&program)
        .arg("60")
        .spawn()
        .unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let found = uids(pid);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(found, [nix::unistd::geteuid().as_raw(); 4]);
}
