//! Generates man pages and completion scripts from the definition of the command line.
//! Touches: standard output.

pub(crate) mod complete;
pub mod files;
mod oci;
mod page;

use crate::base::{exit, streams};
use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_mangen::roff::{Roff, bold, roman};
use std::io::{self, IsTerminal};

/// `gpuslice completions`.
#[derive(clap::Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "bash|zsh|fish", value_parser = ["bash", "zsh", "fish"], hide_possible_values = true)]
    pub shell: String,
}

/// `gpuslice man`.
#[derive(clap::Args, Debug)]
pub struct ManArgs {
    /// The command whose page to print: run, cdi generate, ...
    #[arg(value_name = "COMMAND")]
    pub verbs: Vec<String>,
}

/// `gpuslice help`.
#[derive(clap::Args, Debug)]
pub struct HelpArgs {
    /// The command whose help to print: run, cdi generate, ...
    #[arg(value_name = "COMMAND")]
    pub verbs: Vec<String>,
}

/// Prints a completion script.
///
/// # Errors
/// When it cannot be written.
pub fn completions(args: &CompletionsArgs) -> anyhow::Result<u8> {
    print(completion_script(&args.shell)?.as_bytes())
}

/// Prints a man page of the command line `whole`, or of another program of this package.
///
/// # Errors
/// When the command does not exist, or the page cannot be written.
pub fn man(args: &ManArgs, whole: &Command) -> anyhow::Result<u8> {
    let words = std::iter::once("gpuslice").chain(args.verbs.iter().map(String::as_str));
    // `gpuslice man gpusliced` prints the page of a separate program.
    let name = match args.verbs.as_slice() {
        [program] if program == DAEMON => DAEMON.to_owned(),
        // A page's own name, such as gpuslice-slices.
        [page] if page == "gpuslice" || page.starts_with("gpuslice-") => page.clone(),
        _ => words.collect::<Vec<_>>().join("-"),
    };
    let pages = man_pages(whole)?;
    // The page of a command comes first, then that of a separate program or of a file.
    let sections = ["1", "8", "5"].map(|section| format!("{name}.{section}"));
    let mut found = sections.iter().filter_map(|section| {
        let page = pages.iter().find(|(file, _)| file == section);
        page.map(|(_, text)| text)
    });
    let text = found
        .next()
        .with_context(|| format!("there is no page {name}"))?;
    print(text)
}

/// Prints the help of a command of the command line `whole`.
///
/// # Errors
/// When the command does not exist, or the help cannot be written.
pub fn help(args: &HelpArgs, whole: &Command) -> anyhow::Result<u8> {
    let mut command = visible(whole);
    command.build();
    for verb in &args.verbs {
        let found = command.find_subcommand(verb).cloned();
        command = found.with_context(|| {
            let verb = crate::base::text::printable(verb);
            format!("there is no command \"{verb}\" (gpuslice help lists them)")
        })?;
    }
    // The text is that of --help, wrapped at the same width.
    let words = std::iter::once("gpuslice").chain(args.verbs.iter().map(String::as_str));
    let shown = whole.clone().try_get_matches_from(words.chain(["--help"]));
    let shown = shown.err().context("there is no help")?;
    let text = shown.render();
    match std::io::stdout().is_terminal() {
        true => print(text.ansi().to_string().as_bytes()),
        false => print(text.to_string().as_bytes()),
    }
}

fn print(text: &[u8]) -> anyhow::Result<u8> {
    streams::print(text)?;
    Ok(exit::SUCCESS)
}

/// Returns the completion script for a shell, for gpuslice and gpusliced.
///
/// # Errors
/// When the shell is not supported.
pub fn completion_script(shell: &str) -> anyhow::Result<&'static str> {
    match shell {
        "bash" => Ok(include_str!("complete/gpuslice.bash")),
        "zsh" => Ok(include_str!("complete/_gpuslice")),
        "fish" => Ok(include_str!("complete/gpuslice.fish")),
        _ => anyhow::bail!("no completions for {shell}"),
    }
}

/// Returns the command line without the commands that gpuslice starts as its own children.
fn visible(whole: &Command) -> Command {
    let verbs: Vec<Command> = whole
        .get_subcommands()
        .filter(|verb| !verb.is_hide_set())
        .cloned()
        .collect();
    let mut shown = Command::new("gpuslice")
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .subcommand_required(true)
        .subcommands(verbs);
    if let Some(about) = whole.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(examples) = whole.get_after_help() {
        shown = shown.after_help(examples.clone());
    }
    shown
}

/// Returns every man page: those of the command line `whole`, of the daemon, of the hook
/// and of the configuration files. Each
/// is a file name and a text.
///
/// # Errors
/// When a page cannot be rendered.
pub fn man_pages(whole: &Command) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut whole = visible(whole);
    whole.build();
    let mut pages = vec![("gpuslice.1".to_owned(), page(whole.clone(), "gpuslice")?)];
    add_pages(&whole, "gpuslice", &mut pages)?;
    let daemon = crate::commands::daemon::Args::command();
    pages.push((format!("{DAEMON}.1"), page(daemon, DAEMON)?));
    pages.extend(oci::pages());
    pages.extend(files::pages());
    Ok(pages)
}

/// The name under which this executable acts as the daemon.
const DAEMON: &str = "gpusliced";

