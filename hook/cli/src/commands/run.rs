//! `gpuslice run`: prepares a slice, then replaces its own process with the command (`exec`).
//! Touches: everything that `launch` and `runs` touch, and this process's own image.
//! Law: a failure to record the run does not keep it from starting.
//!
//! gpuslice does not wait for the command but executes it in its place. Process id, terminal,
//! signals, signal dispositions and exit status are therefore the command's own. No signal or
//! status has to be forwarded.

use crate::base::exit::{self, Status};
use crate::base::sigchld::ChildSignal;
use crate::base::streams::{self, tell};
use crate::driver::preload;
use crate::launch::dry_run::Preview;
use crate::launch::prepare::{self, Prepared};
use crate::launch::{clients, program};
use crate::runs::leaf::{self, Leaf};
use crate::runs::private_dir::PrivateDir;
use crate::runs::promise::PromiseError;
use crate::runs::recording::recorder;
use crate::runs::recording::refusal_command::RefusalCommand;
use crate::runs::recording::{self, RunStart};
use crate::runs::registry::{self, Registration};
use crate::runs::tenancy::NoRoom;
use crate::slice::budget::BudgetError;
use crate::slice::current as current_slice;
use crate::slice::current::InSliceError;
use crate::slice::options::{STARTING, SliceOptions};
use crate::slice::slices_file::keys;
use crate::slice::slices_file::options::SliceFromFile;
use crate::slice::slices_file::places::Found;
use anyhow::{Context, bail};
use clap::builder::{OsStringValueParser, TypedValueParser};
use gpuslice_config::words::units::Bytes;
use nix::errno::Errno;
use nix::unistd::{Pid, execvpe};
use std::ffi::{CString, NulError, OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// `gpuslice run`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The slice, and the machine it is on.
    #[command(flatten)]
    pub slice: SliceOptions,

    #[command(flatten)]
    pub from_file: SliceFromFile,

    /// Refuse to start a program that the slice would not hold: it cannot load the library (static,
    /// 32-bit, set-user-ID, unreadable, not of glibc), is a sandbox or a client of a daemon, sees a
    /// GPU without a limit, or has no place for a ledger. Without --strict, a warning says so
    #[arg(long, help_heading = STARTING)]
    pub strict: bool,

    /// Run this shell command when allocations of the slice are refused: at the 1st, the 10th, the
    /// 100th ... of them. GPUSLICE_EVENT_MESSAGE and other variables describe the refusal
    #[arg(
        long,
        value_name = "COMMAND",
        requires = "slice",
        value_parser = OsStringValueParser::new().try_map(refusal_script),
        help_heading = STARTING
    )]
    pub on_refusal: Option<OsString>,

    /// Print what the start would write and set, with its warnings or its refusal, and do not
    /// start. The driver is queried. The exit status is that of the start, unless the start itself
    /// fails: a cgroup that cannot be made for --fence driver
    #[arg(long, help_heading = STARTING)]
    pub dry_run: bool,

    /// With --dry-run, print JSON
    #[arg(long, requires = "dry_run", help_heading = STARTING)]
    pub json: bool,

    /// The command and its arguments
    #[arg(
        value_name = "COMMAND",
        required_unless_present = "named",
        trailing_var_arg = true
    )]
    pub command: Vec<OsString>,
}

const EXAMPLES: &str = r#"Without a limit, nothing changes on cards with memory of their own. gpuslice becomes the command:
signals, job control and the exit status are those of the command. If the command does not start,
the exit status is 125 (gpuslice failed), 126 (the command cannot be executed) or 127 (there is no
such command).

Every run is a slice of its own, with a limit of its own, even if another has the same --name. Runs
share one limit when they share a slice file (--config) that names a ledger, on tmpfs:
  {"version":1,"name":"team","memory":17179869184,"ledger":"/dev/shm/team.ledger"}
A slice file that names none describes a slice of that run alone, as the options do.

Inside a run, run without a limit stays in its slice, and run with a limit is refused: a slice
cannot be divided. run --bare leaves it, so `gpuslice run --bare -- gpuslice run --memory 8GiB --
CMD` starts CMD in one of its own. In a container with a slice, run is always refused.

Examples:
  gpuslice run --memory 8GiB -- python3 serve.py
  gpuslice run --device 0=8GiB --device 1=16GiB -- python3 train.py
  gpuslice run --slice chat                               the slice and the command of a file
  gpuslice run --dry-run --memory 8GiB -- nvitop -1       what would be written and started
  gpuslice run --sim rtx3090 --memory 8GiB -- nvitop -1   on a simulated 24 GiB card
  gpuslice run --sim gb10 --bare -- nvitop -1             what it shows without gpuslice"#;

