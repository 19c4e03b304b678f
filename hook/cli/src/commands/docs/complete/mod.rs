//! `gpuslice complete`: what a shell can complete the last word of a command line with. The scripts
//! of `gpuslice completions` call it.
//! Touches: standard output; everything that `values` touches.
//!
//! clap's own scripts know only names that do not change. Its completion at run time, which would
//! know slices, is unstable; it does not complete the command that `gpuslice run` starts, and bash's
//! `--sim=NAME` not at all.
//!
//! Each line is a value and its description, with a tab between them. The last line may be an
//! instruction: `:files` (also files), or `:command N` (the last N words are a command of their
//! own).

mod values;

use super::{DAEMON, visible};
use crate::base::{exit, streams};
use clap::{Arg, Command, CommandFactory};
use std::path::Path;

/// `gpuslice complete`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The words of the command line up to the cursor, with the program's name
    #[arg(last = true)]
    pub words: Vec<String>,
}

/// Prints the candidates of the command line `whole`.
///
/// # Errors
/// When they cannot be written.
pub(crate) fn main(args: &Args, whole: &Command) -> anyhow::Result<u8> {
    let said: String = candidates(&args.words, whole)
        .lines()
        .map(|line| format!("{line}\n"))
        .collect();
    streams::print(said.as_bytes())?;
    Ok(exit::SUCCESS)
}

/// A value, and its description.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    value: String,
    about: String,
}

impl Candidate {
    fn new(value: impl Into<String>, about: impl Into<String>) -> Candidate {
        Candidate {
            value: value.into(),
            about: about.into(),
        }
    }
}

/// What the shell does beside the candidates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Instruction {
    /// Nothing.
    #[default]
    None,
    /// It completes names of files.
    Files,
    /// It completes a command of its own, which is so many words long.
    Command(usize),
}

/// All that the last word can become.
#[derive(Debug, Default)]
struct Candidates {
    all: Vec<Candidate>,
    instruction: Instruction,
}

impl Candidates {
    fn of(all: Vec<Candidate>) -> Candidates {
        Candidates {
            all,
            instruction: Instruction::None,
        }
    }

    fn instruction(instruction: Instruction) -> Candidates {
        Candidates {
            all: Vec::new(),
            instruction,
        }
    }

    fn lines(&self) -> impl Iterator<Item = String> {
        let one = |candidate: &Candidate| match candidate.about.lines().next() {
            None => candidate.value.clone(),
            Some(about) => format!("{}\t{about}", candidate.value),
        };
        let instruction = match self.instruction {
            Instruction::None => None,
            Instruction::Files => Some(":files".to_owned()),
            Instruction::Command(count) => Some(format!(":command {count}")),
        };
        self.all.iter().map(one).chain(instruction)
    }

    /// Keeps what begins with the word, and puts `before` in front of it.
    fn beginning(mut self, word: &str, before: &str) -> Candidates {
        self.all
            .retain(|candidate| candidate.value.starts_with(word));
        for candidate in &mut self.all {
            candidate.value.insert_str(0, before);
        }
        self
    }
}

/// Where the parser is on a command line.
struct Place<'a> {
    command: &'a Command,
    /// The positional arguments so far.
    positionals: usize,
    /// The option whose value is next.
    expected: Option<&'a Arg>,
    /// Whether `--` has ended the options.
    is_escaped: bool,
}

/// Returns the candidates for the last word.
fn candidates(words: &[String], whole: &Command) -> Candidates {
    let Some((word, before)) = words.split_last() else {
        return Candidates::default();
    };
    let program = before.first().map(Path::new).and_then(Path::file_name);
    let mut command = match program.is_some_and(|name| name == DAEMON) {
        true => crate::commands::daemon::Args::command(),
        false => visible(whole),
    };
    command.build();
    let mut place = Place {
        command: &command,
        positionals: 0,
        expected: None,
        is_escaped: false,
    };
    for (at, word) in before.iter().enumerate().skip(1) {
        if place.pass(word) {
            return Candidates::instruction(Instruction::Command(words.len().saturating_sub(at)));
        }
    }
    place.complete(word, words)
}

impl<'a> Place<'a> {
    /// Goes past a word. Returns whether a command of its own begins with it.
    fn pass(&mut self, word: &str) -> bool {
        if self.expected.take().is_some() {
            return false;
        }
        if !self.is_escaped {
            if word == "--" {
                self.is_escaped = true;
                return false;
            }
            if let Some(name) = word.strip_prefix("--") {
                if !name.contains('=') {
                    self.expected = self.option(name).filter(|option| needs_value(option));
                }
                return false;
            }
            if let Some(letters) = word.strip_prefix('-').filter(|rest| !rest.is_empty()) {
                let last = letters.chars().next_back();
                let of = |arg: &&Arg| arg.get_short() == last;
                let option = self.command.get_arguments().find(of);
                self.expected = option.filter(|option| needs_value(option));
                return false;
            }
            if self.positionals == 0
                && let Some(verb) = self.command.find_subcommand(word)
            {
                self.command = verb;
                return false;
            }
        }
        let ends = self.positional().is_some_and(Arg::is_trailing_var_arg_set);
        self.positionals = self.positionals.saturating_add(1);
        ends
    }

