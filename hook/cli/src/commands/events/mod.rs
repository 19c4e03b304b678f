//! `gpuslice events`: prints the events of slices: starts, ends, refusals.
//! Touches: the event files, standard output; for root also those of the other users.

pub(crate) mod read;
mod since;
mod tail;

use crate::base::{exit, local_time, streams, text};
use gpuslice_host::base::clock;
use gpuslice_host::events::Event;
use read::{Line, Source};
pub(crate) use since::{age, since};
use std::time::{Duration, SystemTime};

/// `gpuslice events`.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub struct Args {
    /// Only events of the slice or the container with this name, or of the container with this id
    #[arg(value_name = "NAME")]
    pub name: Option<String>,

    /// Only events since then: 30s, 10min, 1h30m, 2d ago, a local time (2026-11-23 09:00:05), or a
    /// time with its zone (2026-11-23T08:00:00Z)
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub since: Option<SystemTime>,

    /// Print the last 10 events, or those of --since, and then each new one, until ^C
    #[arg(long)]
    pub follow: bool,

    /// Print JSON: one line for each event
    #[arg(long)]
    pub json: bool,
}

const NOTES: &str = "\
An event is a line of a file, which stays after the slice has ended:
  /var/log/gpuslice/events.jsonl                root's runs, and all containers
  ~/.local/state/gpuslice/events.jsonl          runs of another user ($XDG_STATE_HOME)
At 8 MiB a file is renamed to events.jsonl.1; the last three of these are kept. root also sees the
events of the users in /etc/passwd. The journal has the same events, with fields
(journalctl GPUSLICE_EVENT=refusal).

start              a run or a container started in a slice
end                it ended; the peak is sampled once a second, and containers have none
refusal            allocations of a run were refused; many refusals share a line, with their
                   count so far
admission-refusal  a run was refused, because its slice does not fit; or a container, for any reason
resize             the size of a slice was changed
escape             a container started without its slice, or a run that its slice may not limit; or
                   the guard found a process that holds memory which its slice does not count
guard              the host ran short of memory: the guard reports it, sent a signal, or would have

Times are local; in JSON they are UTC. JSON: schema, time, event, slice, pid, user, container, pod
[namespace, name, uid, container], simulated, device, bytes (the largest shortfall of a refused
request, or the size that was asked for), limit, used, peak, count (refused allocations so far),
started, duration (seconds), devices [device, limit, peak, count, bytes], unhonoured (requests that
the slice cannot honour), warned (true where the guard only warns), message. Amounts are bytes. What
is unknown is left out.

Exit status: 0 success; 1 an event file could not be read; 125 usage error, or gpuslice itself
failed.

Examples:
  gpuslice events --since 1h                             what happened in the last hour
  gpuslice events llama --follow                         one slice, as it happens
  gpuslice events --json | jq 'select(.event == \"refusal\")'";

/// The events that --follow prints first.
const FIRST: usize = 10;

/// The interval at which --follow looks for new lines.
const INTERVAL: Duration = Duration::from_millis(250);

/// Prints the events.
///
/// # Errors
/// When they cannot be printed.
pub(crate) fn main(args: &Args) -> anyhow::Result<u8> {
    let sources = read::sources();
    let mut tails: Vec<tail::Tail> = sources.iter().map(tail::Tail::new).collect();
    // What comes while the older files are read is printed after them.
    let mut current: Vec<Line> = Vec::new();
    for tail in &mut tails {
        current.extend(tail.new_lines());
    }
    let past = read::past(&sources, &tails);
    let mut lines = past.lines;
    lines.extend(current);
    let mut lines = chosen(args, lines);
    if args.follow && args.since.is_none() {
        lines.drain(..lines.len().saturating_sub(FIRST));
    }
    print(args, &lines)?;
    let faults = tails.iter_mut().filter_map(|tail| tail.fault.take());
    let faults: Vec<String> = faults.chain(past.faults).collect();
    faults.iter().for_each(|fault| streams::tell(fault));
    if lines.is_empty() && !args.follow && faults.is_empty() {
        streams::tell(&none(args, &sources));
    }
    if args.follow {
        loop {
            std::thread::sleep(INTERVAL);
            let new = tails.iter_mut().flat_map(tail::Tail::new_lines);
            print(args, &chosen(args, new.collect()))?;
        }
    }
    Ok(if faults.is_empty() {
        exit::SUCCESS
    } else {
        exit::UNREAD
    })
}

/// Says that there is nothing to print, and where it would be.
fn none(args: &Args, sources: &[Source]) -> String {
    let of = match &args.name {
        Some(name) => format!(" of \"{}\"", text::printable(name)),
        None => String::new(),
    };
    match sources.first() {
        Some(own) => format!("no events{of} in {}", own.folder.display()),
        None => "there are no events: neither XDG_STATE_HOME nor HOME is set".to_owned(),
    }
}

/// Selects the events that the user asked for, in the order of their times.
fn chosen(args: &Args, mut lines: Vec<Line>) -> Vec<Line> {
    // The times of the file compare as text.
    let first = args.since.map(clock::rfc3339_ms);
    lines.retain(|line| {
        let is_named = args
            .name
            .as_ref()
            .is_none_or(|name| is_of(&line.event, name));
        is_named && first.as_ref().is_none_or(|first| line.event.time >= *first)
    });
    lines.sort_by(|one, other| one.event.time.cmp(&other.event.time));
    lines
}

/// Checks whether an event is one of this slice or container.
pub(crate) fn is_of(event: &Event, name: &str) -> bool {
    let is_id = |id: &String| !name.is_empty() && id.starts_with(name);
    event.slice == name || event.container.as_ref().is_some_and(is_id)
}

fn print(args: &Args, lines: &[Line]) -> anyhow::Result<()> {
    let mut said = String::new();
    for line in lines {
        match args.json {
            true => said.push_str(&line.event.line()),
            false => said.push_str(&sentence(&line.event)),
        }
    }
    match said.is_empty() {
        true => Ok(()),
        false => streams::print(said.as_bytes()),
    }
}

/// The event as a line for people: `TIME  SLICE (pid 7, vllm) was refused ...`.
fn sentence(event: &Event) -> String {
    let time = clock::parse(&event.time).map(local_time::shown);
    let time = time.unwrap_or_else(|| text::printable(&event.time));
    let pid = event.pid.map(|pid| format!("pid {pid}"));
    let id = event.container.as_ref().filter(|id| **id != event.slice);
    let id = id.map(|id| format!("container {}", id.chars().take(12).collect::<String>()));
    let simulated = event.simulated.then(|| "simulated".to_owned());
    let about = [pid, event.user.clone(), id, simulated];
    let about: Vec<String> = about.into_iter().flatten().collect();
    let about = match about.is_empty() {
        true => String::new(),
        false => format!(" ({})", about.join(", ")),
    };
    let said = format!("{}{about} {}", event.slice, event.message);
    format!("{time}  {}\n", text::printable(&said))
}
