//! `gpusliced`: drops model files from the page cache when their last user has ended. It serves
//! programs that no preload reaches (static ones, Go's), and programs that were killed.
//! Touches: fanotify on the filesystems that its configuration names, the page cache, standard
//! error; the folders themselves, by reading them, if the kernel has lost events.
//! Law: it never blocks another process. A drop that comes too early costs a second read, no more.

use super::choose::{Candidate, SUFFIXES, Walk, has_suffix};
use super::evict::evict;
use super::filesystem::Filesystem;
use super::lease::{ignore_broken_leases, is_in_use};
use super::resident::resident;
use super::survey::open;
use crate::base::{exit, streams, text};
use anyhow::Context;
use gpuslice_config::words::units::Bytes;
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};
use serde::Deserialize;
use std::collections::HashMap;
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Drops model files from the page cache when their last user is gone.
#[derive(clap::Parser, Debug)]
#[command(name = "gpusliced", version, max_term_width = 100, after_help = NOTES)]
pub(crate) struct Args {
    /// Its configuration
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/gpuslice/gpusliced.toml"
    )]
    pub config: PathBuf,
}

const NOTES: &str = "\
Programs in a slice drop their own model files. gpusliced does it for those that no preload reaches,
static and Go programs, and for what was killed. It is off unless it is configured and started:
  cp /usr/share/doc/gpuslice/examples/gpusliced.toml /etc/gpuslice/
  systemctl enable --now gpusliced