/// Prepares the slice and executes the command. Returns only on failure.
///
/// # Errors
/// When the slice cannot be prepared, or the command cannot be started.
pub(crate) fn main(mut args: Args, child_signal: &ChildSignal) -> anyhow::Result<u8> {
    if let Some(mounted) = current_slice::mounted() {
        return Err(InSliceError::Mounted(mounted).into());
    }
    let found = args.from_file.find()?;
    if let Some(found) = &found {
        args.take(found)?;
    }
    if args.dry_run {
        return dry_run(&args, found.as_ref());
    }
    if args.slice.bare {
        leaf::leave();
    }
    let prepared = prepare::prepare(&args.slice);
    let prepared = prepared.inspect_err(|error| record_refusal(&args.slice, error));
    let mut prepared = of_file(found.as_ref(), prepared)?;
    warn(&prepared.warnings);
    let is_sliced = prepared.slice.is_some();
    let gaps = look(
        &args,
        is_sliced,
        prepared.library.as_deref(),
        &prepared.gaps,
    )?;
    // `exec` runs no destructors, so the link is removed only if the command cannot be started.
    let registered = register(&prepared);
    tell_watcher(&mut prepared, registered.as_ref());
    prepared.enter()?;
    let name = args.command.first().cloned().unwrap_or_default();
    let command = RefusalCommand::given(args.on_refusal.as_deref(), watched(&prepared))?;
    if program::check(&name).is_ok() {
        record_start(&prepared, command.as_ref(), &gaps);
    }
    child_signal.restore();
    let failure = become_command(args.command, &prepared)?;
    if let Some(private) = &prepared.private {
        recorder::end_lost(private.path(), "the command could not be executed");
    }
    Err(not_started(&name, failure).into())
}

/// Checks that a script for `sh -c` is not empty and can be parsed: at a refusal nobody reads the
/// error of the shell.
fn refusal_script(script: OsString) -> Result<OsString, String> {
    if script.is_empty() {
        return Err("the command is empty".to_owned());
    }
    let parsed = std::process::Command::new("/bin/sh")
        .args(["-n", "-c"])
        .arg(&script)
        .stdin(std::process::Stdio::null())
        .output();
    match parsed {
        Ok(parsed) if !parsed.status.success() => {
            let why = String::from_utf8_lossy(&parsed.stderr);
            Err(format!("the shell cannot read it: {}", why.trim()))
        }
        _ => Ok(script),
    }
}

impl Args {
    /// Takes the slice of a slices file, and its command if none is given.
    fn take(&mut self, found: &Found) -> anyhow::Result<()> {
        self.slice = found.options(&self.slice);
        if self.command.is_empty() {
            self.command.clone_from(&found.slice.command);
        }
        if self.command.is_empty() {
            bail!(
                "{} has no command: give one after --, or the key command",
                found.shown()
            );
        }
        Ok(())
    }
}

/// Names the slices file in the error of a slice that it describes.
pub(crate) fn of_file<T>(found: Option<&Found>, done: anyhow::Result<T>) -> anyhow::Result<T> {
    match found {
        Some(found) => {
            let reworded = done.map_err(|error| match error.downcast_ref::<BudgetError>() {
                Some(fault) => anyhow::Error::msg(keys::named_by_keys(&fault.to_string())),
                None => error,
            });
            reworded.with_context(|| found.shown())
        }
        None => done,
    }
}

/// Returns the private folder whose watcher records the run: it follows the ledger in its own
/// folder.
fn watched(prepared: &Prepared) -> Option<&Path> {
    let file = prepared.file.as_deref()?;
    let private = prepared.private.as_ref().map(PrivateDir::path);
    private.filter(|private| file.starts_with(private))
}

/// Records the start of the run, and the reasons why its slice may not limit it. The run's watcher
/// records its refusals and its end.
fn record_start(prepared: &Prepared, command: Option<&RefusalCommand>, gaps: &[String]) {
    let Some(slice) = &prepared.slice else {
        return;
    };
    let run = RunStart {
        enforce: slice.enforce,
        ..RunStart::now(
            slice.name.as_str(),
            prepared.simulated,
            prepared.devices.clone(),
        )
    };
    recording::start(watched(prepared), &run, command, gaps);
}

/// Records that the slice was refused because it does not fit.
fn record_refusal(options: &SliceOptions, error: &anyhow::Error) {
    let is_full =
        error.is::<Box<NoRoom>>() || matches!(error.downcast_ref(), Some(PromiseError::Full(_)));
    if is_full {
        let own = format!("run-{}", std::process::id());
        let name = options.name.as_deref().unwrap_or(&own);
        let asked = options.memory.map(Bytes::get);
        recording::refused(name, options.sim.is_some(), asked, &error.to_string());
    }
}

