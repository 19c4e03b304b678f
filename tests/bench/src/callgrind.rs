//! Counts the instructions of a program by valgrind's callgrind: the same in each run, whatever
//! else the machine does.
//! Touches: valgrind, a temporary file.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The instructions that a program executed, by object file and function.
#[derive(Debug, Default)]
pub struct Counted {
    by_function: BTreeMap<(String, String), u64>,
}

impl Counted {
    /// Runs `program` with these words; `settings` gives the command its environment.
    ///
    /// # Panics
    /// If valgrind is not there, or if the program fails.
    #[must_use]
    pub fn run(program: &Path, words: &[&str], settings: impl FnOnce(&mut Command)) -> Counted {
        let out = tempfile::NamedTempFile::new().expect("a temporary file");
        let mut command = Command::new("valgrind");
        command
            .args(OPTIONS)
            .arg(format!("--callgrind-out-file={}", out.path().display()))
            .arg(program)
            .args(words);
        settings(&mut command);
        let done = command
            .output()
            .expect("valgrind runs (on Debian: apt-get install valgrind)");
        assert!(
            done.status.success(),
            "{} fails: {done:?}",
            program.display()
        );
        Counted::parse(&std::fs::read_to_string(out.path()).expect("callgrind has written"))
    }

    /// Reads the text that callgrind writes with [`OPTIONS`].
    #[must_use]
    pub fn parse(text: &str) -> Counted {
        let mut counted = Counted::default();
        let (mut object, mut function) = (String::new(), String::new());
        let mut is_of_callee = false;
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("ob=") {
                name.clone_into(&mut object);
            } else if let Some(name) = line.strip_prefix("fn=") {
                name.clone_into(&mut function);
            } else if line.starts_with("calls=") {
                // The next line has the cost of the called function, which has lines of its own.
                is_of_callee = true;
            } else if line
                .starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first))
            {
                let cost = line
                    .split(' ')
                    .nth(1)
                    .and_then(|cost| cost.parse::<u64>().ok());
                if let Some(cost) = cost.filter(|_| !is_of_callee) {
                    let key = (object.clone(), function.clone());
                    let sum = counted.by_function.entry(key).or_default();
                    *sum = cost.saturating_add(*sum);
                }
                is_of_callee = false;
            }
        }
        counted
    }

    /// The instructions in object files whose path ends with this text.
    #[must_use]
    pub fn of(&self, object: &str) -> u64 {
        let own = self.by_function.iter();
        own.filter(|((own, _), _)| own.ends_with(object))
            .map(|(_, cost)| cost)
            .sum()
    }

    /// The functions of an object file that cost most more than in `other`, with the difference.
    #[must_use]
    pub fn most_expensive(&self, object: &str, other: &Counted) -> Vec<(String, u64)> {
        let own = self.by_function.iter();
        let mut costs: Vec<_> = own
            .filter(|((own, _), _)| own.ends_with(object))
            .map(|(key, cost)| {
                let before = other.by_function.get(key).copied().unwrap_or(0);
                (key.1.clone(), cost.saturating_sub(before))
            })
            .filter(|(_, cost)| *cost > 0)
            .collect();
        costs.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
        costs
    }
}

/// Callgrind's options: names in full on each line, and no names of source files.
pub const OPTIONS: [&str; 5] = [
    "--tool=callgrind",
    "--quiet",
    "--compress-strings=no",
    "--compress-pos=no",
    "--separate-threads=no",
];
