//! Generates man pages and completion scripts from the definition of the command line.
//! Touches: standard output.

mod oci;

use crate::base::{exit, streams};
use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
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
    /// The page of this command: run, cdi generate, ...
    #[arg(value_name = "COMMAND")]
    pub verbs: Vec<String>,
}

/// `gpuslice help`.
#[derive(clap::Args, Debug)]
pub struct HelpArgs {
    /// The command: run, cdi generate, ...
    #[arg(value_name = "COMMAND")]
    pub verbs: Vec<String>,
}

/// Prints a completion script of the command line `whole`.
///
/// # Errors
/// When it cannot be written.
pub fn completions(args: &CompletionsArgs, whole: &Command) -> anyhow::Result<u8> {
    print(&completion_script(&args.shell, whole)?)
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
        _ => words.collect::<Vec<_>>().join("-"),
    };
    let pages = man_pages(whole)?;
    // A command's page takes precedence over a separate program's page.
    let sections = [format!("{name}.1"), format!("{name}.8")];
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

/// Returns the completion script of a command line for a shell.
///
/// # Errors
/// When the shell is not supported.
pub fn completion_script(shell: &str, whole: &Command) -> anyhow::Result<Vec<u8>> {
    let shell = match shell {
        "bash" => Shell::Bash,
        "zsh" => Shell::Zsh,
        "fish" => Shell::Fish,
        _ => anyhow::bail!("no completions for {shell}"),
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut visible(whole), "gpuslice", &mut script);
    Ok(script)
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

/// Returns the file name and text of every man page: those of the command line `whole`, of the
/// daemon and of the hook.
///
/// # Errors
/// When a page cannot be rendered.
pub fn man_pages(whole: &Command) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut whole = visible(whole);
    whole.build();
    let mut pages = vec![("gpuslice.1".to_owned(), page(whole.clone(), "gpuslice")?)];
    add_pages(&whole, "gpuslice", &mut pages)?;
    let daemon = crate::commands::cache::watch::Args::command();
    pages.push((format!("{DAEMON}.1"), page(daemon, DAEMON)?));
    pages.extend(oci::pages());
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
    let version = format!("gpuslice {}", env!("CARGO_PKG_VERSION"));
    let daemon = (name == DAEMON).then_some(name);
    let verb = name.strip_prefix("gpuslice-").or(daemon);
    let more = command
        .get_after_help()
        .or(command.get_after_long_help())
        .map(ToString::to_string);
    let more = more.unwrap_or_default();
    let (notes, examples) = more.split_once("Examples:\n").unwrap_or((&more, ""));
    let has_verbs = command.has_subcommands();
    let man = Man::new(command)
        .title(name)
        .source(version)
        .date("")
        .manual("gpuslice");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    let mut roff = Roff::new();
    literal(&mut roff, "NOTES", notes);
    roff.to_writer(&mut text)?;
    man.render_options_section(&mut text)?;
    if has_verbs {
        man.render_subcommands_section(&mut text)?;
    }
    let mut roff = Roff::new();
    exit_status(&mut roff, verb);
    if verb.is_none_or(|verb| ["run", "check"].contains(&verb)) {
        list(&mut roff, "ENVIRONMENT", &ENVIRONMENT);
        list(&mut roff, "FILES", &FILES);
    }
    if verb == Some("headroom") {
        list(&mut roff, "FILES", &STATE);
    }
    literal(&mut roff, "EXAMPLES", examples);
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
        "warn, info or debug: what the preloaded library says. Unset: nothing.",
    ),
    (
        "GPUSLICE_LOG_FILE",
        "The file for log messages, instead of standard error.",
    ),
    (
        "GPUSLICE_SIM_STATE",
        "With --sim: the folder of the simulated machine's state. Runs that name the same folder share the machine; unset, every run has its own.",
    ),
    (
        "GPUSLICE_SLICE",
        "The text of the slice file, for a program that can no longer open it: one that goes on as another user, or without this /tmp. run sets it for the command.",
    ),
    (
        "LD_PRELOAD",
        "run puts libgpuslice.so first and keeps what was there; libasan keeps the first place.",
    ),
    (
        "XDG_RUNTIME_DIR, TMPDIR",
        "Where run keeps its slice file and the ledger, until the command and all that it started have ended: the first of these and /dev/shm that is on tmpfs. status finds it by a link in $XDG_RUNTIME_DIR/gpuslice, or in /run/gpuslice (root) or /tmp/gpuslice-UID.",
    ),
];

const FILES: [(&str, &str); 2] = [
    (
        "/.gpuslice/slice.json",
        "The slice of a container. It wins over everything here: run refuses to add another.",
    ),
    (
        "/usr/lib/gpuslice/",
        "libgpuslice.so, where it is not beside gpuslice.",
    ),
];

const STATE: [(&str, &str); 2] = [
    (
        "$XDG_STATE_HOME/gpuslice/headroom.json",
        "What has been learned. Without XDG_STATE_HOME in ~/.local/state/gpuslice.",
    ),
    (
        "/var/lib/gpuslice/headroom.json",
        "The same, of runs by root without XDG_STATE_HOME.",
    ),
];

fn exit_status(roff: &mut Roff, verb: Option<&str>) {
    roff.control("SH", ["EXIT STATUS"]);
    for (status, verbs, meaning) in exit::MEANINGS {
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