The configuration:
  paths = [\"/models\"]          folders; the whole filesystem of each is watched, as every container sees it
  smallest = \"64MiB\"           smaller files stay (default)
  suffixes = [\"safetensors\", \"gguf\"]   default: those of gpuslice drop-cache
  settle_seconds = 2.0         how long nobody may have used a file (default)

It requires CAP_SYS_ADMIN. An overlay is a filesystem of its own, which is not watched with the one below.";

/// Prints a message under the daemon's own name.
fn tell(message: &str) {
    streams::tell_as("gpusliced", message);
}

/// The hint for a missing configuration.
const EXAMPLE: &str = "an example is /usr/share/doc/gpuslice/examples/gpusliced.toml";

/// The contents of the configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    paths: Vec<PathBuf>,
    #[serde(default = "smallest")]
    smallest: String,
    #[serde(default = "suffixes")]
    suffixes: Vec<String>,
    #[serde(default = "settle_seconds")]
    settle_seconds: f64,
}

fn smallest() -> String {
    "64MiB".to_owned()
}

fn suffixes() -> Vec<String> {
    SUFFIXES.map(str::to_owned).to_vec()
}

fn settle_seconds() -> f64 {
    2.0
}

/// A model file that a process has closed.
struct Released {
    kept: Kept,
    due: Instant,
    /// The number of attempts since.
    tries: u32,
}

/// A file between two attempts.
enum Kept {
    /// The file is open.
    Open(File),
    /// The file is held by `O_PATH` only. While it is open here, its other users cannot be
    /// determined. A path would not do, because a container's path leads elsewhere on the host.
    Place(File),
}

/// The most attempts. Pages that are on their way from the device stay at first. And another
/// process's close may not be reported, as with other watchers such as a virus scanner.
const TRIES: u32 = 5;

impl Released {
    /// Schedules the next attempt; None if there is none.
    fn again(tries: u32, file: File, dropped: Dropped, settle: Duration) -> Option<Released> {
        let (kept, wait) = match dropped {
            Dropped::Done => return None,
            Dropped::InPart => (Kept::Open(file), settle),
            Dropped::InUse => (Kept::place_of(&file)?, pause(settle, tries)),
        };
        let tries = tries.saturating_add(1);
        let due = Instant::now().checked_add(wait)?;
        (tries <= TRIES).then_some(Released { kept, due, tries })
    }
}

impl Kept {
    fn place_of(file: &File) -> Option<Kept> {
        let place = File::options()
            .read(true)
            .custom_flags(libc::O_PATH)
            .open(descriptor(file));
        place.ok().map(Kept::Place)
    }

    /// Returns the file, reopened if it was held by `O_PATH` only.
    fn file(self) -> Option<File> {
        match self {
            Kept::Open(file) => Some(file),
            Kept::Place(place) => open(&descriptor(&place)).ok(),
        }
    }
}

/// Returns a path to the file of a descriptor of this process.
fn descriptor(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Returns the wait, which doubles each time. The process id is part of it, so that two daemons
/// that watch one file do not check it at equal moments for ever.
fn pause(settle: Duration, tries: u32) -> Duration {
    let own = Duration::from_millis(u64::from(std::process::id() % 97));
    let first = settle.max(Duration::from_millis(100));
    first
        .saturating_add(own)
        .saturating_mul(1 << tries.min(TRIES))
}

/// The most files waiting at once. Further files are missed and stay in the page cache.
const PENDING: usize = 256;

/// Returns the fault in the text of a configuration, if there is one.
pub(crate) fn fault(text: &str) -> Option<String> {
    let read = toml::from_str::<Config>(text);
    read.err().map(|error| error.message().to_owned())
}

/// Watches until the daemon is stopped.
///
/// # Errors
/// When the configuration cannot be read, or the kernel refuses to let it watch.
pub(crate) fn main(args: &Args) -> anyhow::Result<u8> {
    let text = fs::read_to_string(&args.config)
        .with_context(|| format!("cannot read {} ({EXAMPLE})", args.config.display()))?;
    let config: Config =
        toml::from_str(&text).with_context(|| format!("in {}", args.config.display()))?;
    let smallest: Bytes = config
        .smallest
        .parse()
        .with_context(|| format!("smallest in {}", args.config.display()))?;
    let settle = Duration::try_from_secs_f64(config.settle_seconds)
        .with_context(|| format!("settle_seconds in {}", args.config.display()))?;
    ignore_broken_leases();
    let watched = watch(&config.paths)?;
    for path in &config.paths {
        tell(&format!("watching the filesystem of {}", path.display()));
    }
    let mut released: HashMap<(u64, u64), Released> = HashMap::new();
    loop {
        wait(&watched, &released)?;
        let LetGo { mut files, missed } = let_go(&watched)?;
        if missed {
            tell("the kernel's event queue overflowed: checking all files");
            files.extend(all(&config));
        }
        for file in files {
            let Ok(data) = file.metadata() else {
                continue;
            };
            let wanted = data.is_file()
                && data.len() >= smallest.get()
                && has_suffix(&path_of(&file), &config.suffixes);
            let known = released.contains_key(&(data.dev(), data.ino()));
            let due = Instant::now().checked_add(settle);
            if let (Some(due), true) = (due, wanted && (known || released.len() < PENDING)) {
                // The newer descriptor replaces the older one: only one is held at a time.
                let fresh = Released {
                    kept: Kept::Open(file),
                    due,
                    tries: 0,
                };
                released.insert((data.dev(), data.ino()), fresh);
            }
        }
        let now = Instant::now();
        let due: Vec<_> = released.extract_if(|_, file| file.due <= now).collect();
        for (identity, Released { kept, tries, .. }) in due {
            let Some(file) = kept.file() else {
                continue;
            };
            let dropped = drop_if_unused(&file);
            if let Some(again) = Released::again(tries, file, dropped, settle) {
                released.insert(identity, again);
            }
        }
    }
}

/// Returns the model files of the configuration's folders, any of which may have been closed.
fn all(config: &Config) -> Vec<File> {
    let wanted = |path: &Path| has_suffix(path, &config.suffixes);
    let mut files = Vec::new();
    Walk::all(&config.paths, &wanted, &mut |found| {
        if let Candidate::File(path) = found
            && files.len() < PENDING
        {
            files.extend(open(&path).ok());
        }
    });
    files
}

/// Subscribes to every close on the filesystems.
fn watch(paths: &[PathBuf]) -> anyhow::Result<Fanotify> {
    let group = InitFlags::FAN_CLASS_NOTIF | InitFlags::FAN_CLOEXEC | InitFlags::FAN_NONBLOCK;
    let events = EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC;
    let fanotify = Fanotify::init(group, events)
        .context("cannot watch the file system (requires CAP_SYS_ADMIN)")?;
    for path in paths {
        let whole = MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_FILESYSTEM;
        // A close event follows the last descriptor and the last mapping of an open file.
        fanotify
            .mark(
                whole,
                MaskFlags::FAN_CLOSE,
                nix::fcntl::AT_FDCWD,
                Some(path),
            )
            .with_context(|| format!("cannot watch the filesystem of {}", path.display()))?;
    }
    Ok(fanotify)
}

/// Waits for an event, or until the first file has settled.
fn wait(watched: &Fanotify, released: &HashMap<(u64, u64), Released>) -> anyhow::Result<()> {
    let now = Instant::now();
    let due = released
        .values()
        .map(|file| file.due.saturating_duration_since(now))
        .min();
    let timeout = match due {
        // One millisecond late rather than early: an early wake-up would check again at once.
        Some(due) => PollTimeout::try_from(due.saturating_add(Duration::from_millis(1)))
            .unwrap_or(PollTimeout::MAX),
        None => PollTimeout::NONE,
    };
    match poll(
        &mut [PollFd::new(watched.as_fd(), PollFlags::POLLIN)],
        timeout,
    ) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error).context("cannot wait for events"),
    }
}

