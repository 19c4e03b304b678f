//! Finds the text that a file had before gpuslice changed it. `--remove` restores this text byte
//! for byte.
//! Touches: the backups beside the file (reads).

use std::fs;
use std::path::{Path, PathBuf};

/// The original state of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Original {
    /// The file did not exist.
    Absent,
    /// The file had this text.
    Text(String),
}

/// Returns the possible names of a file's backups, oldest first.
pub(super) fn backup_names(path: &Path) -> impl Iterator<Item = PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let first = format!("{name}.before-gpuslice");
    let name = name.into_owned();
    let others = (2..).map(move |count: u32| format!("{name}.before-gpuslice.{count}"));
    let path = path.to_owned();
    std::iter::once(first)
        .chain(others)
        .map(move |name| path.with_file_name(name))
}

/// Returns the original state of a file, if no other program has changed the file since. `removed`
/// is the file's text without gpuslice's part. `again` adds that part to a text and removes it
/// again. It returns None for a text that contains the part already.
pub(super) fn of(
    path: &Path,
    removed: &str,
    again: impl Fn(Option<&str>) -> Option<String>,
) -> Option<Original> {
    let backups = backup_names(path).map_while(|backup| fs::read_to_string(backup).ok());
    let mut backups: Vec<String> = backups.collect();
    // The latest backup is tried first, because an older one may be out of date.
    backups.reverse();
    let same = |before: &Option<String>| before.as_deref() == Some(removed);
    let without: Vec<(String, String)> = backups
        .into_iter()
        .filter_map(|text| Some((again(Some(&text))?, text)))
        .collect();
    if without.is_empty() {
        return same(&again(None)).then_some(Original::Absent);
    }
    let mut without = without.into_iter();
    let found = without.find(|(after, _)| after == removed);
    found.map(|(_, text)| Original::Text(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In this test, gpuslice's part is the letter on the last line.
    fn again(text: Option<&str>) -> Option<String> {
        let text = text.unwrap_or("{}");
        (!text.contains('o')).then(|| text.replace("\r\n", "\n"))
    }

    #[test]
    fn the_backup_is_given_back_unless_somebody_has_changed_the_file_since() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("f");
        let backup = |name: &str, text: &str| fs::write(place.path().join(name), text).unwrap();
        assert_eq!(of(&path, "{}", again), Some(Original::Absent));
        assert_eq!(of(&path, "a\n", again), None);
        backup("f.before-gpuslice", "a\r\n");
        assert_eq!(
            of(&path, "a\n", again),
            Some(Original::Text("a\r\n".to_owned()))
        );
        // A backup that contains gpuslice's part is not the original.
        backup("f.before-gpuslice.2", "a\no\n");
        assert_eq!(
            of(&path, "a\n", again),
            Some(Original::Text("a\r\n".to_owned()))
        );
        assert_eq!(of(&path, "a\nb\n", again), None);
        assert_eq!(of(&path, "{}", again), None);
    }
}
