//! `gpusliced`: watches the page cache, serves metrics, and writes the meminfo pages of containers, as
//! far as it is configured. With `--guard` it is the guard, a process of its own.
//! Touches: its configuration, standard error; everything that its parts touch.
//! Law: without `--guard`, one thread, which never waits for a client. The process that may send signals
//! serves no clients. The meminfo pages have a process of their own, because a scrape or a large file may
//! take seconds.

mod config;
mod guard;
mod http;
mod pages;

pub(crate) use config::parts;
pub(crate) use guard::state as guard_state;

use crate::base::{exit, streams, usage_error};
use crate::commands::cache::watch::{Policy, Totals, Watcher};
use crate::commands::metrics::{self, Collector, Format};
use crate::runs::host_memory;
use crate::runs::process::Process;
use anyhow::{Context, bail};
use config::{Address, Config, Metrics};
use gpuslice_host::base::paths::HostPaths;
use http::Server;
use http::request::{Request, Response};
use nix::errno::Errno;
use nix::poll::{PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getppid};
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Serves metrics, evicts model files from the page cache, writes meminfo pages, and runs the guard.
#[derive(clap::Parser, Debug)]
#[command(name = "gpusliced", version, max_term_width = 100, after_help = NOTES)]
pub(crate) struct Args {
    /// The configuration file
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/gpuslice/gpusliced.toml"
    )]
    pub config: PathBuf,

    /// Run as the guard, configured by the table [guard]; gpuslice-guard.service does this
    #[arg(long)]
    pub guard: bool,

    /// Write the meminfo pages a last time, and exit; gpusliced.service does this when gpusliced ends
    #[arg(long, conflicts_with = "guard")]
    pub leave_pages: bool,

    /// The host's memory (for tests)
    #[arg(long, value_name = "FILE", default_value = host_memory::MEMINFO, hide = true)]
    pub meminfo: PathBuf,

    /// The hook's folders are below this one (for tests)
    #[arg(long, value_name = "DIR", hide = true)]
    pub root: Option<PathBuf>,
}

const NOTES: &str = "\
gpusliced is off unless it is configured and started. Each part is off unless its table is there:
  cp /usr/share/doc/gpuslice/examples/gpusliced.toml /etc/gpuslice/
  systemctl enable --now gpusliced