/// The events of one read.
#[derive(Default)]
struct LetGo {
    /// The files that were closed.
    files: Vec<File>,
    /// Whether there were more events than the kernel's queue holds.
    missed: bool,
}

fn let_go(watched: &Fanotify) -> anyhow::Result<LetGo> {
    let events = match watched.read_events() {
        Ok(events) => events,
        Err(Errno::EAGAIN | Errno::EINTR) => return Ok(LetGo::default()),
        Err(error) => return Err(error).context("cannot read events"),
    };
    let own = i32::try_from(std::process::id()).ok();
    // Closes by this daemon itself are ignored.
    let others = events.iter().filter(|event| Some(event.pid()) != own);
    let files = others.filter_map(|event| {
        let descriptor = event.fd()?.try_clone_to_owned().ok()?;
        Some(File::from(descriptor))
    });
    let overflown = MaskFlags::FAN_Q_OVERFLOW;
    Ok(LetGo {
        files: files.collect(),
        missed: events.iter().any(|event| event.mask().contains(overflown)),
    })
}

fn path_of(file: &File) -> PathBuf {
    fs::read_link(descriptor(file)).unwrap_or_default()
}

/// The outcome of an attempt to drop a file.
#[derive(PartialEq)]
enum Dropped {
    /// The pages are gone, or cannot be dropped.
    Done,
    /// Some pages have stayed.
    InPart,
    /// All pages have stayed: a process has the file open or mapped.
    InUse,
}

/// Drops a file that no other process has open or mapped.
fn drop_if_unused(file: &File) -> Dropped {
    let Ok(data) = file.metadata() else {
        return Dropped::Done;
    };
    if is_in_use(file) {
        return Dropped::InUse;
    }
    let on = Filesystem::of(file);
    let before = resident(file, &data, on).ok().flatten();
    if matches!(on, Filesystem::Memory(_)) || before.is_some_and(|seen| seen.bytes == Bytes::ZERO) {
        return Dropped::Done;
    }
    let shown = path_of(file);
    let shown = text::printable(&shown.display().to_string());
    match evict(file, &data, on, before, &mut |_| {}) {
        Ok(after) => {
            let bytes = |seen: Option<super::resident::Resident>| {
                seen.map_or(Bytes::ZERO, |seen| seen.bytes)
            };
            let gone = bytes(before).minus(bytes(after));
            tell(&format!("dropped {gone} of {shown}, {} left", bytes(after)));
            match bytes(after) {
                Bytes::ZERO => Dropped::Done,
                _ => Dropped::InPart,
            }
        }
        Err(error) => {
            tell(&format!("cannot drop {shown}: {error}"));
            Dropped::Done
        }
    }
}

/// Checks whether this executable was started under the daemon's name.
#[must_use]
pub(crate) fn is_called() -> bool {
    let name = std::env::args_os().next();
    name.is_some_and(|name| Path::new(&name).file_name() == Some("gpusliced".as_ref()))
}

/// The daemon's entry point: reads its arguments and watches.
#[must_use]
pub(crate) fn entry() -> u8 {
    match <Args as clap::Parser>::try_parse() {
        Ok(args) => main(&args).unwrap_or_else(|error| {
            tell(&format!("{error:#}"));
            exit::FAILED
        }),
        Err(error) => {
            let _ = error.print();
            if error.use_stderr() {
                exit::FAILED
            } else {
                exit::SUCCESS
            }
        }
    }
}
