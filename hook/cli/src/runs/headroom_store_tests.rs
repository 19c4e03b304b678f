//! The headroom learned from a run, and unexpected files in the store's place.

use super::*;
use gpuslice_config::slice::ListedDevice;
use proptest::prelude::*;
use std::os::unix::fs::PermissionsExt;

const UUID: &str = "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";

fn gpu() -> DeviceUuid {
    UUID.parse().unwrap()
}

fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gpuslice/headroom.json");
    (folder, path)
}

fn teach(path: &Path, name: &str, headroom: Bytes) {
    let change = |learned: &mut HeadroomsByName| {
        learned.insert(name.to_owned(), Headrooms::from([(gpu(), headroom)]));
    };
    update(path, change).unwrap();
}

fn slice(memory: Bytes, headroom: Bytes) -> Slice {
    let mut slice = Slice::default();
    slice
        .list(ListedDevice {
            uuid: gpu(),
            memory: Some(memory),
            headroom: Some(headroom),
            integrated: None,
            driver_limit: None,
            driver_backstop: false,
        })
        .unwrap();
    slice
}

fn short_by(regret: Bytes) -> [(DeviceUuid, Refusals); 1] {
    [(gpu(), Refusals { count: 1, regret })]
}

#[test]
fn what_the_worst_refusal_was_short_of_is_the_lesson() {
    let slice = slice(Bytes::gib(8), Bytes::mib(41));
    for (short, lesson) in [
        (Bytes::ZERO, None),
        (Bytes::mib(10), Some(Bytes::mib(10))),
        (Bytes::mib(143), Some(Bytes::mib(143))),
        // A request that only tests whether 80 GiB are available.
        (Bytes::gib(72), None),
        (Bytes::MAX, None),
    ] {
        let lessons = shortfalls(&slice, &short_by(short));
        assert_eq!(lessons.get(&gpu()).copied(), lesson, "{short}");
    }
}

#[test]
fn a_device_that_the_slice_says_nothing_of_teaches_nothing() {
    assert_eq!(
        shortfalls(&Slice::default(), &short_by(Bytes::mib(1))),
        Headrooms::new()
    );
}

#[test]
fn what_is_remembered_is_read_back_and_private() {
    let (_folder, path) = place();
    assert_eq!(read(&path).unwrap(), HeadroomsByName::new());
    teach(&path, "llama", Bytes::mib(143));
    teach(&path, "a \"b\" \\ \u{1f600}", Bytes::new(1));
    let both = read(&path).unwrap();
    assert_eq!(both.len(), 2);
    assert_eq!(both["llama"], Headrooms::from([(gpu(), Bytes::mib(143))]));
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    forget_all(&path).unwrap();
    assert_eq!(read(&path).unwrap(), HeadroomsByName::new());
    forget_all(&path).unwrap();
}

#[test]
fn runs_that_end_at_once_are_all_learned_from() {
    let (_folder, path) = place();
    std::thread::scope(|scope| {
        for number in 0..16 {
            let path = &path;
            scope.spawn(move || teach(path, &format!("run {number}"), Bytes::mib(number)));
        }
    });
    assert_eq!(read(&path).unwrap().len(), 16);
}

#[test]
fn what_is_no_file_of_ours_is_named_and_left_alone() {
    let (_folder, path) = place();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let large = format!("{{\"version\":1,\"slices\":{{}}}}{}", " ".repeat(16 << 20));
    for (text, why) in [
        ("", "EOF while parsing a value at line 1 column 0"),
        (
            "{\"version\":1}",
            "missing field `slices` at line 1 column 13",
        ),
        ("{\"version\":2,\"slices\":{}}", "its version is 2, not 1"),
        (
            "{\"version\":1,\"slices\":{},\"\\u001b[2J\":1}",
            "unknown field `\\u{1b}[2J`, expected `version` or `slices` at line 1 column 36",
        ),
        (
            "{\"version\":1,\"slices\":{},\"more\":1}",
            "unknown field `more`, expected `version` or `slices` at line 1 column 31",
        ),
        (
            "{\"version\":1,\"slices\":{\"a\":{\"\u{1b}[31mcard\":1}}}",
            "control character (\\u0000-\\u001F) found while parsing a string at line 1 column 30",
        ),
        (
            "{\"version\":1,\"slices\":{\"a\":{\"\\u001b[31mcard\":1}}}",
            "\"\\u{1b}[31mcard\" is not a device's uuid",
        ),
        (large.as_str(), "it is longer than 16 MiB"),
    ] {
        fs::write(&path, text).unwrap();
        let message = format!(
            "{} does not hold learned headroom: {why} (`gpuslice headroom reset` removes it)",
            path.display()
        );
        assert_eq!(read(&path).unwrap_err().to_string(), message);
        assert!(update(&path, |learned| learned.clear()).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}

#[test]
fn a_full_memory_takes_no_more_and_can_still_be_read_and_reset() {
    let (_folder, path) = place();
    let fill = |learned: &mut HeadroomsByName, count: usize| {
        let name = |number: usize| format!("{number:0128}");
        learned.extend(
            (0..count).map(|number| (name(number), Headrooms::from([(gpu(), Bytes::mib(1))]))),
        );
    };
    let full = update(&path, |learned| fill(learned, 6000)).unwrap_err();
    let full = format!("{:#}", anyhow::Error::new(full));
    assert!(full.contains("it would be longer than 1 MiB"), "{full}");
    update(&path, |learned| fill(learned, 4000)).unwrap();
    assert_eq!(read(&path).unwrap().len(), 4000);
    // A file that an earlier gpuslice let grow too long becomes shorter again.
    let slices = read(&path).unwrap();
    let mut more = fs::read(&path).unwrap();
    more.extend(vec![b' '; 1 << 20]);
    fs::write(&path, more).unwrap();
    assert_eq!(read(&path).unwrap(), slices);
    update(&path, |learned| drop(learned.pop_first())).unwrap();
    assert_eq!(read(&path).unwrap().len(), 3999);
}

#[test]
fn a_pipe_or_a_folder_in_its_place_stops_nobody() {
    let (_folder, path) = place();
    fs::create_dir_all(&path).unwrap();
    let why = |path: &Path| read(path).unwrap_err().to_string();
    assert!(why(&path).contains("it is not a regular file"));
    fs::remove_dir(&path).unwrap();
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(why(&path).contains("it is not a regular file"));
}

#[test]
fn a_run_without_a_name_teaches_nothing() {
    let (folder, path) = place();
    fs::write(
        folder.path().join(run_dir::SLICE),
        slice(Bytes::gib(8), Bytes::ZERO).to_json(),
    )
    .unwrap();
    learn(folder.path()).unwrap();
    assert!(!path.exists());
}

#[test]
fn a_home_that_is_removed_during_a_run_stays_removed() {
    let (home, path) = place();
    let run = tempfile::tempdir().unwrap();
    remember(run.path(), &path).unwrap();
    update_existing(&path, |_| ()).unwrap();
    assert!(path.parent().unwrap().exists());
    home.close().unwrap();
    let failure = update_existing(&path, |_| ()).unwrap_err();
    let missing = format!("cannot lock {}, ", path.display());
    let failure = format!("{:#}", anyhow::Error::new(failure));
    assert!(failure.starts_with(&missing), "{failure}");
    assert!(!path.parent().unwrap().exists());
}

proptest! {
    #[test]
    fn whatever_the_file_holds_reading_it_ends(text in prop::collection::vec(any::<u8>(), 0..200)) {
        let (_folder, path) = place();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        let _ = read(&path);
    }
}