Metrics: GET /metrics for Prometheus, as gpuslice metrics prints them; GET /healthz.
  [metrics]
  listen = \"127.0.0.1:9835\"    or \"[::]:9835\", or the path of a Unix socket, or a list of these
  compatible = [\"hami\", \"gpu-sharing\"]   also under the names of these exporters (default: none)

There is no encryption and no password: whoever can connect reads the names, sizes and users of all
slices. Numbers are collected when they are asked for, at most once a second.

The page cache: programs in a slice drop their own model files. gpusliced drops those of programs
that no preload reaches (static and Go programs), and of killed programs.
  [page-cache]
  paths = [\"/models\"]          folders; the whole filesystem of each is watched, as every
                               container sees it
  smallest = \"64MiB\"           smaller files stay (default)
  suffixes = [\"safetensors\", \"gguf\"]   default: those of gpuslice drop-cache
  settle_seconds = 2.0         drop a file this long after its last use (default)

The meminfo pages of containers with gpuslice.io/meminfo: mount, for programs that no preload reaches:
  [meminfo]
  interval_seconds = 0.1       how often they are written (default)

The guard is a process of its own, gpusliced --guard, which the service gpuslice-guard starts:
  [guard]
  memory = \"warn\"              when the host runs short of memory: warn, act (drop caches, SIGTERM,
                               SIGKILL), off (default: warn on unified memory or without GPUs)
  reserve = \"8GiB\"             the memory to keep available (default: that of config.toml)
  bypass = \"warn\"              the highest step against a process that holds memory beyond its
                               slice: off, warn, deny (new GPU opens), terminate, kill
  slack = \"256MiB\"             a smaller difference is not suspicious (default)
  step_seconds = 10.0          the time between two steps (default)
  [guard.host]
  programs = [\"python3\"]       programs outside of slices that may get a signal (default: none)

The page cache requires CAP_SYS_ADMIN. An overlay is a filesystem of its own, which is not watched
with the one below. A folder that cannot be watched is tried again every 5 seconds, and a filesystem
that is mounted over a folder later is watched from then on. Metrics of other users' slices require
root. While a large file is dropped, a scrape waits.";

/// Prints a message under the daemon's own name.
fn tell(message: &str) {
    streams::tell_as(NAME, message);
}

/// The name under which this executable acts as the daemon.
const NAME: &str = "gpusliced";

/// The hint for a missing configuration.
const EXAMPLE: &str = "an example is /usr/share/doc/gpuslice/examples/gpusliced.toml";

/// The age up to which collected numbers are served again, so that clients cannot keep this process
/// busy.
const FRESH: Duration = Duration::from_secs(1);

/// Metrics that were collected, in both formats.
struct Collected {
    at: Instant,
    openmetrics: Rc<[u8]>,
    prometheus: Rc<[u8]>,
}

/// Answers requests.
struct Exporter {
    collector: Collector,
    last: Option<Collected>,
}

impl Exporter {
    fn answer(&mut self, request: &Request, cache: Option<Totals>) -> Response {
        match request.path.as_str() {
            "/metrics" => self.metrics(request.accepts_openmetrics, cache),
            "/healthz" => Response::text("ok\n"),
            _ => Response::not_found(),
        }
    }

    fn collect(&mut self, cache: Option<Totals>) -> anyhow::Result<String> {
        let collected = self.collector.openmetrics(cache);
        // A child that was killed because the driver did not answer has ended by now, or will have
        // by a later collection. No other child is running.
        let any = Pid::from_raw(-1);
        let ended = |status| {
            matches!(
                status,
                Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..))
            )
        };
        while ended(waitpid(any, Some(WaitPidFlag::WNOHANG))) {}
        collected
    }

    fn metrics(&mut self, accepts_openmetrics: bool, cache: Option<Totals>) -> Response {
        self.last.take_if(|last| last.at.elapsed() >= FRESH);
        let last = match self.last.take() {
            Some(last) => last,
            None => match self.collect(cache) {
                Ok(text) => Collected::new(text),
                Err(error) => return Response::failed(&format!("{error:#}\n")),
            },
        };
        let last = self.last.insert(last);
        match accepts_openmetrics {
            true => Response::ok(OPENMETRICS, Rc::clone(&last.openmetrics)),
            false => Response::ok(PROMETHEUS, Rc::clone(&last.prometheus)),
        }
    }
}

impl Collected {
    fn new(openmetrics: String) -> Collected {
        let prometheus = metrics::in_format(openmetrics.clone(), Format::Prometheus);
        Collected {
            at: Instant::now(),
            openmetrics: openmetrics.into_bytes().into(),
            prometheus: prometheus.into_bytes().into(),
        }
    }
}

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Checks a configuration.
///
/// # Errors
/// The reason why it cannot be used.
pub fn check(text: &str) -> Result<(), String> {
    let parsed = config::parse(text).map(drop);
    parsed.map_err(|error| format!("{:#}", anyhow::Error::new(error)))
}

/// Works until the daemon is stopped.
fn main(args: &Args) -> anyhow::Result<u8> {
    let text = fs::read_to_string(&args.config)
        .with_context(|| format!("cannot read {} ({EXAMPLE})", args.config.display()))?;
    let Config {
        page_cache,
        metrics,
        meminfo,
        guard,
    } = config::parse(&text)
        .with_context(|| format!("invalid configuration {}", args.config.display()))?;
    // SAFETY: no handler is installed. A client that closes its connection must not end the daemon,
    // nor a child that has ended.
    let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigIgn) };
    let places = args.root.as_ref().map(HostPaths::below).unwrap_or_default();
    if args.leave_pages {
        if meminfo.is_some() {
            pages::leave(places, args.meminfo.clone())?;
        }
        return Ok(exit::SUCCESS);
    }
    let serves = page_cache.is_some() || metrics.is_some();
    match (args.guard, guard, serves || meminfo.is_some()) {
        (true, Some(settings), _) => {
            if let Err(error) = guard::main(settings, places, &args.meminfo, tell) {
                tell(&format!("{error:#}"));
            }
            return Ok(exit::DAEMON_ENDED);
        }
        (true, None, _) => {
            tell("[guard] is not configured: there is nothing to do");
            return Ok(exit::SUCCESS);
        }
        (false, Some(_), false) => {
            tell("only [guard] is configured, and gpuslice-guard.service runs the guard");
            return Ok(exit::SUCCESS);
        }
        _ => {}
    }
    let ended = match (meminfo, serves) {
        (Some(period), false) => pages::serve(places, args.meminfo.clone(), period, tell),
        (period, _) => work(places, &args.meminfo, page_cache, metrics, period),
    };
    // Not the status of a configuration that cannot be used: starting again may help.
    ended.or_else(|error| {
        tell(&format!("{error:#}"));
        Ok(exit::DAEMON_ENDED)
    })
}

