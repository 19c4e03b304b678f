//! What `gpuslice runtime configure` has done, as text and as JSON.
//! Touches: its arguments.

use super::Change;
use crate::base::json;
use crate::base::text::escaped_path;
use serde::Serialize;

/// The changes, and what they lead to. The keys of the JSON come in this order.
#[derive(Debug, Serialize)]
pub(in crate::commands::engines) struct Outcome {
    dry_run: bool,
    changes: Vec<Done>,
    /// Messages about unexpected parts of the result.
    pub(in crate::commands::engines) notes: Vec<String>,
    /// The command that puts the changes into force.
    pub(in crate::commands::engines) next: Option<String>,
    /// Whether containers get slices.
    pub(in crate::commands::engines) results: Vec<String>,
    /// Whether no change has failed.
    #[serde(skip)]
    pub(in crate::commands::engines) is_complete: bool,
}

/// A change of a file.
#[derive(Debug, Serialize)]
struct Done {
    path: String,
    action: &'static str,
    done: Option<String>,
    lines: Vec<String>,
}

/// The most lines of one file's diff in the text. A file that is new and long is generated.
const SHOWN: usize = 60;
/// The lines that are shown of a longer diff.
const BEGINNING: usize = 12;

impl Outcome {
    pub(in crate::commands::engines) fn new(dry_run: bool) -> Outcome {
        Outcome {
            dry_run,
            changes: Vec::new(),
            notes: Vec::new(),
            next: None,
            results: Vec::new(),
            is_complete: false,
        }
    }

    /// Adds a change, with the text that describes it, if it was made, and the lines of its diff.
    pub(in crate::commands::engines) fn add(
        &mut self,
        change: &Change,
        done: Option<String>,
        lines: Vec<String>,
    ) {
        self.changes.push(Done {
            path: escaped_path(&change.path),
            action: change.action(),
            done,
            lines,
        });
    }

    /// Formats the outcome.
    ///
    /// # Errors
    /// When it cannot be serialized.
    pub(in crate::commands::engines) fn printed(
        &self,
        as_json: bool,
    ) -> serde_json::Result<String> {
        match as_json {
            true => json::document(self),
            false => Ok(self.text()),
        }
    }

    fn text(&self) -> String {
        let mut lines: Vec<String> = Vec::new();
        if self.dry_run {
            lines.push("dry run: nothing is changed".to_owned());
            for change in &self.changes {
                lines.extend(shortened(&change.lines));
            }
        }
        lines.extend(self.changes.iter().filter_map(|change| change.done.clone()));
        if self.is_complete {
            lines.extend(self.notes.iter().cloned());
            lines.push(match &self.next {
                None => "nothing to change".to_owned(),
                Some(next) => format!("next: {next}"),
            });
            lines.extend(self.results.iter().map(|line| format!("result: {line}")));
        }
        lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

/// Returns a diff, of which only the beginning is shown if it is long.
fn shortened(lines: &[String]) -> Vec<String> {
    let Some(hidden) = lines.len().checked_sub(BEGINNING) else {
        return lines.to_vec();
    };
    if lines.len() <= SHOWN {
        return lines.to_vec();
    }
    let mut shown: Vec<String> = lines.iter().take(BEGINNING).cloned().collect();
    shown.push(format!("... {hidden} more lines (--json prints all)"));
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_diff_is_shortened_and_a_short_one_is_complete() {
        let lines = |count: usize| {
            (0..count)
                .map(|line| format!("+{line}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(shortened(&lines(SHOWN)), lines(SHOWN));
        assert_eq!(shortened(&lines(3)), lines(3));
        let shown = shortened(&lines(201));
        assert_eq!(shown.len(), BEGINNING + 1);
        assert_eq!(
            shown.last().unwrap(),
            "... 189 more lines (--json prints all)"
        );
    }
}