/// Prints the plan of a run, and fails where the run would.
fn dry_run(args: &Args, found: Option<&Found>) -> anyhow::Result<u8> {
    let preview = of_file(found, Preview::make(&args.slice, &args.command))?;
    if let (Some(found), false) = (found, args.json) {
        let (file, line) = (found.file.display(), found.slice.line);
        streams::print(
            format!("slice\n  {} ({file}, line {line})\n\n", found.slice.name()).as_bytes(),
        )?;
    }
    let plan = &preview.plan;
    warn(plan.log_warning.iter().chain(&plan.warnings));
    look(
        args,
        plan.slice.is_some(),
        plan.library.as_deref(),
        &plan.gaps,
    )?;
    let said = match args.json {
        true => preview.to_json()?,
        false => preview.to_string(),
    };
    streams::print(said.as_bytes())?;
    let name = args.command.first().cloned().unwrap_or_default();
    match program::check(&name) {
        Ok(()) => Ok(exit::SUCCESS),
        Err(failure) => Err(not_started(&name, failure).into()),
    }
}

fn warn<'a>(warnings: impl IntoIterator<Item = &'a String>) {
    for warning in warnings {
        tell(&format!("warning: {warning}"));
    }
}

/// Builds the error for a command that cannot be executed.
fn not_started(name: &OsStr, failure: Errno) -> Status {
    Status {
        status: match failure {
            Errno::ENOENT => exit::NOT_FOUND,
            _ => exit::CANNOT_EXECUTE,
        },
        message: format!("cannot run {}: {}", name.display(), failure.desc()),
    }
}

/// Warns, or with --strict refuses, if the slice will not limit the command. `gaps` are the reasons
/// that are known already. Returns all reasons.
fn look(
    args: &Args,
    is_sliced: bool,
    library: Option<&Path>,
    gaps: &[String],
) -> anyhow::Result<Vec<String>> {
    let command = args.command.first().filter(|_| is_sliced);
    let unreached = command.and_then(|command| program::look(command).err());
    let unreached = unreached.map(|unreached| unreached.to_string());
    let library = library.filter(|_| command.is_some());
    let unreadable = library.and_then(|library| unreadable_later(library, &args.command));
    let outside = command.and_then(|_| clients::outside(&args.command));
    let found = unreadable.into_iter().chain(unreached).chain(outside);
    let gaps: Vec<String> = gaps.iter().cloned().chain(found).collect();
    for gap in &gaps {
        if args.strict {
            bail!("{gap}; --strict refuses to start it");
        }
        tell(&format!("warning: {gap} (--strict refuses to start it)"));
    }
    Ok(gaps)
}

/// Returns a message if the command may switch to a user who cannot read the library. ld.so would
/// then start that user's programs without it. Only root's commands can switch users.
fn unreadable_later(library: &Path, command: &[OsString]) -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return None;
    }
    let changer = program::user_changer(command)?;
    let closed = preload::closed_to_others(library)?;
    Some(format!(
        "{changer} may change the user, and other users cannot read {}, which the mode of {} forbids: \
         install it where every user can read it",
        library.display(),
        closed.display()
    ))
}

/// Registers the slice for `gpuslice status`, unless it is listed already. That is so for a run
/// inside a run, and for a second run of one slice file.
fn register(prepared: &Prepared) -> Option<Registration> {
    let (slice, file) = (prepared.slice.as_ref()?, prepared.file.as_ref()?);
    let own = prepared
        .private
        .as_ref()
        .is_some_and(|private| file.starts_with(private.path()));
    // `running` also removes the links of runs that have ended.
    let is_listed = registry::running().iter().any(|entry| entry.file == *file);
    if is_listed && !own {
        return None;
    }
    let watcher = prepared.private.as_ref().and_then(PrivateDir::watcher);
    let registered = registry::register(slice.name.as_str(), Pid::this(), file, own, watcher);
    registered
        .inspect_err(|error| {
            tell(&format!(
                "warning: `gpuslice status` will not show this run: {error}"
            ));
        })
        .ok()
}

/// Names to the watcher what it removes after the run. If it has ended, the next run of this user
/// removes that.
fn tell_watcher(prepared: &mut Prepared, registered: Option<&Registration>) {
    let cgroup = prepared.leaf.as_ref().map(Leaf::folder);
    if let Some(private) = &mut prepared.private {
        let _ = private.tell_watcher(registered.map(Registration::link), cgroup);
    }
}

/// Executes the command. Returns only if `exec` fails, with its error number.
fn become_command(command: Vec<OsString>, prepared: &Prepared) -> Result<Errno, NulError> {
    let arguments = command
        .into_iter()
        .map(|argument| CString::new(argument.into_vec()))
        .collect::<Result<Vec<CString>, NulError>>()?;
    let environment = prepared
        .environment()
        .into_iter()
        .map(|(name, value)| {
            let mut variable = name.into_vec();
            variable.push(b'=');
            variable.extend(value.into_vec());
            CString::new(variable)
        })
        .collect::<Result<Vec<CString>, NulError>>()?;
    let Some(file) = arguments.first() else {
        return Ok(Errno::ENOENT);
    };
    match execvpe(file, &arguments, &environment) {
        Ok(never) => match never {},
        Err(failure) => Ok(failure),
    }
}