    fn option(&self, name: &str) -> Option<&'a Arg> {
        let mut all = self.command.get_arguments();
        all.find(|arg| arg.get_long() == Some(name))
    }

    /// The positional argument that is next. The last one may take many values.
    fn positional(&self) -> Option<&'a Arg> {
        let mut all = self.command.get_positionals();
        let last = self.command.get_positionals().last();
        let many = |arg: &&Arg| {
            arg.get_num_args()
                .is_some_and(|count| count.max_values() > 1)
        };
        all.nth(self.positionals).or(last.filter(many))
    }

    fn complete(&self, word: &str, words: &[String]) -> Candidates {
        if let Some(option) = self.expected {
            return values::of(option, self.command, words).beginning(word, "");
        }
        if !self.is_escaped && word.starts_with('-') {
            return match word.split_once('=') {
                None => self.options().beginning(word, ""),
                Some((name, value)) => self.option_value(name, value, words),
            };
        }
        let mut found = Candidates::default();
        if self.positionals == 0 && !self.is_escaped {
            let verbs = self.command.get_subcommands();
            found.all.extend(verbs.map(|verb| {
                let about = verb.get_about().map(ToString::to_string);
                Candidate::new(verb.get_name(), about.unwrap_or_default())
            }));
        }
        if let Some(positional) = self.positional() {
            if positional.is_trailing_var_arg_set() {
                return Candidates::instruction(Instruction::Command(1));
            }
            let of = values::of(positional, self.command, words);
            found.all.extend(of.all);
            found.instruction = of.instruction;
        }
        let is_empty = found.all.is_empty() && found.instruction == Instruction::None;
        match is_empty && word.is_empty() && !self.is_escaped {
            true => self.options(),
            false => found.beginning(word, ""),
        }
    }

    fn option_value(&self, name: &str, value: &str, words: &[String]) -> Candidates {
        match self.option(name.trim_start_matches('-')) {
            Some(option) => {
                values::of(option, self.command, words).beginning(value, &format!("{name}="))
            }
            None => Candidates::default(),
        }
    }

    fn options(&self) -> Candidates {
        let all = self.command.get_arguments();
        let shown = all.filter(|arg| !arg.is_hide_set());
        let named = shown.filter_map(|arg| {
            let help = arg.get_help().map(ToString::to_string);
            let name = format!("--{}", arg.get_long()?);
            Some(Candidate::new(name, help.unwrap_or_default()))
        });
        Candidates::of(named.collect())
    }
}

/// Whether the word after the option is its value.
fn needs_value(option: &Arg) -> bool {
    let takes = option.get_action().takes_values();
    let least = option.get_num_args().map(|count| count.min_values());
    takes && least != Some(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;

    fn said(words: &[&str]) -> Vec<String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let all = candidates(&words, &Cli::command());
        let values = all
            .lines()
            .map(|line| line.split('\t').next().unwrap().to_owned());
        values.collect()
    }

    #[test]
    fn verbs_options_and_values_are_completed() {
        assert_eq!(said(&["gpuslice", "dr"]), ["drop-cache", "driver-limit"]);
        assert_eq!(said(&["gpuslice", "cdi", ""]), ["generate"]);
        assert_eq!(
            said(&["gpuslice", "run", "--page-c"]),
            ["--page-cache", "--page-cache-share"]
        );
        let kept = ["keep", "drop", "drop-behind"];
        assert_eq!(said(&["gpuslice", "run", "--page-cache", ""]), kept);
        assert_eq!(
            said(&["gpuslice", "run", "--page-cache=k"]),
            ["--page-cache=keep"]
        );
        assert_eq!(
            said(&["gpuslice", "gc", "--"]),
            ["--force", "--json", "--help"]
        );
        assert_eq!(said(&["gpuslice", "completions", "f"]), ["fish"]);
        assert_eq!(said(&["gpuslice", "help", "cdi", ""]), ["generate"]);
        assert_eq!(said(&["gpusliced", "--c"]), ["--config"]);
        assert_eq!(said(&["/usr/bin/gpusliced", "--config", ""]), [":files"]);
    }

    #[test]
    fn the_command_of_a_run_is_completed_by_the_shell() {
        for (words, count) in [
            (
                &["gpuslice", "run", "--memory", "8GiB", "--", "pyth"][..],
                1,
            ),
            (&["gpuslice", "run", "--memory=8GiB", "pyth"], 1),
            (&["gpuslice", "run", "--", "python3", "-m", ""], 3),
            (&["gpuslice", "run", "--bare", "python3", "--sim", ""], 3),
        ] {
            assert_eq!(said(words), [format!(":command {count}")], "{words:?}");
        }
    }

    #[test]
    fn hidden_commands_are_not_offered() {
        let all = said(&["gpuslice", ""]);
        assert!(all.contains(&"run".to_owned()));
        assert!(
            !all.iter()
                .any(|verb| verb.contains("probe") || verb == "complete")
        );
    }
}
