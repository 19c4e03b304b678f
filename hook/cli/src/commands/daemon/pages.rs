//! The meminfo pages of containers, which `gpusliced` writes.
//! Touches: the pages; everything that `runs::meminfo` touches; the records of containers, by reading
//! them.
//! Law: only pages that a hook has made are written. If this process ends, they show the last numbers,
//! and their age says so.

use crate::runs::meminfo::{Charged, HostReading, LedgerAt, Observer, cgroups_of};
use crate::slice::ledger as slice_ledger;
use anyhow::Context;
use gpuslice_config::answer::view::MemoryView;
use gpuslice_config::slice::{self, MAX_FILE, Slice};
use gpuslice_host::base::ledger_room;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::base::read;
use gpuslice_host::slices::meminfo_page::{self, Page};
use gpuslice_host::slices::records::{self, SliceRecord};
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

/// A change of a folder is younger than this: another one may have the same time.
const SETTLES: Duration = Duration::from_millis(100);

/// How often the cgroups of containers that have just started are looked for, and whether another
/// process still writes the pages.
const AGAIN: Duration = Duration::from_secs(1);

/// The page of one slice.
#[derive(Debug)]
struct SlicePage {
    page: Page,
    observer: Observer,
    /// The first processes of its containers whose cgroups are not known yet.
    starting: Vec<i32>,
}

/// The pages of this host.
#[derive(Debug)]
struct Pages {
    places: HostPaths,
    meminfo: PathBuf,
    /// The times of the folders of pages and records when they were read.
    read: Option<[Option<SystemTime>; 2]>,
    looked: Instant,
    pages: Vec<SlicePage>,
}

/// The reason for which a page is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    /// The next look.
    Next,
    /// The daemon ends, and no process rewrites the page: free memory must not rise.
    Forever,
}

