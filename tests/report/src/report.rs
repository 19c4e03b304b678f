//! The whole report, and what others have measured: faults and budgets of instructions.
//! Touches: `target/report`, `tests/bench/budgets`.

use crate::base::machine::Machine;
use crate::base::place;
use crate::measure::figure::Section;
use crate::show::summary::Line;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A report.
#[derive(Serialize)]
pub(crate) struct Report {
    pub(crate) schema: u32,
    pub(crate) effort: &'static str,
    pub(crate) peer: Option<String>,
    pub(crate) warning: Option<String>,
    pub(crate) machine: Machine,
    pub(crate) summary: Vec<Line>,
    pub(crate) sections: Vec<Section>,
    pub(crate) budgets: Vec<Budget>,
    pub(crate) faults: Vec<Fault>,
}

/// A budget of instructions, as its file lists them.
#[derive(Serialize)]
pub(crate) struct Budget {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// A fault that was injected, and what became of the programs.
#[derive(Serialize, Deserialize)]
pub(crate) struct Fault {
    pub(crate) row: String,
    pub(crate) title: String,
    pub(crate) injected: u64,
    pub(crate) survived: u64,
    pub(crate) wrong_answers: u64,
    pub(crate) hangs: u64,
    pub(crate) leaks: u64,
    pub(crate) seconds: f64,
}

/// Reads the faults that an earlier run has left beside the report. None were injected: no file.
pub(crate) fn faults(folder: &Path) -> Result<Vec<Fault>> {
    let file = folder.join("faults.json");
    match std::fs::read(&file) {
        Ok(text) => serde_json::from_slice(&text).with_context(|| file.display().to_string()),
        Err(_) => Ok(Vec::new()),
    }
}

/// Reads the budgets of instructions that the source has.
pub(crate) fn budgets() -> Result<Vec<Budget>> {
    let folder = place::source().join("tests/bench/budgets");
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Ok(Vec::new());
    };
    let mut budgets = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|extension| extension == "txt") {
            let name = path.file_stem().unwrap_or_default();
            budgets.push(Budget {
                name: name.to_string_lossy().into_owned(),
                text: std::fs::read_to_string(&path)?,
            });
        }
    }
    budgets.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(budgets)
}
