//! A file that is to say something else: shown, or written with what it said kept beside it.
//! Touches: that file, its backup.

use super::attributes;
use super::original::{self, Original};
use crate::replace;
use anyhow::Context;
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What is to become of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// Which.
    pub(super) path: PathBuf,
    /// What it says; None where it is not there.
    pub(super) old: Option<String>,
    /// What it is to say; None when it is to go.
    pub(super) new: Option<String>,
    /// Whether all of it is ours. Then what it said need not be kept: some folders' files are
    /// all read, whatever they are called.
    pub(super) ours: bool,
}

/// The text of a file; None where there is none.
///
/// # Errors
/// When it is there and cannot be read as text.
pub(super) fn read(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Files as they are, or as some changes would leave them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Files<'a>(&'a [&'a Change]);

impl<'a> Files<'a> {
    /// As they are.
    pub(super) fn now() -> Files<'static> {
        Files(&[])
    }

    /// As they would be after these changes.
    pub(super) fn after(changes: &'a [&'a Change]) -> Files<'a> {
        Files(changes)
    }

    /// What would become of a file; None where it would stay as it is.
    pub(super) fn change_of(&self, path: &Path) -> Option<&'a Change> {
        self.0.iter().find(|change| change.path == path).copied()
    }

    /// The text of a file; None where there is none.
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
    /// A file that others write too.
    #[must_use]
    pub(super) fn edit(path: &Path, old: Option<String>, new: String) -> Change {
        // What would say nothing need not be made.
        let nothing = old.is_none() && new.trim().is_empty();
        Change {
            path: path.to_owned(),
            old,
            new: (!nothing).then_some(new),
            ours: false,
        }
    }

    /// A file that others write too, without what is ours: as it was before where nobody has changed
    /// it since. See [`original::of`] for `again`.
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

    /// A file that is ours: with this text, or with None gone.
    ///
    /// # Errors
    /// When what is there cannot be read.
    pub(super) fn whole(path: &Path, new: Option<String>) -> anyhow::Result<Change> {
        Ok(Change {
            path: path.to_owned(),
            old: read(path)?,
            new,
            ours: true,
        })
    }

    /// Whether anything changes.
    #[must_use]
    pub(super) fn is_one(&self) -> bool {
        self.old != self.new
    }

    /// Says what [`Change::apply`] would do.
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
        // A file that a link leads to is written where it is.
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

    /// Makes it so, and says what was done.
    ///
    /// # Errors
    /// When a file cannot be written; it is then as it was.
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
                replace::make_folder_of(path, 0o755)?;
                replace::replace(path, new.as_bytes())?;
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

    /// What changes, as `diff -u` shows it, but without the lines around it.
    #[must_use]
    pub(super) fn shown(&self) -> String {
        let lines = |text: &Option<String>| -> Vec<String> {
            let text = text.as_deref().unwrap_or_default();
            text.lines().map(str::to_owned).collect()
        };
        let (old, new) = (lines(&self.old), lines(&self.new));
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
        let mut shown = format!(
            "--- {}\n+++ {}\n@@ line {} @@\n",
            name(self.old.is_some()),
            name(self.new.is_some()),
            head.saturating_add(1)
        );
        for (sign, lines) in [('-', &old), ('+', &new)] {
            for line in lines.iter().take(counted(lines)) {
                shown.push_str(&format!("{sign}{line}\n"));
            }
        }
        shown
    }
}

/// Keeps what a file said in the first name beside it that is free: no backup is written over. It has
/// the owner, the mode and the attributes of the file from its first moment on: it is as secret.
fn keep(path: &Path, text: &str) -> anyhow::Result<(PathBuf, Vec<String>)> {
    let backup = free_name(path)?;
    let lost = attributes::write(&backup, text, path, true)?;
    Ok((backup, lost))
}

/// The first name of a backup that is free.
fn free_name(path: &Path) -> anyhow::Result<PathBuf> {
    let is_free = |backup: &PathBuf| fs::symlink_metadata(backup).is_err();
    let backup = original::backup_names(path).find(is_free);
    backup.with_context(|| format!("no name is free beside {}", path.display()))
}
