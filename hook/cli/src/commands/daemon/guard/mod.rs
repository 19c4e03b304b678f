//! `gpusliced --guard`: sees what escapes a slice, and acts before a machine with unified memory stops
//! responding.
//! Touches: everything that its two threads touch; its own scheduling and memory locks.
//! Law: it signals only what the configuration allows. If it fails, slices are unaffected.

mod bypass;
mod candidates;
mod cheap;
mod denied;
mod lever;
mod memory;
pub(super) mod settings;
pub(crate) mod state;
mod steps;
mod survey;

use crate::base::oom;
use crate::runs::host_memory;
use anyhow::{Context, bail};
use gpuslice_config::slice::host_reserve;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::machine::policy;
use memory::rungs::Rungs;
use memory::watch::{Host, Watch};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use settings::{Memory, Settings};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};
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
    let host = Host::open(meminfo).ok();
    let mut survey = Survey::new(places, settings, host, tell);
    survey.survey();
    let memory = survey
        .settings
        .memory
        .unwrap_or_else(|| survey.memory_by_gpus());
    if memory == Memory::Off && survey.settings.bypass.is_none() {
        bail!("there is nothing to do: memory and bypass in [guard] are off");
    }
    if memory != Memory::Off {
        let acts = memory == Memory::Act;
        let channels = watch(&survey.settings, acts, &survey.places, meminfo, tell)?;
        let is_own_host = meminfo == Path::new("/proc/meminfo");
        survey = survey.with(channels, acts, is_own_host);
    }
    if survey.settings.bypass.is_some() {
        tell("compares what the driver reports with what slices count");
    }
    survey.run();
    bail!("the watching thread has ended")
}

/// Starts the watching thread.
fn watch(
    settings: &Settings,
    acts: bool,
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
    let reserve = check(reserve, total)?;
    let (level, slope): (Arc<AtomicU64>, Arc<AtomicI64>) = Default::default();
    let (notes_in, notes) = sync_channel(NOTES);
    let (fresh, fresh_out) = sync_channel(1);
    // Room for every old list: with a full channel, the watching thread would free one itself.
    let (spent_in, spent) = sync_channel(4);
    let watch = Watch {
        host,
        rungs: Rungs::new(reserve.get()),
        acts,
        fresh: fresh_out,
        spent: spent_in,
        notes: notes_in,
        level: Arc::clone(&level),
        slope: Arc::clone(&slope),
    };
    stay_runnable(tell);
    open_many();
    let thread = std::thread::Builder::new().name("guard-watch".to_owned());
    thread
        .spawn(move || {
            if !run_first() {
                tell("the watching thread has no real-time priority (this needs CAP_SYS_NICE)");
            }
            watch.run();
        })
        .context("cannot start the watching thread")?;
    // The steps of `memory::rungs`.
    let warns = Bytes::new(reserve.get().saturating_mul(2));
    let signals = Bytes::new(reserve.get() / 2);
    let acting = match acts {
        true => format!(", drops caches below {reserve}, sends signals below {signals}"),
        false => String::new(),
    };
    tell(&format!(
        "warns when less than {warns} of the host's memory is available{acting}"
    ));
    Ok(Channels {
        notes,
        fresh,
        spent,
        level,
        slope,
    })
}

/// Checks a reserve: with too large a one, everybody who may get a signal would get one.
fn check(reserve: Bytes, total: Bytes) -> anyhow::Result<Bytes> {
    if reserve == Bytes::ZERO || reserve.get() > total.get() / 2 {
        bail!(
            "a reserve of {reserve} is not possible on a host of {total}: give more than 0 and at \
             most half (reserve in [guard], or in config.toml)"
        );
    }
    Ok(reserve)
}

/// Keeps this process in memory, and away from the kernel's own OOM killer. Logs each of the two that
/// the system refuses: the guard then works, but may act too late.
fn stay_runnable(tell: fn(&str)) {
    if oom::never_choose_me().is_err() {
        tell("the kernel's OOM killer may choose this process (this needs CAP_SYS_RESOURCE)");
    }
    // SAFETY: mlockall changes only where this process's pages are kept.
    let locked = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) };
    if locked != 0 {
        tell(
            "the guard's memory is not locked (this needs CAP_IPC_LOCK, or LimitMEMLOCK=infinity)",
        );
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

/// Gives the calling thread a real-time priority. It sleeps most of the time. Returns whether that is
/// allowed.
fn run_first() -> bool {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: 0 is the calling thread, and the parameters live during the call.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const lowest) == 0 }
}
