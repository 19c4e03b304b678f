//! A file that is to say something else: shown, or written with what it said kept beside it.
//! Touches: that file, its backup.

use crate::replace;
use anyhow::Context;
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
        if let Some(old) = self.old.as_ref().filter(|_| !self.ours) {
            let backup = keep(path, old)?;
            said.push_str(&format!(", which is kept as {}", backup.display()));
        }
        match &self.new {
            Some(new) => {
                replace::make_folder_of(path, 0o755)?;
                replace::replace(path, new.as_bytes())?;
            }
            None => fs::remove_file(path)
                .with_context(|| format!("cannot remove {}", path.display()))?,
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

/// Keeps what a file said in the first name beside it that is free: no backup is written over.
fn keep(path: &Path, text: &str) -> anyhow::Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let names = std::iter::once(format!("{name}.before-gpuslice"))
        .chain((2..).map(|count: u32| format!("{name}.before-gpuslice.{count}")));
    for name in names {
        let backup = path.with_file_name(name);
        if fs::symlink_metadata(&backup).is_err() {
            replace::replace(&backup, text.as_bytes())?;
            // It is as secret as what it is the backup of.
            let mode = fs::metadata(path)?.permissions();
            fs::set_permissions(&backup, mode)?;
            return Ok(backup);
        }
    }
    anyhow::bail!("no name is free for a backup of {}", path.display())
}
