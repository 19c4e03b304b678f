//! Checks whether a process can use the ledger of its slice.
//! Touches: the ledger, by reading it; the descriptor of the run's watcher in /proc.

use super::Case;
use crate::base::text::escaped_path;
use crate::commands::doctor::codes::Code;
use crate::commands::doctor::finding::Finding;
use crate::commands::doctor::process::root::For;
use crate::slice::ledger as slice_ledger;
use gpuslice_config::ledger::{LedgerError, MAX_SIZE, Snapshot};
use gpuslice_config::slice::Slice;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A number of bytes that exceeds the memory of every GPU and machine.
const IMPOSSIBLE: u64 = 1 << 50;

/// The bytes that are read of the watcher's command line.
const LINE: usize = 4096;

/// The contents of a ledger that matter here.
struct Contents {
    id: u64,
    uncounted: u64,
    is_damaged: bool,
}

/// Returns the path of the ledger of a process's slice.
pub(super) fn path(case: &Case<'_>) -> Option<PathBuf> {
    slice_ledger::path(&case.slice.file, case.slice.slice()?)
}

/// Returns the limits that were set in the ledger since the start of the slice.
pub(super) fn limits(case: &Case<'_>) -> Vec<(DeviceUuid, Bytes)> {
    let mut bytes = vec![0; MAX_SIZE];
    let (root, creds) = (&case.process.root, case.process.creds);
    let read = path(case).map(|path| {
        root.with_path(&path, creds, |path| {
            let snapshot = Snapshot::read(path, &mut bytes);
            snapshot.map_or_else(|_| Vec::new(), |it| it.limits().collect())
        })
    });
    read.and_then(Result::ok).unwrap_or_default()
}

/// Adds the findings about the ledger.
pub(super) fn check(case: &Case<'_>, found: &mut Vec<Finding>) {
    let Some(slice) = case.slice.slice().filter(|slice| slice.limits_something()) else {
        return;
    };
    let Some(path) = path(case) else {
        let sentence = format!(
            "slice {} has no ledger, so nothing is counted and nothing is refused",
            case.slice.name()
        );
        found.push(Finding::new(Code::NoLedger, sentence));
        return;
    };
    let opened = case
        .process
        .root
        .file(&path, case.process.creds, For::Writing);
    let read = opened.map_err(Fault::Open).and_then(|file| {
        let contents = contents(case, &path)?;
        match is_another(case, slice, &contents, &file) {
            true => Err(Fault::Ledger(LedgerError::Another)),
            false => Ok(contents),
        }
    });
    match read {
        Err(Fault::Open(_)) if is_kept_open(case, slice) => {}
        Err(fault) => found.push(judged(case, &path, &fault)),
        Ok(contents) if contents.is_damaged => {
            let sentence = format!(
                "the ledger {} holds impossible numbers",
                escaped_path(&path)
            );
            found.push(Finding::new(Code::LedgerOverwritten, sentence));
        }
        Ok(contents) => {
            if contents.uncounted > 0 {
                let sentence = format!(
                    "the ledger {} had no free slot for {} requests, which were refused",
                    escaped_path(&path),
                    contents.uncounted
                );
                found.push(Finding::new(Code::LedgerFull, sentence));
            }
            found.extend(without_watcher(case, slice));
        }
    }
}

/// Why a ledger cannot be used.
enum Fault {
    /// It cannot be opened.
    Open(io::Error),
    /// It is not the slice's ledger.
    Ledger(LedgerError),
}

fn contents(case: &Case<'_>, path: &Path) -> Result<Contents, Fault> {
    let mut bytes = vec![0; MAX_SIZE];
    let (root, creds) = (&case.process.root, case.process.creds);
    let read = root.with_path(path, creds, |path| {
        let snapshot = Snapshot::read(path, &mut bytes)?;
        let mut slots = snapshot.slots();
        let mut refusals = snapshot.refusals();
        let is_damaged = slots.any(|record| record.alive && record.used >= IMPOSSIBLE)
            || refusals.any(|(_, refused)| refused.regret.get() >= IMPOSSIBLE);
        Ok(Contents {
            id: snapshot.id(),
            uncounted: snapshot.uncounted(),
            is_damaged,
        })
    });
    read.map_err(Fault::Open)?.map_err(Fault::Ledger)
}

