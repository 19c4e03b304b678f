//! A change of a file: shows it, or writes it and keeps the old text in a backup.
//! Touches: that file, its backup.

pub(super) mod outcome;

use super::attributes;
use super::original::{self, Original};
use crate::base::atomic_write;
use anyhow::Context;
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The change of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// The file's path.
    pub(super) path: PathBuf,
    /// The old text; None if the file does not exist.
    pub(super) old: Option<String>,
    /// The new text; None if the file is to be removed.
    pub(super) new: Option<String>,
    /// Whether gpuslice owns the whole file. Such a file gets no backup, because the engine might
    /// read it too: in some folders it reads every file, whatever its name.
    pub(super) ours: bool,
    /// The text that a new file is made from, and its name: only the differences are shown.
    pub(super) origin: Option<(String, String)>,
}

/// Returns the text of a file; None if it does not exist.
///
/// # Errors
/// When the file exists but cannot be read as text.
pub(super) fn read(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// The files of this host, or their state after some changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Files<'a>(&'a [&'a Change]);

impl<'a> Files<'a> {
    /// The files as they are.
    pub(super) fn now() -> Files<'static> {
        Files(&[])
    }

    /// The files as they would be after these changes.
    pub(super) fn after(changes: &'a [&'a Change]) -> Files<'a> {
        Files(changes)
    }

    /// Returns the change of a file; None if the file would stay unchanged.
    pub(super) fn change_of(&self, path: &Path) -> Option<&'a Change> {
        self.0.iter().find(|change| change.path == path).copied()
    }

    /// Returns the text of a file; None if it does not exist.
    ///
    /// # Errors
    /// As [`read`].
    pub(super) fn read(&self, path: &Path) -> anyhow::Result<Option<String>> {
        match self.change_of(path) {
            Some(change) => Ok(change.new.clone()),
            None => read(path),
        }
    }
}

impl Change {
    /// A change of a file that other programs write too.
    #[must_use]
    pub(super) fn edit(path: &Path, old: Option<String>, new: String) -> Change {
        // A file without contents need not be created.
        let nothing = old.is_none() && new.trim().is_empty();
        Change {
            path: path.to_owned(),
            old,
            new: (!nothing).then_some(new),
            ours: false,
            origin: None,
        }
    }

    /// A change that removes gpuslice's part from a file that other programs write too. The
    /// original text is restored if no other program has changed the file since. For `again`, see
    /// [`original::of`].
    #[must_use]
    pub(super) fn back(
        path: &Path,
        old: Option<String>,
        removed: String,
        again: impl Fn(Option<&str>) -> Option<String>,
    ) -> Change {
        let mut change = Change::edit(path, old, removed);
        let (Some(old), Some(removed)) = (&change.old, &change.new) else {
            return change;
        };
        if old != removed {
            match original::of(path, removed, again) {
                Some(Original::Absent) => change.new = None,
                Some(Original::Text(text)) => change.new = Some(text),
                None => {}
            }
        }
        change
    }

    /// A change of a file that gpuslice owns: writes this text or, with None, removes the file.
    ///
    /// # Errors
    /// When the existing file cannot be read.
    pub(super) fn whole(path: &Path, new: Option<String>) -> anyhow::Result<Change> {
        Ok(Change {
            path: path.to_owned(),
            old: read(path)?,
            new,
            ours: true,
            origin: None,
        })
    }

    /// Checks whether the change has any effect.
    #[must_use]
    pub(super) fn is_one(&self) -> bool {
        self.old != self.new
    }

