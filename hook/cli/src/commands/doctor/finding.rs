//! One finding, and the order in which findings are shown.
//! Touches: its arguments.

use super::codes::{Code, Severity};
use serde::Serialize;

/// A finding. The JSON has these fields in this order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// Its code.
    pub(super) code: Code,
    /// Whether it breaks the slice.
    pub(super) severity: Severity,
    /// One sentence, which names the process or file.
    pub(super) sentence: String,
    /// What to do.
    pub(super) fix: String,
    /// The slice that it is about, if any.
    pub(super) name: Option<String>,
    /// The process that it is about, if any.
    pub(super) pid: Option<u32>,
}

impl Finding {
    /// Makes a finding with the usual severity and remedy of its code.
    pub(super) fn new(code: Code, sentence: impl Into<String>) -> Finding {
        Finding {
            code,
            severity: code.severity(),
            sentence: sentence.into(),
            fix: code.fix().to_owned(),
            name: None,
            pid: None,
        }
    }

    /// Makes a finding that does not break the slice in this case.
    pub(super) fn warning(code: Code, sentence: impl Into<String>) -> Finding {
        Finding {
            severity: Severity::Warning,
            ..Finding::new(code, sentence)
        }
    }

    /// Replaces the remedy by one that fits this case.
    pub(super) fn with_fix(self, fix: impl Into<String>) -> Finding {
        Finding {
            fix: fix.into(),
            ..self
        }
    }

    /// Checks whether the slice is not in force because of it.
    pub(super) fn breaks(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// Sorts findings, the most likely cause first. A finding that several processes of a slice share
/// is kept once, and names the other processes.
pub(super) fn sorted(found: Vec<Finding>) -> Vec<Finding> {
    let mut kept: Vec<(Finding, Vec<u32>)> = Vec::new();
    for finding in found {
        let is_alike = |(known, _): &&mut (Finding, Vec<u32>)| {
            let same = (known.code, known.severity) == (finding.code, finding.severity);
            same && known.name == finding.name
                && (known.sentence == finding.sentence
                    || known.pid.is_some() && finding.pid.is_some())
        };
        match kept.iter_mut().find(is_alike) {
            Some((known, others)) if known.sentence != finding.sentence => {
                others.extend(finding.pid);
            }
            Some(_) => {}
            None => kept.push((finding, Vec::new())),
        }
    }
    let mut all: Vec<Finding> = kept.into_iter().map(with_others).collect();
    all.sort_by_key(|finding| (finding.severity, finding.code));
    all
}

/// The most processes that one finding names.
const NAMED: usize = 8;

fn with_others((mut finding, others): (Finding, Vec<u32>)) -> Finding {
    let named: Vec<String> = others.iter().take(NAMED).map(u32::to_string).collect();
    let rest = others.len().saturating_sub(named.len());
    let more = match rest {
        0 => String::new(),
        rest => format!(" and {rest} more"),
    };
    match others.len() {
        0 => {}
        1 => finding.sentence += &format!("; so does process {}", named.concat()),
        _ => finding.sentence += &format!("; so do processes {}{more}", named.join(", ")),
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: Code, pid: u32) -> Finding {
        Finding {
            pid: Some(pid),
            name: Some("llama".to_owned()),
            ..Finding::new(code, format!("process {pid} has it"))
        }
    }

    #[test]
    fn a_cause_comes_first_and_warnings_come_last() {
        let found = vec![
            of(Code::Mps, 1),
            of(Code::LedgerMissing, 1),
            of(Code::StaticProgram, 1),
            Finding::warning(Code::StaticProgram, "a helper"),
        ];
        let codes: Vec<(Code, bool)> = sorted(found)
            .iter()
            .map(|one| (one.code, one.breaks()))
            .collect();
        assert_eq!(
            codes,
            [
                (Code::StaticProgram, true),
                (Code::LedgerMissing, true),
                (Code::StaticProgram, false),
                (Code::Mps, false)
            ]
        );
    }

    #[test]
    fn a_finding_of_many_processes_is_shown_once() {
        let found = sorted((1..=12).map(|pid| of(Code::Mps, pid)).collect());
        let sentences: Vec<&str> = found.iter().map(|one| one.sentence.as_str()).collect();
        assert_eq!(
            sentences,
            ["process 1 has it; so do processes 2, 3, 4, 5, 6, 7, 8, 9 and 3 more"]
        );
        let two = sorted(vec![of(Code::Mps, 1), of(Code::Mps, 2)]);
        assert_eq!(two[0].sentence, "process 1 has it; so does process 2");
    }
}
