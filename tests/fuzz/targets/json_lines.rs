//! Fuzzes the files of events and of runs' histories, which programs of a slice may write to. An
//! event that was read and written again is unchanged, and another user's events are that user's.
//! Touches: its input; files below TMPDIR.
#![no_main]

use gpuslice_host::events::{Event, store};
use gpuslice_readers::command_line::history;
use gpuslice_readers::commands::events::lines::events;
use gpuslice_readers::tail::Tail;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// The most amounts that a history holds, and the most changes of its limits.
const MOST: usize = 2000;

/// 92 days.
const EXACT: Duration = Duration::from_secs(8_000_000);

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let lines = text.split(|byte| *byte == b'\n').count();
    let own = events(text, None);
    assert!(own.len() <= lines);
    own.iter().for_each(is_written_and_read);
    let theirs = events(text, Some("anna"));
    assert_eq!(theirs.len(), own.len());
    assert!(
        theirs
            .iter()
            .all(|event| event.user.as_deref() == Some("anna"))
    );

    let folder = std::env::temp_dir().join(format!("json_lines-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).expect("the folder is made");
    let file = folder.join("history.jsonl");
    fs::write(&file, text).expect("the file is written");
    if let Some(history) = history(&file) {
        let path = Path::new("/history").join(&history.file);
        assert_eq!(path.parent(), Some(Path::new("/history")));
        assert!(history.file.len() < 255 && history.file.ends_with(".jsonl"));
        let levels = history.points.iter().chain(&history.limits);
        assert!(levels.into_iter().all(|count| *count == history.devices));
        assert!(history.points.len() <= MOST.max(2) && history.limits.len() <= MOST);
    }
    tail(&folder, text);
});

fn is_written_and_read(event: &Event) {
    let read = |line: &str| serde_json::from_str::<Event>(line).expect("an event is read back");
    let line = event.line();
    assert_eq!(line.matches('\n').count(), 1);
    // A duration is written in seconds, with milliseconds: a number of so many days is not exact.
    let again = read(&line);
    if again.duration.is_none_or(|duration| duration < EXACT) {
        assert_eq!(read(&again.line()), again);
    }
    assert_eq!(events(line.as_bytes(), None).len(), 1);
    assert!(event.values().iter().all(|(name, _)| !name.is_empty()));
}

/// The reader of new lines returns the whole lines that were added, and after a restart the rest.
fn tail(folder: &Path, text: &[u8]) {
    let place = folder.join("place");
    let events = folder.join(store::FILE);
    fs::write(&events, "old\n").expect("the file is written");
    let mut tail = Tail::new(folder.to_owned(), place.clone());
    let (one, other) = text.split_at(text.len() / 2);
    let mut read = Vec::new();
    for part in [one, other] {
        let mut file = File::options()
            .append(true)
            .open(&events)
            .expect("the file exists");
        file.write_all(part).expect("the file is written");
        loop {
            let lines = tail.lines().expect("the file is read");
            if lines.is_empty() {
                break;
            }
            read.extend(lines);
        }
        tail.save().expect("the place is saved");
        tail = Tail::new(folder.to_owned(), place.clone());
    }
    let whole = text.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    let lines = text[..whole].split(|byte| *byte == b'\n');
    let lines = lines.filter_map(|line| std::str::from_utf8(line).ok());
    assert!(
        read.iter()
            .map(String::as_str)
            .eq(lines.filter(|line| !line.is_empty()))
    );
}