/// Serves metrics and evicts model files, until it cannot go on. With a period, a child writes the
/// meminfo pages.
fn work(
    places: HostPaths,
    meminfo: &Path,
    page_cache: Option<Policy>,
    metrics: Option<Metrics>,
    period: Option<Duration>,
) -> anyhow::Result<u8> {
    let writer = period.map(|period| write_pages(&places, meminfo, period));
    let writer = writer.transpose()?;
    let mut watcher = page_cache.map(|policy| Watcher::start(policy, tell));
    let mut served = None;
    if let Some(metrics) = metrics {
        let server = Server::start(&metrics.listen)?;
        tell_addresses(&server, &metrics.listen);
        let exporter = Exporter {
            collector: Collector::new(places, metrics.compatible),
            last: None,
        };
        served = Some((server, exporter));
    }
    loop {
        let server = served.as_ref().map(|(server, _)| server);
        let mounts_changed = wait(watcher.as_ref(), server, writer.as_ref())?;
        if writer
            .as_ref()
            .is_some_and(|writer| writer.wait_for(Duration::ZERO))
        {
            bail!("the process that writes the meminfo pages has ended");
        }
        if let Some(watcher) = &mut watcher {
            watcher.turn(mounts_changed);
        }
        let totals = watcher.as_ref().map(Watcher::totals);
        if let Some((server, exporter)) = &mut served {
            server.turn(&mut |request| exporter.answer(request, totals));
        }
    }
}

/// Starts the process that writes the meminfo pages. It ends with this one.
fn write_pages(places: &HostPaths, meminfo: &Path, period: Duration) -> anyhow::Result<Process> {
    let parent = Pid::this();
    // SAFETY: this process has one thread.
    match unsafe { fork() }.context("cannot start the writer of the meminfo pages")? {
        ForkResult::Parent { child } => {
            Process::open(child).context("cannot watch the writer of the meminfo pages")
        }
        ForkResult::Child => {
            let dies = prctl::set_pdeathsig(Signal::SIGKILL);
            if dies.is_ok() && getppid() == parent {
                let ended = pages::serve(places.clone(), meminfo.to_owned(), period, tell);
                if let Err(error) = ended {
                    tell(&format!("{error:#}"));
                }
            }
            // SAFETY: ends this process, without the exit handlers of the one that it was forked from.
            unsafe { libc::_exit(i32::from(exit::FAILED)) }
        }
    }
}

fn tell_addresses(server: &Server, configured: &[Address]) {
    for address in server.addresses() {
        tell(&format!("metrics are at http://{address}/metrics"));
    }
    for address in configured {
        if let Address::Unix(path) = address {
            tell(&format!("metrics are at {}", path.display()));
        }
    }
}

/// How often it is checked that another process of this daemon still works.
const ALIVE: Duration = Duration::from_secs(1);

/// Waits for an event of any part, or until something is due. Returns whether mounts have changed.
fn wait(
    watcher: Option<&Watcher>,
    server: Option<&Server>,
    writer: Option<&Process>,
) -> anyhow::Result<bool> {
    let wanted = watcher.into_iter().flat_map(Watcher::wanted);
    let mut wanted: Vec<_> = wanted
        .chain(server.into_iter().flat_map(Server::wanted))
        .collect();
    let due = watcher.and_then(Watcher::due);
    let due = due.into_iter().chain(server.and_then(Server::due));
    let due = due.chain(writer.map(|_| ALIVE)).min();
    let timeout = match due {
        Some(due) => PollTimeout::try_from(due).unwrap_or(PollTimeout::MAX),
        None => PollTimeout::NONE,
    };
    if let Err(error) = poll(&mut wanted, timeout)
        && error != Errno::EINTR
    {
        return Err(error).context("cannot wait for events");
    }
    let has_changed = |events: PollFlags| events.contains(PollFlags::POLLPRI);
    Ok(wanted
        .iter()
        .any(|one| one.revents().is_some_and(has_changed)))
}

/// Checks whether this executable was started under the daemon's name.
#[must_use]
pub(crate) fn is_called() -> bool {
    let name = std::env::args_os().next();
    name.is_some_and(|name| Path::new(&name).file_name() == Some(NAME.as_ref()))
}

/// The daemon's entry point: reads its arguments and works.
#[must_use]
pub(crate) fn entry() -> u8 {
    match <Args as clap::Parser>::try_parse() {
        Ok(args) => main(&args).unwrap_or_else(|error| {
            tell(&format!("{error:#}"));
            exit::FAILED
        }),
        Err(error) if error.use_stderr() => {
            usage_error::tell(NAME, &error);
            exit::FAILED
        }
        Err(help) => {
            let _ = help.print();
            exit::SUCCESS
        }
    }
}
