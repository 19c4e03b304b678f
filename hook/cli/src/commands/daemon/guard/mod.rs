//! `gpusliced --guard`: sees what slips past a slice, and acts before a machine with unified memory
//! stops to respond.
//! Touches: everything that its two threads touch; its own scheduling and memory locks.
//! Law: it signals only what the configuration allows. Its failure never changes a slice.

mod bypass;
mod candidates;
mod lever;
mod memory;
pub(super) mod settings;
pub(crate) mod state;
mod steps;
mod survey;

use crate::runs::host_memory;
use anyhow::Context;
use gpuslice_config::slice::host_reserve;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::machine::policy;
use memory::rungs::Rungs;
use memory::watch::{Host, Watch};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use settings::{Memory, Settings};
use std::fs;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use survey::{Channels, Survey};

/// The most notes that the watching thread leaves for the surveying thread.
const NOTES: usize = 64;
/// The most descriptors that are wanted: enough for 16,000 processes.
const DESCRIPTORS: u64 = 65_536;

/// Works until the process is ended.
///
/// # Errors
/// When a thread cannot be started, or the host's memory cannot be read.
pub(super) fn main(
    settings: Settings,
    places: HostPaths,
    meminfo: &Path,
    tell: fn(&str),
) -> anyhow::Result<()> {
    let channels = match settings.memory {
        Memory::Off => None,
        Memory::Warn | Memory::Act => Some(watch(&settings, &places, meminfo, tell)?),
    };
    if settings.bypass.is_some() {
        tell("compares what the driver reports with what slices count");
    }
    Survey::new(places, settings, channels).run(tell);
    Ok(())
}

/// Starts the watching thread.
fn watch(
    settings: &Settings,
    places: &HostPaths,
    meminfo: &Path,
    tell: fn(&str),
) -> anyhow::Result<Channels> {
    let host = Host::open(meminfo).with_context(|| format!("cannot open {}", meminfo.display()))?;
    let total = host_memory::read(meminfo)?.total;
    let policy = policy::read(places).ok();
    let reserve = policy.and_then(|policy| policy.reserve);
    let reserve = settings.reserve.or(reserve);
    let reserve = reserve.unwrap_or(host_reserve::default_reserve(total));
    let acts = settings.memory == Memory::Act;
    let (notes_in, notes) = sync_channel(NOTES);
    let (fresh, fresh_out) = sync_channel(1);
    // One more than candidates in flight, so that the watching thread never waits.
    let (spent_in, spent) = sync_channel(4);
    let watch = Watch {
        host,
        rungs: Rungs::new(reserve.get()),
        acts,
        fresh: fresh_out,
        spent: spent_in,
        notes: notes_in,
    };
    stay_runnable(tell);
    open_many();
    let thread = std::thread::Builder::new().name("guard-watch".to_owned());
    thread
        .spawn(move || {
            run_first();
            watch.run();
        })
        .context("cannot start the watching thread")?;
    tell(&format!(
        "{} when less than {} of the host's memory is available",
        if acts { "acts" } else { "warns" },
        Bytes::new(reserve.get()),
    ));
    Ok(Channels {
        notes,
        fresh,
        spent,
    })
}

/// Keeps this process in memory, and away from the kernel's own OOM killer. What is not allowed is
/// told: the guard then works, but may be too late.
fn stay_runnable(tell: fn(&str)) {
    if fs::write("/proc/self/oom_score_adj", "-1000").is_err() {
        tell("the kernel's OOM killer may choose this process (it takes CAP_SYS_RESOURCE)");
    }
    // SAFETY: mlockall changes only where this process's pages are kept.
    let locked = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) };
    if locked != 0 {
        tell("its memory is not locked (it takes CAP_IPC_LOCK, or LimitMEMLOCK=infinity)");
    }
}

/// Raises the number of descriptors: each candidate process takes two, twice while candidates are
/// exchanged. systemd gives 1,024, and allows far more.
fn open_many() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let wanted = hard.min(DESCRIPTORS).max(soft);
        let _ = setrlimit(Resource::RLIMIT_NOFILE, wanted, hard);
    }
}

/// Lets the calling thread run before ordinary ones. It sleeps most of the time.
fn run_first() {
    let mut lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: 0 is the calling thread, and the parameters live during the call. Without the right to
    // do so, the thread runs as others do.
    let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw mut lowest) };
}