/// Writes the pages until the process is ended. While another process writes them, waits for its end.
///
/// # Errors
/// When they cannot be claimed.
pub(super) fn serve(
    places: HostPaths,
    meminfo: PathBuf,
    period: Duration,
    tell: fn(&str),
) -> anyhow::Result<u8> {
    let _claim = claim(&places, tell)?;
    tell(&format!(
        "writes the meminfo pages of slices in {} every {} ms",
        places.pages().display(),
        period.as_millis()
    ));
    let mut pages = Pages::new(places, meminfo);
    let mut due = Instant::now();
    loop {
        pages.turn(Until::Next);
        // A look that took long is not made up for.
        due = due.max(Instant::now()).checked_add(period).unwrap_or(due);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

/// Claims the pages. If another process writes them, says so once, and waits for its end.
///
/// # Errors
/// When they cannot be claimed.
fn claim(places: &HostPaths, tell: fn(&str)) -> anyhow::Result<File> {
    let mut is_told = false;
    loop {
        let claim = meminfo_page::claim(places).context("cannot claim the meminfo pages")?;
        if let Some(claim) = claim {
            return Ok(claim);
        }
        // The process that held the lock may have ended meanwhile.
        if !is_told && meminfo_page::is_served(places) {
            is_told = true;
            tell(&waits(meminfo_page::writer(places), places));
        }
        while meminfo_page::is_served(places) {
            std::thread::sleep(AGAIN);
        }
    }
}

/// The message of a daemon that waits for the pages.
fn waits(writer: Option<u32>, places: &HostPaths) -> String {
    let writer = match writer {
        Some(pid) => format!("process {pid}"),
        None => "another process".to_owned(),
    };
    format!(
        "{writer} already writes the meminfo pages in {}: this gpusliced takes the pages over when that \
         process ends",
        places.pages().display()
    )
}

/// Writes the pages a last time, after the daemon has ended: free memory is at most what they show, and
/// at most what is left at this moment.
///
/// # Errors
/// When they cannot be claimed.
pub(super) fn leave(places: HostPaths, meminfo: PathBuf) -> anyhow::Result<()> {
    // If another daemon has started meanwhile, it writes them.
    if let Some(_claim) = meminfo_page::claim(&places)? {
        Pages::new(places, meminfo).turn(Until::Forever);
    }
    Ok(())
}

impl Pages {
    fn new(places: HostPaths, meminfo: PathBuf) -> Pages {
        Pages {
            places,
            meminfo,
            read: None,
            looked: Instant::now(),
            pages: Vec::new(),
        }
    }

    /// Looks at all slices with pages, and shows them.
    fn turn(&mut self, until: Until) {
        self.find();
        if self.pages.is_empty() {
            return;
        }
        let promises = self.places.promises();
        let Some(host) = HostReading::now(&self.meminfo, Some(&promises)) else {
            return;
        };
        for one in &mut self.pages {
            let Some(mut view) = one.observer.view(&host) else {
                continue;
            };
            if let (Until::Forever, Some(shown)) = (until, one.page.free()) {
                view = at_most(view, shown);
            }
            // A page that cannot be written grows old, and gpuslice doctor says so.
            let _ = one.page.show(&view, host.memory.total);
        }
    }

    /// Finds the pages again if containers have started or ended.
    fn find(&mut self) {
        let time = |path: PathBuf| fs::metadata(path).and_then(|facts| facts.modified()).ok();
        let times = [time(self.places.pages()), time(self.places.slices())];
        let is_settled = times.iter().flatten().all(|time| {
            let age = SystemTime::now().duration_since(*time);
            age.is_ok_and(|age| age > SETTLES)
        });
        if self.read != Some(times) {
            self.pages = self.all();
            self.read = is_settled.then_some(times);
        }
        if self.looked.elapsed() >= AGAIN {
            self.looked = Instant::now();
            self.pages.iter_mut().for_each(SlicePage::find_cgroups);
        }
    }

    fn all(&self) -> Vec<SlicePage> {
        let names = fs::read_dir(self.places.pages()).into_iter().flatten();
        let names: Vec<_> = names.flatten().map(|entry| entry.file_name()).collect();
        if names.is_empty() {
            return Vec::new();
        }
        // A damaged record has no page that can be shown.
        let Ok((records, _)) = records::survey(&self.places) else {
            return Vec::new();
        };
        let with_page = records
            .into_iter()
            .filter(|record| names.iter().any(|name| *name == *record.slice));
        with_page
            .filter_map(|record| SlicePage::open(&self.places, &record))
            .collect()
    }
}

/// The view with no more free memory than this.
fn at_most(view: MemoryView, free: gpuslice_config::words::units::Bytes) -> MemoryView {
    let free = view.free.at_most(free);
    MemoryView {
        free,
        used: view.total.minus(free),
        ..view
    }
}

impl SlicePage {
    fn open(places: &HostPaths, record: &SliceRecord) -> Option<SlicePage> {
        let ledger = places.ledger_file(&record.slice);
        let slice = record.containers.iter().find_map(|member| {
            let file = places.container_root(&member.id).join("slice.json");
            parsed(&read::file(&file, MAX_FILE).ok()?)
        })?;
        let length = ledger_room::length(&ledger);
        let ledger = LedgerAt::Path(slice_ledger::c_path(&ledger));
        let own = Some(record.slice.clone());
        let charged = Charged::Cgroups(Vec::new());
        let mut made = SlicePage {
            page: Page::open(&places.page(&record.slice)).ok()?,
            observer: Observer::new(slice, own, ledger, charged, length)?,
            starting: record
                .containers
                .iter()
                .map(|member| member.owner.pid)
                .collect(),
        };
        made.find_cgroups();
        Some(made)
    }

    /// Finds the cgroups of containers. A container that is being made still has the host's root.
    fn find_cgroups(&mut self) {
        if let Charged::Cgroups(cgroups) = self.observer.charged() {
            cgroups_of(&mut self.starting, cgroups);
        }
    }
}

fn parsed(text: &[u8]) -> Option<Slice> {
    slice::parse(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuslice_config::words::units::Bytes;

    #[test]
    fn what_a_daemon_leaves_behind_never_promises_more_than_before() {
        let view = |free| MemoryView {
            total: Bytes::gib(40),
            free: Bytes::gib(free),
            used: Bytes::gib(40).minus(Bytes::gib(free)),
        };
        assert_eq!(at_most(view(30), Bytes::gib(10)), view(10));
        assert_eq!(at_most(view(5), Bytes::gib(10)), view(5));
    }

    #[test]
    fn a_writer_whose_pid_is_unknown_is_another_process() {
        let places = HostPaths::below(std::path::Path::new("/host"));
        let line = "another process already writes the meminfo pages in /host/run/gpuslice/meminfo: this \
                    gpusliced takes the pages over when that process ends";
        assert_eq!(waits(None, &places), line);
        let known = waits(Some(7), &places);
        assert_eq!(known, line.replacen("another process", "process 7", 1));
    }
}
