//! Formats the definition of a command as a man page.
//! Touches: its arguments.

use super::{entry, literal};
use clap::{Arg, ArgAction, Command};
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

/// The heading of options without one.
const OPTIONS: &str = "Options";

/// Begins a page: the sections up to the options and commands.
pub(super) fn begin(command: &Command, name: &str) -> Roff {
    let mut roff = Roff::new();
    let version = concat!("gpuslice ", env!("CARGO_PKG_VERSION"));
    roff.control("TH", [name, "1", "", version, "gpuslice"]);
    let about = command.get_about().map(ToString::to_string);
    let about = about.unwrap_or_default();
    roff.control("SH", ["NAME"]);
    roff.text([roman(format!("{name} - {}", about.trim_end_matches('.')))]);
    roff.control("SH", ["SYNOPSIS"]);
    roff.text(synopsis(command));
    roff.control("SH", ["DESCRIPTION"]);
    roff.text([roman(format!("{}.", about.trim_end_matches('.')))]);
    let notes = notes(command);
    for paragraph in notes.text() {
        roff.control("PP", []);
        write(&mut roff, paragraph);
    }
    options(&mut roff, command);
    commands(&mut roff, command, name);
    roff
}

/// Ends a page: the JSON, the examples and the other pages.
pub(super) fn end(roff: &mut Roff, command: &Command, name: &str) {
    let notes = notes(command);
    if let Some(json) = notes.json() {
        roff.control("SH", ["JSON"]);
        write(roff, json);
    }
    literal(roff, "EXAMPLES", notes.examples());
    let see: Vec<String> = match name {
        "gpuslice" => subcommands(command)
            .map(|verb| format!("gpuslice-{}(1)", verb.get_name()))
            .chain(["gpuslice-hook(8)".to_owned()])
            .collect(),
        _ => vec!["gpuslice(1)".to_owned()],
    };
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman(see.join(", "))]);
}

/// The text after a command's options, in paragraphs.
struct Notes(String);

fn notes(command: &Command) -> Notes {
    let after = command.get_after_help().or(command.get_after_long_help());
    Notes(after.map(ToString::to_string).unwrap_or_default())
}

impl Notes {
    fn before_examples(&self) -> &str {
        self.0
            .split_once("Examples:\n")
            .map_or(self.0.as_str(), |(before, _)| before)
    }

    fn examples(&self) -> &str {
        self.0
            .split_once("Examples:\n")
            .map_or("", |(_, examples)| examples)
    }

    fn paragraphs(&self) -> impl Iterator<Item = &str> {
        let paragraphs = self.before_examples().split("\n\n");
        paragraphs
            .map(|paragraph| paragraph.trim_matches('\n'))
            .filter(|paragraph| !paragraph.trim().is_empty())
    }

    /// The paragraphs that are no section of their own. The exit statuses are listed for all
    /// commands.
    fn text(&self) -> impl Iterator<Item = &str> {
        let own = ["Exit status:", JSON];
        self.paragraphs()
            .filter(move |paragraph| !own.iter().any(|start| paragraph.starts_with(start)))
    }

    fn json(&self) -> Option<&str> {
        let paragraph = self
            .paragraphs()
            .find(|paragraph| paragraph.starts_with(JSON))?;
        paragraph.strip_prefix(JSON).map(str::trim_start)
    }
}

/// How the paragraph about JSON begins.
const JSON: &str = "JSON:";

/// Writes a paragraph: text is filled, and tables and indented lines keep their form.
fn write(roff: &mut Roff, paragraph: &str) {
    let mut filled: Vec<&str> = Vec::new();
    let mut lines = paragraph.lines().peekable();
    let is_kept = |line: &str| line.starts_with(' ') || line.contains("   ");
    while let Some(line) = lines.next() {
        if !is_kept(line) {
            filled.push(line.trim());
            continue;
        }
        if !filled.is_empty() {
            roff.text([roman(filled.join(" "))]);
            filled.clear();
        }
        roff.control("nf", []);
        roff.text([roman(line)]);
        while let Some(line) = lines.next_if(|line| is_kept(line)) {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
    }
    if !filled.is_empty() {
        roff.text([roman(filled.join(" "))]);
    }
}

/// The command with its options and arguments, and their values.
fn synopsis(command: &Command) -> Vec<Inline> {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let mut parts = vec![bold(name)];
    for option in shown(command).filter(|option| !option.is_positional()) {
        let is_required = option.is_required_set();
        parts.push(roman(if is_required { " " } else { " [" }));
        parts.extend(named(option, "|"));
        parts.push(roman(if is_required { "" } else { "]" }));
        if matches!(option.get_action(), ArgAction::Append) {
            parts.push(roman("..."));
        }
    }
    for argument in command.get_positionals() {
        let many = argument
            .get_num_args()
            .is_some_and(|count| count.max_values() > 1);
        let dots = if many { "..." } else { "" };
        let value = italic(value_of(argument));
        parts.extend(match argument.is_required_set() {
            true => vec![roman(" "), value, roman(dots)],
            false => vec![roman(" ["), value, roman(format!("]{dots}"))],
        });
    }
    if subcommands(command).next().is_some() {
        let is_required = command.is_subcommand_required_set();
        let command = italic("COMMAND");
        parts.extend(match is_required {
            true => vec![roman(" "), command],
            false => vec![roman(" ["), command, roman("]")],
        });
    }
    parts
}

fn shown(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| !arg.is_hide_set())
}

