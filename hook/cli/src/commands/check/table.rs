//! Formats the result of `check` for a person: the distinct answers and their sources, then the
//! verdict.
//! Touches: its arguments.

use super::answers::Says;
use super::attribution::{Askers, askers, everybody};
use super::query::row::{Row, Skipped};
use super::report::Report;
use super::verdict::DeviceVerdict;
use gpuslice_config::words::units::Bytes;
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// Formats the report as text.
pub(super) fn table(report: &Report, verbose: bool) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_table(&mut text, report, verbose);
    text
}

fn write_table(out: &mut String, report: &Report, verbose: bool) -> fmt::Result {
    if let Some(cause) = report.cause() {
        for line in wrapped(&format!("INCONSISTENT: {cause}"), WIDTH) {
            writeln!(out, "{line}")?;
        }
        writeln!(out)?;
    }
    write_slice(out, report)?;
    match report.shim() {
        Some(path) => writeln!(out, "library  {path}")?,
        None => writeln!(out, "library  not loaded")?,
    }
    for device in &report.verdict.devices {
        write_device(out, report, device)?;
    }
    if verbose {
        write_rows(out, report)?;
    }
    write_skipped(out, report, verbose)?;
    if !report.notes.is_empty() {
        writeln!(out)?;
    }
    for note in &report.notes {
        for line in wrapped(&format!("note: {note}"), WIDTH) {
            writeln!(out, "{line}")?;
        }
    }
    write_verdict(out, report)
}

fn write_skipped(out: &mut String, report: &Report, verbose: bool) -> fmt::Result {
    let skipped = &report.survey.skipped;
    let function = |row: &Skipped| match row.api.as_str() {
        "*" => "everything".to_owned(),
        api => api.to_owned(),
    };
    if verbose && !skipped.is_empty() {
        writeln!(out, "\nnot asked")?;
        return skipped.iter().try_for_each(|row| {
            writeln!(out, "  {} by {}: {}", function(row), row.route, row.why)
        });
    }
    let mut routes: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for row in skipped {
        // Missing libraries and failed contexts have messages of their own.
        let is_said = report.survey.missing().any(|(_, why)| why == row.why)
            || report.survey.lacks_context(row);
        if !is_said {
            let routes = routes.entry(function(row)).or_default();
            routes.push(&row.route);
            routes.dedup();
        }
    }
    let each =
        |(function, routes): (String, Vec<&str>)| format!("{function} by {}", routes.join(", "));
    let all: Vec<String> = routes.into_iter().map(each).collect();
    if all.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let text = format!("not asked: {} (--verbose says why)", all.join("; "));
    for line in wrapped(&text, WIDTH) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn write_slice(out: &mut String, report: &Report) -> fmt::Result {
    let Some(shown) = &report.slice else {
        return writeln!(out, "slice    none");
    };
    let path = shown.path.display();
    let Some(slice) = &shown.slice else {
        return writeln!(out, "slice    unusable: {path}");
    };
    let mut limits = Vec::new();
    if let Some(memory) = slice.memory {
        limits.push(format!("{memory} on every GPU"));
    }
    for listed in slice.devices() {
        let budget = slice.device(listed.uuid);
        if let Some(budget) = budget.filter(|budget| Some(budget.memory) != slice.memory) {
            limits.push(format!("{} on {}", budget.memory, listed.uuid));
        }
    }
    if limits.is_empty() {
        limits.push("no limit".to_owned());
    }
    let name = match slice.name.as_str() {
        "" => String::new(),
        name => format!("{name}: "),
    };
    writeln!(out, "slice    {name}{} (from {path})", limits.join(", "))
}

fn write_device(out: &mut String, report: &Report, device: &DeviceVerdict) -> fmt::Result {
    let names = &report.survey.devices;
    let name = names.iter().find(|(uuid, _)| *uuid == device.uuid);
    let name = name.map_or("", |(_, name)| name);
    writeln!(out, "\n{name}  {}", device.uuid)?;
    writeln!(
        out,
        "  {:>11} {:>11} {:>11}  said by",
        "total", "free", "used"
    )?;
    for groups in [&device.memory, &device.integrated] {
        let all = everybody(groups);
        for group in groups {
            let askers = askers(&report.survey.asked, &all, &group.rows);
            write_group(out, &group.says, &askers)?;
        }
    }
    Ok(())
}

/// Writes an answer's line, and one line for each set of functions that give it.
fn write_group(out: &mut String, says: &Says, askers: &[Askers]) -> fmt::Result {
    let mut head = answer(says);
    for line in askers.iter().flat_map(by_whom) {
        writeln!(out, "  {head}  {line}")?;
        head = " ".repeat(COLUMNS);
    }
    Ok(())
}

/// The width of an answer's three columns together.
const COLUMNS: usize = 35;
/// The longest line, in characters.
const WIDTH: usize = 116;

/// Formats the answer in three columns.
fn answer(says: &Says) -> String {
    let amount = |bytes: Option<u64>| {
        bytes.map_or_else(|| "-".to_owned(), |bytes| Bytes::new(bytes).to_string())
    };
    match says {
        Says::Memory { total, free, used } => format!(
            "{:>11} {:>11} {:>11}",
            amount(Some(*total)),
            amount(*free),
            amount(*used)
        ),
        other => format!("{:>COLUMNS$}", other.to_string()),
    }
}

/// Formats the functions and routes that gave an answer, wrapped to the line width.
fn by_whom(askers: &Askers) -> Vec<String> {
    let text = askers.to_string();
    wrapped(&text, WIDTH.saturating_sub(COLUMNS))
}

/// Wraps text to lines of at most `width` characters, and indents all lines but the first. Line
/// ends in the text stay, for example those of a list.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut given = text.lines();
    let mut lines = vec![String::new()];
    for word in given.next().map(words).unwrap_or_default() {
        let Some(line) = lines.last_mut() else { break };
        if line.is_empty() {
            line.push_str(&word);
        } else if line.chars().count().saturating_add(word.chars().count()) < width {
            line.push(' ');
            line.push_str(&word);
        } else {
            lines.push(format!("  {word}"));
        }
    }
    lines.extend(given.map(|line| format!("  {}", line.trim_start())));
    lines
}

