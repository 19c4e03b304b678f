//! The report as text.

use super::amount::{self, COLUMNS, cells};
use super::summary;
use crate::measure::figure::Section;
use crate::report::{Fault, Report};

/// Writes the whole report.
pub(crate) fn write(report: &Report) -> String {
    let mut text = format!("What gpuslice costs ({} report)\n\n", report.effort);
    if let Some(warning) = &report.warning {
        text.push_str(&format!("{warning}\n\n"));
    }
    for (name, value) in report.machine.rows() {
        text.push_str(&format!("{name:<12}{value}\n"));
    }
    summarise(report, &mut text);
    for part in &report.sections {
        section(part, &mut text);
    }
    for budget in &report.budgets {
        text.push_str(&format!(
            "\nInstructions: {}\n\n{}\n",
            budget.name, budget.text
        ));
    }
    if !report.faults.is_empty() {
        faults(&report.faults, &mut text);
    }
    text
}

/// A table whose columns are as wide as their widest cell. The first column is aligned to the left.
fn table(rows: &[Vec<String>], text: &mut String) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    for row in rows {
        let mut line = String::new();
        for (place, (cell, width)) in row.iter().zip(&widths).enumerate() {
            match place {
                0 => line.push_str(&format!("    {cell:<width$}")),
                _ => line.push_str(&format!("  {cell:>width$}")),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

fn summarise(report: &Report, text: &mut String) {
    if report.summary.is_empty() {
        return;
    }
    text.push_str(
        "\nIn short: what each preload adds to no preload, or the ratio to it (medians)\n\n",
    );
    let variants = summary::variants(&report.summary);
    let mut rows = vec![vec![String::new(), "no preload".to_owned()]];
    rows.iter_mut().for_each(|row| row.extend(variants.clone()));
    for line in &report.summary {
        let mut row = vec![line.title.to_owned(), line.bare.clone()];
        row.extend(
            variants
                .iter()
                .map(|name| summary::cell(line, name).to_owned()),
        );
        rows.push(row);
    }
    table(&rows, text);
}

fn section(section: &Section, text: &mut String) {
    text.push_str(&format!(
        "\n{} ({})\n{}\n",
        section.title, section.key, section.about
    ));
    if let Some(reason) = &section.not_run {
        text.push_str(&format!("  NOT RUN: {reason}\n"));
        return;
    }
    text.push_str(&format!(
        "{} rounds, interleaved, {:.0} s; others used {:.1} % of the processors{}\n",
        section.measured.rounds,
        section.seconds,
        section.load.others_percent,
        if section.load.is_busy() {
            " (BUSY)"
        } else {
            ""
        }
    ));
    for note in &section.measured.notes {
        text.push_str(&format!("{note}\n"));
    }
    for failure in &section.measured.failures {
        text.push_str(&format!(
            "  FAILED: {}: {}\n",
            failure.variant, failure.reason
        ));
    }
    for figure in &section.measured.figures {
        text.push_str(&format!(
            "\n  {}\n",
            amount::title(figure, section.count_of)
        ));
        let mut rows = vec![vec![String::new()]];
        rows.iter_mut()
            .for_each(|row| row.extend(COLUMNS.map(str::to_owned)));
        for row in &figure.rows {
            let mut line = vec![row.variant.clone()];
            line.extend(cells(&row.summary, figure.unit));
            rows.push(line);
        }
        table(&rows, text);
    }
}

/// The columns of the table of faults.
pub(crate) const FAULTS: [&str; 7] = [
    "fault",
    "injected",
    "survived",
    "wrong answers",
    "hangs",
    "leaks",
    "time",
];

/// The cells of a fault.
pub(crate) fn fault(fault: &Fault) -> [String; 7] {
    [
        format!("{} {}", fault.row, fault.title),
        fault.injected.to_string(),
        fault.survived.to_string(),
        fault.wrong_answers.to_string(),
        fault.hangs.to_string(),
        fault.leaks.to_string(),
        format!("{:.0} s", fault.seconds),
    ]
}

fn faults(faults: &[Fault], text: &mut String) {
    text.push_str("\nFaults\n\n");
    let mut rows = vec![FAULTS.map(str::to_owned).to_vec()];
    rows.extend(faults.iter().map(|each| fault(each).to_vec()));
    table(&rows, text);
}
