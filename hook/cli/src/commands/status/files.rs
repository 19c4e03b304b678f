//! Reads the files of a slice: its slice file, its ledger and its promise.
//! Touches: these files, by reading them.

use super::containers;
use super::process::FileId;
use super::strangers::PRIVATE;
use super::users::{User, is_file_of};
use crate::slice::{file as slice_file, ledger as slice_ledger};
use gpuslice_config::slice::Slice;
use gpuslice_host::slices::figures::{self, LedgerFigures};
use std::path::{Path, PathBuf};

/// The files of a slice.
#[derive(Debug, Default)]
pub(super) struct Files {
    pub(super) slice: Option<Slice>,
    pub(super) ledger: Option<PathBuf>,
    /// The identity of the ledger's file in the mappings of processes.
    pub(super) mapped: Option<FileId>,
    pub(super) figures: Option<LedgerFigures>,
    /// The error message about the files that cannot be read.
    pub(super) error: Option<String>,
    /// Whether the files belong to another user and this user cannot read them.
    pub(super) is_private: bool,
}

/// Reads the files of a slice, besides the contents of its ledger. A container's slice file names
/// its files by their paths inside the container; `there` are their paths on the host. Only root
/// reads every file of another user's slice. For other users, the file must also belong to the
/// slice's user.
pub(super) fn read(file: &Path, user: Option<User>, there: Option<&containers::Files>) -> Files {
    let mut files = Files::default();
    if !is_safe(file, user) {
        files.error = Some(PRIVATE.to_owned());
        files.is_private = true;
        return files;
    }
    let slice = match slice_file::read(file) {
        Ok(slice) => slice,
        Err(error) => {
            files.error = Some(format!("{:#}", anyhow::Error::new(error)));
            return files;
        }
    };
    files.ledger = match there {
        Some(there) => Some(there.ledger.clone()),
        None => slice_ledger::path(file, &slice),
    };
    files.slice = Some(slice);
    files
}

/// Checks whether a file of this user's slice may be read.
fn is_safe(file: &Path, user: Option<User>) -> bool {
    let stranger = user.filter(|user| *user != User::own() && User::own() != User(0));
    stranger.is_none_or(|user| is_file_of(user, file))
}

impl Files {
    /// Reads the ledger into `bytes`.
    pub(super) fn read_ledger(&mut self, user: Option<User>, bytes: &mut Vec<u8>) {
        let ledger = self.ledger.as_ref().filter(|_| self.slice.is_some());
        let Some(ledger) = ledger.filter(|ledger| is_safe(ledger, user)) else {
            return;
        };
        match figures::read(ledger, bytes) {
            Ok(figures) => {
                self.mapped = self.mapped.or_else(|| FileId::of(ledger));
                self.error = figures.is_damaged.then(|| DAMAGED.to_owned());
                self.figures = Some(figures);
            }
            Err(error) => self.error = Some(error.to_string()),
        }
    }
}

const DAMAGED: &str = "the ledger is damaged: impossible numbers in it are not shown";