/// Checks whether the file is not the ledger that the slice was started with: it has another id, or
/// the run's watcher holds another file open.
fn is_another(case: &Case<'_>, slice: &Slice, contents: &Contents, file: &fs::File) -> bool {
    let Some(id) = slice.ledger_id else {
        return false;
    };
    if contents.id != id {
        return true;
    }
    let identity = |facts: fs::Metadata| (facts.dev(), facts.ino());
    let own = file.metadata().map(identity);
    let kept = kept(case, slice).and_then(|kept| fs::metadata(kept).ok());
    // The kernel shows another device for a file of an overlay.
    let (Ok(own), Some(kept)) = (own, kept.map(identity)) else {
        return false;
    };
    own != kept
}

/// Returns the descriptor of the ledger in the run's watcher, if it still leads to a ledger.
fn kept(case: &Case<'_>, slice: &Slice) -> Option<PathBuf> {
    let descriptor = PathBuf::from(slice.ledger_descriptor?.as_str());
    let link = fs::read_link(&descriptor).ok()?;
    let name = path(case)?;
    let kept = link.to_string_lossy();
    let kept = Path::new(kept.strip_suffix(" (deleted)").unwrap_or(&kept));
    (kept.file_name() == name.file_name()).then_some(descriptor)
}

/// Checks whether the process reaches the ledger by the watcher although its path is gone. A
/// process of another user, or one whose /proc does not show the watcher, does not.
fn is_kept_open(case: &Case<'_>, slice: &Slice) -> bool {
    let Some(kept) = kept(case, slice) else {
        return false;
    };
    let owner = fs::symlink_metadata(&kept).map(|facts| facts.uid());
    let creds = case.process.creds;
    let is_its = owner.is_ok_and(|owner| creds.is(owner) || creds.is(0));
    let watcher = kept.ancestors().nth(2).unwrap_or(Path::new("/proc"));
    let line = watcher.join("cmdline");
    let seen = case.process.root.read(&line, case.process.creds, LINE);
    let is_seen = seen.is_ok_and(|seen| fs::read(&line).is_ok_and(|own| own == seen));
    is_its && is_seen
}

/// Warns about a run whose watcher has ended, if the slice file names one.
fn without_watcher(case: &Case<'_>, slice: &Slice) -> Option<Finding> {
    let descriptor = slice.ledger_descriptor?;
    let watcher = Path::new(descriptor.as_str()).ancestors().nth(2)?;
    let is_gone = !watcher.exists() && !case.process.is_elsewhere;
    is_gone.then(|| {
        let sentence = format!(
            "the watcher of slice {} has ended, so programs cannot find the ledger once its folder \
             is removed",
            case.slice.name()
        );
        Finding::new(Code::WatcherGone, sentence)
    })
}

fn judged(case: &Case<'_>, path: &Path, fault: &Fault) -> Finding {
    let (process, who, shown) = (case.process, case.who(), escaped_path(path));
    match fault {
        Fault::Open(error) => match error.kind() {
            ErrorKind::NotFound if process.is_elsewhere && path.exists() => Finding::new(
                Code::MountNamespace,
                format!("{who} is in another mount namespace, in which {shown} does not exist"),
            ),
            ErrorKind::NotFound => Finding::new(
                Code::LedgerMissing,
                format!("the ledger {shown} does not exist, so all GPU memory is refused"),
            ),
            ErrorKind::PermissionDenied if !process.creds.is_own() => Finding::new(
                Code::OtherUser,
                format!(
                    "{who} runs as user {}, who may not open the ledger {shown}",
                    process.creds.shown()
                ),
            ),
            _ => Finding::new(
                Code::LedgerUnreadable,
                format!("{who} cannot open the ledger {shown} ({error})"),
            ),
        },
        Fault::Ledger(why) => {
            let code = match why {
                LedgerError::Length(_) => Code::LedgerTruncated,
                LedgerError::Another => Code::LedgerReplaced,
                LedgerError::Version(_) => Code::LedgerVersion,
                LedgerError::Open(_) | LedgerError::Path | LedgerError::Map(_) => {
                    Code::LedgerUnreadable
                }
                _ => Code::LedgerOverwritten,
            };
            let finding = Finding::new(code, format!("the ledger {shown} cannot be used: {why}"));
            // The process's library has the ledger's version, and this command has another.
            let is_used = code == Code::LedgerVersion && process.maps.ledger(path).is_some();
            match is_used {
                true => Finding::warning(code, finding.sentence),
                false => finding,
            }
        }
    }
}
