//! Checks the slice file of a process.
//! Touches: its arguments.

use super::Case;
use crate::base::text::{escaped_path, printable};
use crate::commands::doctor::codes::{Code, Severity};
use crate::commands::doctor::finding::Finding;
use crate::commands::doctor::membership::{FileFault, Origin};
use std::io::{self, ErrorKind};

/// Adds the findings about the slice file.
pub(super) fn check(case: &Case<'_>, found: &mut Vec<Finding>) {
    let (slice, who) = (case.slice, case.who());
    match &slice.written {
        Err(FileFault::Unnamed) => {
            let sentence = format!(
                "GPUSLICE_CONFIG of {who} is not set, although GPUSLICE_SLICE is, so {}",
                follows(case)
            );
            found.push(graded(
                case,
                Finding::new(Code::SliceVariableLost, sentence),
            ));
        }
        Err(FileFault::Read(error)) => found.extend(unread(case, error)),
        Err(FileFault::Invalid(fault)) => {
            let sentence = format!(
                "slice file {}, {}, so {}",
                escaped_path(&slice.file),
                printable(&fault.to_string()),
                follows(case)
            );
            found.push(graded(case, Finding::new(Code::SliceFileInvalid, sentence)));
        }
        Ok(written) => {
            let edited = slice.carried.as_ref().is_some_and(|old| old != written);
            if edited {
                let sentence = format!(
                    "slice file {} was edited after {who} was started, for which the old limit holds",
                    escaped_path(&slice.file)
                );
                found.push(Finding::new(Code::SliceFileEdited, sentence));
            }
        }
    }
}

/// Reports a process that has loaded the library, and is told of no slice.
pub(super) fn not_named(case: &Case<'_>) -> Finding {
    let who = case.who();
    let sentence = match &case.slice.origin {
        Origin::Ancestor { pid, name } => format!(
            "{who} has loaded libgpuslice.so without GPUSLICE_CONFIG; process {pid} ({}), its \
             ancestor, still has the variable",
            printable(name)
        ),
        _ => format!("{who} has loaded libgpuslice.so, but GPUSLICE_CONFIG names no slice file"),
    };
    Finding::new(Code::SliceVariableLost, sentence)
}

fn unread(case: &Case<'_>, error: &io::Error) -> Option<Finding> {
    let (slice, who, process) = (case.slice, case.who(), case.process);
    let shown = escaped_path(&slice.file);
    let finding = match error.kind() {
        // A server that has given up root reads the slice from its environment.
        ErrorKind::PermissionDenied if slice.carried.is_some() => return None,
        ErrorKind::NotFound if process.is_elsewhere && slice.file.exists() => Finding::new(
            Code::MountNamespace,
            format!("{who} is in another mount namespace, in which {shown} does not exist"),
        ),
        ErrorKind::NotFound => Finding::new(
            Code::SliceFileMissing,
            format!("slice file {shown} does not exist, so {}", follows(case)),
        ),
        ErrorKind::PermissionDenied => Finding::new(
            Code::SliceFileUnreadable,
            format!(
                "{who} runs as user {}, who may not read slice file {shown}, so {}",
                process.creds.shown(),
                follows(case)
            ),
        ),
        _ => Finding::new(
            Code::SliceFileUnreadable,
            format!(
                "slice file {shown} cannot be read ({error}), so {}",
                follows(case)
            ),
        ),
    };
    Some(graded(case, finding))
}

/// Returns the consequence of an unusable slice file.
fn follows(case: &Case<'_>) -> &'static str {
    match case.severity() {
        Severity::Error => "all GPU memory is refused",
        Severity::Warning => "the slice as it was at the start stays in force",
    }
}

fn graded(case: &Case<'_>, finding: Finding) -> Finding {
    Finding {
        severity: case.severity(),
        ..finding
    }
}
