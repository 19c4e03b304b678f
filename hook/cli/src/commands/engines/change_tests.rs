//! Tests that changes are shown and applied, and that their backups can be restored by hand.

use super::change::Change;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn edit(old: Option<&str>, new: &str) -> Change {
    Change::edit(Path::new("/etc/x"), old.map(str::to_owned), new.to_owned())
}

#[test]
fn only_the_lines_that_change_are_shown() {
    assert_eq!(
        edit(Some("a\nb\nc\nb\n"), "a\nB\nb\nc\nb\n").shown(),
        "--- /etc/x\n+++ /etc/x\n@@ line 2 @@\n+B\n"
    );
    assert_eq!(
        edit(Some("a\nb\nc\n"), "a\nd\nc\n").shown(),
        "--- /etc/x\n+++ /etc/x\n@@ line 2 @@\n-b\n+d\n"
    );
    assert_eq!(
        edit(None, "a\n").shown(),
        "--- /dev/null\n+++ /etc/x\n@@ line 1 @@\n+a\n"
    );
}

#[test]
fn every_change_keeps_what_was_there_and_no_backup_is_written_over() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("f.toml");
    fs::write(&path, "one").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    for (old, new) in [("one", "two"), ("two", "three")] {
        let change = Change::edit(&path, Some(old.to_owned()), new.to_owned());
        assert!(change.is_one());
        change.apply().unwrap();
    }
    let read = |name: &str| {
        let path = place.path().join(name);
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        (fs::read_to_string(path).unwrap(), mode)
    };
    assert_eq!(read("f.toml"), ("three".to_owned(), 0o600));
    assert_eq!(read("f.toml.before-gpuslice"), ("one".to_owned(), 0o600));
    assert_eq!(read("f.toml.before-gpuslice.2"), ("two".to_owned(), 0o600));
}

#[test]
fn a_file_of_ours_comes_and_goes_without_a_trace() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("d/f.json");
    let whole = |text: Option<&str>| Change::whole(&path, text.map(str::to_owned)).unwrap();
    assert!(!whole(None).is_one());
    for text in [Some("a"), Some("b"), None] {
        whole(text).apply().unwrap();
        assert!(!whole(text).is_one());
    }
    assert_eq!(fs::read_dir(place.path().join("d")).unwrap().count(), 0);
}

#[test]
fn a_file_that_would_say_nothing_is_not_made() {
    assert!(!edit(None, "").is_one());
    assert!(edit(Some("a"), "").is_one());
}

#[test]
fn a_backup_is_never_readable_by_others_who_could_not_read_the_file() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("daemon.json");
    fs::write(&path, "{}").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let folder = place.path().to_owned();
    let (stop, seen) = (
        std::sync::atomic::AtomicBool::new(false),
        std::sync::atomic::AtomicBool::new(false),
    );
    let order = std::sync::atomic::Ordering::SeqCst;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(order) {
                for entry in fs::read_dir(&folder).unwrap().flatten() {
                    let mode = entry
                        .metadata()
                        .map_or(0, |facts| facts.permissions().mode());
                    if mode & 0o077 != 0 {
                        seen.store(true, order);
                    }
                }
            }
        });
        for count in 0..200 {
            let old = fs::read_to_string(&path).unwrap();
            let change = Change::edit(&path, Some(old), format!("{{\"count\": {count}}}"));
            change.apply().unwrap();
        }
        stop.store(true, order);
    });
    assert!(!seen.load(order));
}
