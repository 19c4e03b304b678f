//! The meminfo page of a run, which its watcher writes.
//! Touches: the page in the private folder.

use super::{Charged, HostReading, LedgerAt, Observer};
use crate::runs::host_memory;
use crate::runs::run_dir;
use crate::slice::file as slice_file;
use gpuslice_config::answer::view::MemoryView;
use gpuslice_config::promises::Promise;
use gpuslice_config::slice::Slice;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::ledger_room;
use gpuslice_host::slices::meminfo_page::{self, Page};
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A run's slice, observed for its page.
#[derive(Debug)]
struct RunObserver {
    observer: Observer,
    meminfo: PathBuf,
    promises: Option<PathBuf>,
}

impl RunObserver {
    /// Prepares to look at the slice of a run. None: it has no unified memory.
    fn new(slice: Slice, ledger: LedgerAt) -> Option<RunObserver> {
        let own = slice.promise.as_ref();
        let own = own.and_then(|path| Promise::id_of(path.as_str().as_bytes()));
        let own = own.map(|id| String::from_utf8_lossy(id).into_owned());
        let length = match &ledger {
            LedgerAt::Nowhere => 0,
            LedgerAt::Path(path) | LedgerAt::Link(path) => length_of(path),
        };
        let promises = slice.promises.map(|path| PathBuf::from(path.as_str()));
        let meminfo = run_dir::hosts_meminfo(&slice);
        Some(RunObserver {
            observer: Observer::new(slice, own, ledger, Charged::Processes, length)?,
            meminfo: meminfo.unwrap_or_else(|| host_memory::MEMINFO.into()),
            promises,
        })
    }

    fn look(&mut self) -> Option<(MemoryView, Bytes)> {
        let host = HostReading::now(&self.meminfo, self.promises.as_deref())?;
        Some((self.observer.view(&host)?, host.memory.total))
    }
}

fn length_of(path: &CStr) -> usize {
    ledger_room::length(Path::new(OsStr::from_bytes(path.to_bytes())))
}

/// Makes the page of a run whose slice file was written. Returns its path.
///
/// # Errors
/// When it cannot be made, or the host's memory cannot be read.
pub(crate) fn make(private: &Path, slice: &Slice) -> io::Result<PathBuf> {
    let path = private.join(run_dir::PAGE);
    let ledger = match &slice.ledger {
        Some(path) => LedgerAt::Path(CString::new(path.as_str())?),
        None => LedgerAt::Nowhere,
    };
    let unread = || io::Error::other("the host's memory cannot be read");
    let observer = RunObserver::new(*slice, ledger);
    let (view, machine) = observer
        .and_then(|mut observer| observer.look())
        .ok_or_else(unread)?;
    meminfo_page::make(&path, &view, machine)?;
    Ok(path)
}

/// The page of the run that a watcher watches.
#[derive(Debug)]
pub(crate) struct RunPage {
    page: Page,
    observer: RunObserver,
}

impl RunPage {
    /// Opens the page of a private folder, if it has one. `ledger` leads to the watcher's descriptor of
    /// the ledger.
    pub(crate) fn open(private: &Path, ledger: &CStr) -> Option<RunPage> {
        let page = Page::open(&private.join(run_dir::PAGE)).ok()?;
        let slice = slice_file::read(&private.join(run_dir::SLICE)).ok()?;
        let ledger = match slice.ledger {
            Some(_) => LedgerAt::Link(ledger.to_owned()),
            None => LedgerAt::Nowhere,
        };
        let observer = RunObserver::new(slice, ledger)?;
        Some(RunPage { page, observer })
    }

    /// Shows the slice as it is now. A page that cannot be written stays as it is, and grows old.
    pub(crate) fn refresh(&mut self) {
        if let Some((view, machine)) = self.observer.look() {
            let _ = self.page.show(&view, machine);
        }
    }
}
