//! `gpuslice drop-cache` and `gpuslice residency`: evict and report model files in the page cache.
//! Touches: the page cache of the named files, /proc, standard output.
//! Law: no byte of any file changes; dirty pages are written to their device first.

pub(crate) mod choose;
mod evict;
mod filesystem;
mod holders;
mod lease;
mod live;
mod mapped;
mod progress;
mod report;
mod resident;
mod survey;
pub(crate) mod watch;

use crate::base::streams;
use gpuslice_config::words::units::Bytes;
use holders::{Holder, Identity};
use progress::Progress;
use report::{Report, State};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use survey::Surveyed;

/// Which files are meant.
#[derive(clap::Args, Debug)]
pub struct Files {
    /// In folders, take every file, and not only files with names of model files
    #[arg(long)]
    pub all: bool,

    /// In folders, take files with this suffix. May be repeated
    #[arg(long, value_name = "SUFFIX", conflicts_with = "all", default_values = choose::SUFFIXES, hide_default_value = true)]
    pub suffix: Vec<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Files {
    fn suffixes(&self) -> Option<Vec<String>> {
        let bare = |suffix: &String| suffix.trim_start_matches('.').to_owned();
        (!self.all).then(|| self.suffix.iter().map(bare).collect())
    }
}

/// `gpuslice drop-cache`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = DROP_NOTES,
    override_usage = "gpuslice drop-cache [OPTIONS] PATH...\n       gpuslice drop-cache [OPTIONS] --live PID [PATH...]"
)]
pub struct DropArgs {
    /// Files, and folders of model files
    #[arg(required_unless_present = "live", value_name = "PATH")]
    pub paths: Vec<PathBuf>,

    #[command(flatten)]
    pub files: Files,

    /// Report what would be dropped, and drop nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Drop also the pages that this process has mapped, while it runs. Without PATH, take all model
    /// files that it has mapped
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub live: Option<u32>,
}

/// `gpuslice residency`.
#[derive(clap::Args, Debug)]
#[command(after_help = RESIDENCY_NOTES)]
pub struct ResidencyArgs {
    /// Files, and folders of model files
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,

    #[command(flatten)]
    pub files: Files,

    /// Print only the sums, and no line for each file
    #[arg(long, conflicts_with = "json")]
    pub summary: bool,
}

const DROP_NOTES: &str = "\
In folders and below them, model files are those with the suffix safetensors, gguf, ggml, pt, pth,
bin, ckpt, onnx, npy, npz, h5, msgpack, engine or tflite, and those whose name is a checksum, as in
stores of models. A file that is named itself is taken whatever its name is. Links are followed. No
data is lost: dirty pages are written first, and pages that are read again come from the device.

Pages that a process has mapped stay until it unmaps them. The output names these processes; root
sees all of them. With --live, the process loses its pages too, and faults them in again when it
touches them. Files on tmpfs, memfd, ramfs and hugetlbfs are memory and cannot be dropped. ZFS keeps
a cache of its own, which drop-cache does not reach.

Exit status: 0 all pages that could be dropped are verified to be gone; 1 some are left, or their
state is unknown; 125 usage error, or gpuslice itself failed. With --dry-run, the exit status and
the states are those that a real run would have.

JSON: schema, files [path, size, state (dropped, not-cached, left, not-droppable, unknown,
unreadable; with --dry-run also cached), before, after, dirty, counted_by, why, mapped_by [pid,
name]], before, after, seconds, dry_run, unseen_processes [pid, name] (whose mappings cannot be
read). Amounts are bytes; null means unknown.

Examples:
  gpuslice drop-cache /models
  gpuslice drop-cache --dry-run --json ~/.cache/huggingface
  gpuslice drop-cache --live $(pidof llama-server)       what it has mapped, while it serves";

const RESIDENCY_NOTES: &str = "\
The files are those of drop-cache, the largest cached amount first. Files of which nothing is cached
have no line. The kernel reports the amounts by cachestat(2), and by mincore(2) on overlays and
before Linux 6.5. It reports them only to the owner of a file, to users who may write the file, and
to root. For other users the amount is unknown (?).

Exit status: 0 all amounts are known; 1 some are unknown; 125 usage error, or gpuslice itself
failed.

JSON: schema, files [path, size, state (cached, not-cached, not-droppable, unknown, unreadable),
before (the cached amount), dirty, counted_by, why], before, seconds. Amounts are bytes; null means
unknown.

Examples:
  gpuslice residency /models/llama.gguf
  gpuslice residency --summary ~/.cache/huggingface
  gpuslice residency --all --json /var/lib/containers";

/// Reports how much of the files is in the page cache.
///
/// # Errors
/// When the report cannot be printed.
pub(crate) fn residency(args: &ResidencyArgs) -> anyhow::Result<u8> {
    let start = Instant::now();
    let files = survey::survey(&args.paths, args.files.suffixes().as_deref());
    let files = files.into_iter().map(|file| file.report).collect();
    let report = Report::new(files, start.elapsed());
    let said = match args.files.json {
        true => report.residency_json()?,
        false => report.residency(args.summary),
    };
    streams::print(said.as_bytes())?;
    Ok(report.residency_status())
}