fn subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
}

/// The names of an option, between them `between`, and its value.
fn named(option: &Arg, between: &str) -> Vec<Inline> {
    let short = option.get_short().map(|short| format!("-{short}"));
    let long = option.get_long().map(|long| format!("--{long}"));
    let mut parts = Vec::new();
    for name in short.into_iter().chain(long) {
        if !parts.is_empty() {
            parts.push(roman(between));
        }
        parts.push(bold(name));
    }
    if option.get_action().takes_values() {
        let is_optional = option
            .get_num_args()
            .is_some_and(|count| count.min_values() == 0);
        let value = italic(value_of(option));
        parts.extend(match (is_optional, option.is_require_equals_set()) {
            (true, true) => vec![roman("[="), value, roman("]")],
            (true, false) => vec![roman(" ["), value, roman("]")],
            (false, true) => vec![roman("="), value],
            (false, false) => vec![roman(" "), value],
        });
    }
    parts
}

/// The name of an argument's value.
fn value_of(argument: &Arg) -> String {
    match argument.get_value_names() {
        Some([name, ..]) => name.to_string(),
        _ => argument.get_id().to_string().to_uppercase(),
    }
}

/// Writes the arguments and the options, below their headings.
fn options(roff: &mut Roff, command: &Command) {
    let mut headings: Vec<&str> = Vec::new();
    let heading = |argument: &Arg| -> Option<String> {
        let heading = argument.get_help_heading().unwrap_or(OPTIONS);
        (!argument.is_positional()).then(|| heading.to_owned())
    };
    let all: Vec<(&Arg, Option<String>)> = shown(command).map(|arg| (arg, heading(arg))).collect();
    for (_, heading) in &all {
        if let Some(heading) = heading
            && !headings.contains(&heading.as_str())
        {
            headings.push(heading);
        }
    }
    // Options without a heading of their own come last, as in --help.
    headings.sort_by_key(|heading| *heading == OPTIONS);
    roff.control("SH", ["OPTIONS"]);
    for argument in command.get_positionals() {
        roff.control("TP", []);
        roff.text([italic(value_of(argument))]);
        roff.text([roman(help(argument))]);
    }
    let has_groups = headings.len() > 1;
    for heading in &headings {
        if has_groups {
            roff.control("SS", [*heading]);
        }
        let of = all
            .iter()
            .filter(|(_, own)| own.as_deref() == Some(*heading));
        for (option, _) in of {
            roff.control("TP", []);
            roff.text(named(option, ", "));
            roff.text([roman(help(option))]);
        }
    }
}

fn help(argument: &Arg) -> String {
    let text = argument
        .get_long_help()
        .or(argument.get_help())
        .map(ToString::to_string);
    let mut text = text.unwrap_or_default();
    let defaults: Vec<String> = argument
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy().into_owned())
        .collect();
    if !defaults.is_empty()
        && !argument.is_hide_default_value_set()
        && argument.get_action().takes_values()
    {
        text.push_str(&format!(" [default: {}]", defaults.join(", ")));
    }
    let values = argument.get_possible_values();
    let values: Vec<&str> = values.iter().map(|value| value.get_name()).collect();
    if !values.is_empty()
        && !argument.is_hide_possible_values_set()
        && argument.get_action().takes_values()
    {
        text.push_str(&format!(" [possible values: {}]", values.join(", ")));
    }
    text
}

/// Lists the commands of a command, with their pages.
fn commands(roff: &mut Roff, command: &Command, name: &str) {
    let mut verbs = subcommands(command).peekable();
    if verbs.peek().is_none() {
        return;
    }
    roff.control("SH", ["COMMANDS"]);
    for verb in verbs {
        let about = verb.get_about().map(ToString::to_string);
        let page = format!("{name}-{}(1)", verb.get_name());
        entry(roff, &page, &about.unwrap_or_default());
    }
}