/// Splits text into parts that stay on one line: words, and pairs such as `GPU 0`.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match words.last_mut() {
            Some(before) if before.ends_with("GPU") && word.starts_with(is_digit) => {
                before.push(' ');
                before.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

fn is_digit(letter: char) -> bool {
    letter.is_ascii_digit()
}

fn write_rows(out: &mut String, report: &Report) -> fmt::Result {
    let rows: Vec<&Row> = report.rows().collect();
    let width = |of: fn(&Row) -> &str| rows.iter().map(|row| of(row).len()).max().unwrap_or(0);
    let (api, route) = (width(|row| &row.api), width(|row| &row.route));
    writeln!(out, "\nevery answer, in bytes")?;
    for row in rows {
        let said = match &row.error {
            Some(error) => error.clone(),
            None => numbers(row),
        };
        writeln!(
            out,
            "  {}  {:<api$}  {:<route$}  {said}",
            row.device, row.api, row.route
        )?;
    }
    Ok(())
}

fn numbers(row: &Row) -> String {
    let reading = &row.reading;
    let amounts = [
        ("total", reading.total),
        ("free", reading.free),
        ("used", reading.used),
        ("reserved", reading.reserved),
    ];
    let told = amounts
        .iter()
        .filter_map(|(what, bytes)| Some(format!("{what} {}", (*bytes)?)));
    let integrated = reading
        .integrated
        .map(|integrated| format!("integrated {integrated}"));
    told.chain(integrated).collect::<Vec<_>>().join("  ")
}

fn write_verdict(out: &mut String, report: &Report) -> fmt::Result {
    let disagreements = &report.verdict.disagreements;
    if !report.consistent() {
        let word = match disagreements.is_empty() {
            true => "INCOMPLETE",
            false => "INCONSISTENT",
        };
        writeln!(out, "\n{word}")?;
        for sentence in disagreements.iter().chain(&report.incomplete) {
            for line in wrapped(sentence, WIDTH) {
                writeln!(out, "  {line}")?;
            }
        }
        return Ok(());
    }
    let distinct = |of: fn(&Row) -> &str| {
        let mut names: Vec<&str> = report.rows().map(of).collect();
        names.sort_unstable();
        names.dedup();
        names.len()
    };
    writeln!(
        out,
        "\nCONSISTENT: {} functions by {} routes, {} answers, one truth",
        distinct(|row| &row.api),
        distinct(|row| &row.route),
        report.rows().count()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_keeps_its_lines() {
        let text = "there is no GPU-1 here; there are:\n  0 GPU-2  a card, 24.00 GiB\n  1 GPU-3";
        let lines = [
            "there is no",
            "  GPU-1 here;",
            "  there are:",
            "  0 GPU-2  a card, 24.00 GiB",
            "  1 GPU-3",
        ];
        assert_eq!(wrapped(text, 14), lines);
    }

    #[test]
    fn a_gpu_keeps_its_number() {
        let lines = ["more than", "  GPU 10", "  has"];
        assert_eq!(wrapped("more than GPU 10 has", 9), lines);
        assert_eq!(wrapped("", 12), [""]);
    }
}