/// Drops the files from the page cache.
///
/// # Errors
/// When a named process cannot be read, or the report cannot be printed.
pub(crate) fn drop_cache(args: &DropArgs) -> anyhow::Result<u8> {
    let start = Instant::now();
    let suffixes = args.files.suffixes();
    let mut files = survey::survey(&args.paths, suffixes.as_deref());
    let mut live = None;
    if let Some(pid) = args.live {
        let found = live::Live::find(pid, suffixes.as_deref(), &mut files, args.paths.is_empty())?;
        live = Some(found);
    }
    if !args.dry_run {
        if let Some(live) = &live {
            live.page_out()?;
        }
        evict_all(&mut files);
    }
    let mut unseen = match args.dry_run {
        true => foresee(&mut files, args.live),
        false => name_holders(&mut files),
    };
    for pause in PAUSES {
        if args.dry_run || !retry(&mut files, pause) {
            break;
        }
        unseen = name_holders(&mut files);
    }
    let files = files.into_iter().map(|file| file.report).collect();
    let mut report = Report::new(files, start.elapsed());
    (report.dry_run, report.unseen_processes) = (args.dry_run, unseen);
    let said = match args.files.json {
        true => report.drop_cache_json()?,
        false => report.drop_cache(),
    };
    streams::print(said.as_bytes())?;
    Ok(report.status())
}

/// Waits between attempts, in milliseconds. Pages that stay although no process has mapped them are
/// being read, perhaps by read-ahead, or being written. No event reports the end of that.
const PAUSES: [u64; 4] = [5, 20, 80, 400];

/// Retries the files that stayed without a known reason. Returns false if there are none.
fn retry(files: &mut [Surveyed], pause: u64) -> bool {
    let progress = Progress::new("dropping", 0);
    let is_in_use = |file: &&mut Surveyed| file.report.why.as_deref() == Some(IN_USE);
    let left: Vec<_> = files.iter_mut().filter(is_in_use).collect();
    if left.is_empty() {
        return false;
    }
    std::thread::sleep(Duration::from_millis(pause));
    for file in left {
        file.report.why = None;
        if !evict_one(file, &progress) {
            file.report.state = State::NotCached;
        }
    }
    true
}

fn evict_all(files: &mut Vec<Surveyed>) {
    let known = files.iter().filter_map(|file| file.before);
    let total = known.fold(Bytes::ZERO, |sum, before| sum.plus(before.bytes));
    let progress = Progress::new("dropping", total.get());
    // A file that no longer exists has no pages to drop.
    files.retain_mut(|file| match file.report.state {
        State::Cached | State::Unknown => evict_one(file, &progress),
        _ => true,
    });
}

/// Drops one file; false if it no longer exists.
fn evict_one(file: &mut Surveyed, progress: &Progress) -> bool {
    let outcome = match file.reopen() {
        Ok(Some((open, data))) => {
            let before = file.before.map_or(0, |before| before.bytes.get());
            let share = |bytes: u64| share(before, bytes, data.len());
            evict::evict(&open, &data, file.on, file.before, &mut |bytes| {
                progress.advance(share(bytes));
            })
        }
        Ok(None) => return false,
        Err(error) => Err(error),
    };
    match outcome {
        Ok(None) => {}
        Ok(Some(after)) => {
            file.report.after = Some(after.bytes.get());
            file.report.dirty = after.dirty.map(Bytes::get);
            file.report.state = match after.bytes {
                Bytes::ZERO => State::Dropped,
                _ => State::Left,
            };
        }
        Err(error) => {
            file.report.state = State::Left;
            file.report.why = Some(error.to_string());
        }
    }
    true
}

/// Returns `part` of `whole`, as a share of `amount`.
fn share(amount: u64, part: u64, whole: u64) -> u64 {
    let share = u128::from(amount).saturating_mul(u128::from(part));
    let share = share.checked_div(u128::from(whole)).unwrap_or(0);
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// Finds the processes that have mapped the files that are left.
fn name_holders(files: &mut [Surveyed]) -> Vec<Holder> {
    let is_left =
        |file: &&mut Surveyed| file.report.state == State::Left && file.report.why.is_none();
    let mut left: Vec<&mut Surveyed> = files.iter_mut().filter(is_left).collect();
    let (held, unseen) = holders_of(&left);
    for (file, (_, holders)) in left.iter_mut().zip(held) {
        if holders.is_empty() {
            file.report.why = Some(IN_USE.to_owned());
        }
        file.report.mapped_by = holders;
    }
    unseen
}

/// Predicts what would be left of each cached file. `live` is the process whose mappings would be
/// paged out.
fn foresee(files: &mut [Surveyed], live: Option<u32>) -> Vec<Holder> {
    let is_cached = |file: &&mut Surveyed| file.report.state == State::Cached;
    let mut cached: Vec<&mut Surveyed> = files.iter_mut().filter(is_cached).collect();
    let (held, unseen) = holders_of(&cached);
    for (file, (identity, holders)) in cached.iter_mut().zip(held) {
        // A file that must not be paged out has a reason already.
        let out = live.filter(|_| file.report.why.is_none());
        let staying = holders.iter().filter(|holder| Some(holder.pid) != out);
        let stays = mapped::in_page_tables(&identity, staying).get();
        file.report.after = file.report.before.map(|before| before.min(stays));
        if stays > 0 {
            file.report.state = State::Left;
            if file.report.why.is_none() {
                file.report.mapped_by = holders;
            }
        }
    }
    unseen
}

/// Returns the processes that have mapped each file, and the processes that could not be read.
fn holders_of(files: &[&mut Surveyed]) -> (Vec<(Identity, Vec<Holder>)>, Vec<Holder>) {
    if files.is_empty() {
        return (Vec::new(), Vec::new());
    }
    let identities: Vec<_> = files.iter().filter_map(|file| file.mapped_as()).collect();
    let (held, unseen) = holders::holders(&identities);
    (identities.into_iter().zip(held).collect(), unseen)
}

const IN_USE: &str = "in use: being read or written, or locked by the kernel";