/// Adds the pages of a command's subcommands, recursively.
fn add_pages(command: &Command, name: &str, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    for verb in command.get_subcommands() {
        let name = format!("{name}-{}", verb.get_name());
        let text = page(verb.clone().display_name(name.clone()), &name)?;
        pages.push((format!("{name}.1"), text));
        add_pages(verb, &name, pages)?;
    }
    Ok(())
}

fn page(command: Command, name: &str) -> io::Result<Vec<u8>> {
    let mut roff = page::begin(&command, name);
    let daemon = (name == DAEMON).then_some(name);
    let verb = name.strip_prefix("gpuslice-").or(daemon);
    exit_status(&mut roff, verb);
    if verb.is_none_or(|verb| ["run", "check"].contains(&verb)) {
        list(&mut roff, "ENVIRONMENT", &ENVIRONMENT);
        list(&mut roff, "FILES", &FILES);
    }
    if verb == Some("headroom") {
        list(&mut roff, "FILES", &STATE);
    }
    if verb.is_some_and(|verb| ["events", "history"].contains(&verb)) {
        list(&mut roff, "FILES", &EVENTS);
    }
    page::end(&mut roff, &command, name);
    let mut text = Vec::new();
    roff.to_writer(&mut text)?;
    Ok(text)
}

/// The environment variables, which are too many for `--help`.
const ENVIRONMENT: [(&str, &str); 7] = [
    (
        "GPUSLICE_CONFIG",
        "A slice file, as with --config. run sets it for the command. Where it is set by hand for a preloaded program, the ledger that the file names must exist: without it, GPU memory is refused.",
    ),
    (
        "GPUSLICE_LOG",
        "The log level of the preloaded library: warn, info or debug. Unset: no log.",
    ),
    (
        "GPUSLICE_LOG_FILE",
        "The file to which log messages are appended. Unset: standard error.",
    ),
    (
        "GPUSLICE_SIM_STATE",
        "With --sim: the folder of the simulated machine's state. Runs with the same folder share the machine. Unset: every run has a machine of its own.",
    ),
    (
        "GPUSLICE_SLICE",
        "The text of the slice file, for programs that cannot open the file: after a change of user, or with another /tmp. run sets it for the command.",
    ),
    (
        "LD_PRELOAD",
        "run puts libgpuslice.so in front of the libraries that are named there already, but behind libasan.",
    ),
    (
        "XDG_RUNTIME_DIR, TMPDIR",
        "Where run keeps its slice file and the ledger, until the command and all that it started have ended: the first of these and /dev/shm that is on tmpfs; for root, the first that every user can enter. status finds it by a link in $XDG_RUNTIME_DIR/gpuslice, or in /run/gpuslice (root) or /tmp/gpuslice-UID.",
    ),
];

const FILES: [(&str, &str); 2] = [
    (
        "/.gpuslice/slice.json, /dev/gpuslice/slice.json",
        "The slice of a container; the second one if its root is read-only. It overrides all options and variables: run and env are refused there.",
    ),
    (
        "libgpuslice.so",
        "The library is searched beside gpuslice, then in PREFIX/lib/gpuslice, then in /usr/lib/gpuslice.",
    ),
];

const STATE: [(&str, &str); 2] = [
    (
        "$XDG_STATE_HOME/gpuslice/headroom.json",
        "The learned headroom. Without XDG_STATE_HOME: ~/.local/state/gpuslice/headroom.json.",
    ),
    (
        "/var/lib/gpuslice/headroom.json",
        "The learned headroom of root's runs, without XDG_STATE_HOME.",
    ),
];

const EVENTS: [(&str, &str); 4] = [
    (
        "/var/log/gpuslice/events.jsonl",
        "The events of containers, and of runs by root without XDG_STATE_HOME. Only root can read it.",
    ),
    (
        "$XDG_STATE_HOME/gpuslice/events.jsonl",
        "The events of a user's runs. Without XDG_STATE_HOME in ~/.local/state/gpuslice.",
    ),
    (
        "events.jsonl.1 to events.jsonl.3",
        "Older events. A file is renamed when it has 8 MiB.",
    ),
    (
        "history/",
        "Beside the event file: the use of memory over time of the last 200 runs.",
    ),
];

fn exit_status(roff: &mut Roff, verb: Option<&str>) {
    roff.control("SH", ["EXIT STATUS"]);
    for &(status, verbs, meaning) in exit::MEANINGS {
        let meaning = match verb {
            Some(verb) if !verbs.is_empty() && !verbs.contains(&verb) => continue,
            None if !verbs.is_empty() => format!("{}: {meaning}", verbs.join(", ")),
            _ => meaning.to_owned(),
        };
        entry(roff, &status.to_string(), &meaning);
    }
    if verb.is_none_or(|verb| verb == "run") {
        roff.control("PP", []);
        roff.text([roman(
            "Any other status of run, or death by a signal, is the command's.",
        )]);
    }
}

fn list(roff: &mut Roff, title: &str, entries: &[(&str, &str)]) {
    roff.control("SH", [title]);
    for (name, meaning) in entries {
        entry(roff, name, meaning);
    }
}

fn entry(roff: &mut Roff, name: &str, meaning: &str) {
    roff.control("TP", []);
    roff.text([bold(name)]);
    roff.text([roman(meaning)]);
}

/// Adds a section whose lines stay unchanged, unless the text is empty.
fn literal(roff: &mut Roff, title: &str, text: &str) {
    if text.trim().is_empty() {
        return;
    }
    roff.control("SH", [title]);
    roff.control("nf", []);
    for line in text.trim_matches('\n').lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
}