    /// Describes what [`Change::apply`] would do.
    ///
    /// # Errors
    /// When a file could not be written.
    pub(super) fn rehearse(&self) -> anyhow::Result<String> {
        let path = &self.path;
        let mut said = match (&self.old, &self.new) {
            (None, _) => format!("would make {}", path.display()),
            (Some(_), None) => format!("would remove {}", path.display()),
            (Some(_), Some(_)) => format!("would change {}", path.display()),
        };
        if self.old.is_some() && !self.ours {
            said.push_str(&format!(", and keep it as {}", free_name(path)?.display()));
        }
        // If the path is a symbolic link, its target is written and the link stays.
        let target = path.canonicalize().unwrap_or_else(|_| path.clone());
        let is_folder = |folder: &&Path| folder.exists();
        let folder = target.ancestors().skip(1).find(is_folder);
        if let Some(folder) = folder {
            let rights = AccessFlags::W_OK | AccessFlags::X_OK;
            let allowed = match folder.is_dir() {
                true => access(folder, rights),
                false => Err(Errno::ENOTDIR),
            };
            allowed
                .map_err(io::Error::from)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(said)
    }

    /// Applies the change, and describes what was done.
    ///
    /// # Errors
    /// When a file cannot be written; it is then unchanged.
    pub(super) fn apply(&self) -> anyhow::Result<String> {
        let path = &self.path;
        let mut said = match (&self.old, &self.new) {
            (None, _) => format!("made {}", path.display()),
            (Some(_), None) => format!("removed {}", path.display()),
            (Some(_), Some(_)) => format!("changed {}", path.display()),
        };
        let mut lost = Vec::new();
        if let Some(old) = self.old.as_ref().filter(|_| !self.ours) {
            let (backup, without) = keep(path, old)?;
            said.push_str(&format!(", which is kept as {}", backup.display()));
            lost = without;
        }
        match (&self.old, &self.new) {
            (Some(_), Some(new)) => lost.extend(attributes::write(path, new, path, false)?),
            (None, Some(new)) => {
                atomic_write::make_folder_of(path, 0o755)?;
                atomic_write::replace(path, new.as_bytes())?;
            }
            (_, None) => fs::remove_file(path)
                .with_context(|| format!("cannot remove {}", path.display()))?,
        }
        lost.sort();
        lost.dedup();
        if !lost.is_empty() {
            said.push_str(&format!(" (without its attributes {})", lost.join(", ")));
        }
        Ok(said)
    }

    /// Names what the change does to the file.
    #[must_use]
    pub(super) fn action(&self) -> &'static str {
        match (&self.old, &self.new) {
            (None, _) => "make",
            (Some(_), None) => "remove",
            (Some(_), Some(_)) => "change",
        }
    }

    /// Returns the changed lines in the form of `diff -u`, without context lines.
    #[must_use]
    pub(super) fn diff(&self) -> Vec<String> {
        let lines = |text: &Option<String>| -> Vec<String> {
            let text = text.as_deref().unwrap_or_default();
            text.lines().map(str::to_owned).collect()
        };
        let origin = self.origin.as_ref().filter(|_| self.old.is_none());
        let before = origin.map_or_else(|| self.old.clone(), |(_, text)| Some(text.clone()));
        let (old, new) = (lines(&before), lines(&self.new));
        let same = |one: &[String], other: &[String], back: bool| {
            let pairs = |at: &usize| match back {
                false => one.get(*at) == other.get(*at),
                true => {
                    let from_end = |lines: &[String]| {
                        let at = lines.len().checked_sub(at.saturating_add(1))?;
                        lines.get(at).cloned()
                    };
                    from_end(one) == from_end(other)
                }
            };
            (0..one.len().min(other.len())).take_while(pairs).count()
        };
        let head = same(&old, &new, false);
        let rest = |lines: &[String]| lines.get(head..).unwrap_or_default().to_vec();
        let (old, new) = (rest(&old), rest(&new));
        let tail = same(&old, &new, true);
        let name = |there: bool| match there {
            true => self.path.display().to_string(),
            false => "/dev/null".to_owned(),
        };
        let counted = |lines: &[String]| lines.len().saturating_sub(tail);
        let mut shown = vec![
            match origin {
                Some((origin, _)) => format!("--- {origin}"),
                None => format!("--- {}", name(self.old.is_some())),
            },
            format!("+++ {}", name(self.new.is_some())),
            format!("@@ line {} @@", head.saturating_add(1)),
        ];
        for (sign, lines) in [('-', &old), ('+', &new)] {
            let changed = lines.iter().take(counted(lines));
            shown.extend(changed.map(|line| format!("{sign}{line}")));
        }
        shown
    }
}

/// Writes a file's old text to the first free backup name beside it; no backup is overwritten. The
/// old text may be secret, so the backup has the file's owner, mode and attributes from the start.
fn keep(path: &Path, text: &str) -> anyhow::Result<(PathBuf, Vec<String>)> {
    let backup = free_name(path)?;
    let lost = attributes::write(&backup, text, path, true)?;
    Ok((backup, lost))
}

/// Returns the first free backup name.
fn free_name(path: &Path) -> anyhow::Result<PathBuf> {
    let is_free = |backup: &PathBuf| fs::symlink_metadata(backup).is_err();
    let backup = original::backup_names(path).find(is_free);
    backup.with_context(|| format!("no name is free beside {}", path.display()))
}
