//! Formats the result of `check` for a person: the verdict and its cause, then, if the answers
//! disagree or the user asks for it, the distinct answers and their sources.
//! Touches: its arguments; the terminal's width.

use super::answers::Says;
use super::attribution::{Askers, askers, everybody};
use super::query::routes::Route;
use super::query::row::{Row, Skipped};
use super::report::Report;
use super::verdict::DeviceVerdict;
use crate::base::terminal::{self, Colour};
use crate::base::text::wrapped;
use gpuslice_config::words::units::Bytes;
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// How the result is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Whether everything is shown.
    pub(super) verbose: bool,
    /// The longest line, in characters.
    pub(super) width: usize,
    /// Whether the verdict has a colour.
    pub(super) colour: bool,
}

impl Look {
    /// The form for standard output.
    pub(super) fn of_output(verbose: bool) -> Look {
        Look {
            verbose,
            width: terminal::width(),
            colour: terminal::shows_colour(),
        }
    }

    /// Writes a text, wrapped.
    fn write(&self, out: &mut String, text: &str) -> fmt::Result {
        let lines = wrapped(text, self.width);
        lines.iter().try_for_each(|line| writeln!(out, "{line}"))
    }
}

/// Formats the report as text.
pub(super) fn text(report: &Report, look: &Look) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_report(&mut text, report, look);
    text
}

fn write_report(out: &mut String, report: &Report, look: &Look) -> fmt::Result {
    let has_table = look.verbose || !report.consistent();
    write_verdict(out, report, look)?;
    if has_table {
        writeln!(out)?;
    }
    write_slice(out, report, look)?;
    if has_table {
        let library = report.shim().unwrap_or("not loaded");
        look.write(out, &format!("library  {library}"))?;
        for device in &report.verdict.devices {
            write_device(out, report, device, look)?;
        }
    } else {
        write_devices(out, report, look)?;
    }
    if look.verbose {
        write_rows(out, report)?;
    }
    if has_table {
        write_skipped(out, report, look)?;
    }
    let own = report.notes.iter();
    let of_table = report.table_notes.iter().filter(|_| has_table);
    let mut notes = own.chain(of_table).peekable();
    if has_table && notes.peek().is_some() {
        writeln!(out)?;
    }
    for note in notes {
        look.write(out, &format!("note: {note}"))?;
    }
    write_all_faults(out, report, look)
}

/// The sentences about what is wrong, each with the same weight.
fn faults(report: &Report) -> impl Iterator<Item = &str> {
    let disagreements = report.verdict.disagreements.iter();
    disagreements.chain(&report.incomplete).map(String::as_str)
}

/// The most lines of the verdict, unless it names the cause of everything else.
const BRIEF: usize = 2;

/// Returns the verdict's lines, and whether they say all that is wrong.
fn verdict_lines(report: &Report, word: &str, look: &Look) -> (Vec<String>, bool) {
    let first = faults(report).next().unwrap_or("no function has answered");
    let mut lines = wrapped(&format!("{word}: {first}"), look.width);
    let is_whole = report.cause().is_some() || lines.len() <= BRIEF;
    if !is_whole {
        lines.truncate(BRIEF);
        if let Some(last) = lines.last_mut() {
            last.push_str(" ...");
        }
    }
    (lines, is_whole && faults(report).count() <= 1)
}

/// The word of a verdict that is not good, and its colour.
fn failure(report: &Report) -> (&'static str, Colour) {
    match report.verdict.disagreements.is_empty() && !report.incomplete.is_empty() {
        true => ("INCOMPLETE", Colour::Yellow),
        false => ("INCONSISTENT", Colour::Red),
    }
}

/// Writes the verdict and its first reason.
fn write_verdict(out: &mut String, report: &Report, look: &Look) -> fmt::Result {
    if report.consistent() {
        let distinct = |of: fn(&Row) -> &str| {
            let mut names: Vec<&str> = report.compared().map(of).collect();
            names.sort_unstable();
            names.dedup();
            names.len()
        };
        let verdict = terminal::coloured("CONSISTENT", Colour::Green, look.colour);
        return writeln!(
            out,
            "{verdict}: {} functions by {} routes give {} answers that agree",
            distinct(|row| &row.api),
            distinct(|row| &row.route),
            report.compared().count()
        );
    }
    let (word, colour) = failure(report);
    // The word is coloured after the text was wrapped: a colour has no width.
    let coloured = terminal::coloured(word, colour, look.colour);
    let (lines, _) = verdict_lines(report, word, look);
    for (number, line) in lines.iter().enumerate() {
        match number {
            0 => writeln!(out, "{}", line.replacen(word, &coloured, 1))?,
            _ => writeln!(out, "{line}")?,
        }
    }
    Ok(())
}

/// Writes all sentences about what is wrong, unless the verdict has shown them.
fn write_all_faults(out: &mut String, report: &Report, look: &Look) -> fmt::Result {
    let (_, is_all) = verdict_lines(report, failure(report).0, look);
    if report.consistent() || is_all {
        return Ok(());
    }
    let title = match report.verdict.disagreements.is_empty() {
        true => "functions that could not be queried",
        false => "disagreements",
    };
    writeln!(out, "\n{title}")?;
    for sentence in faults(report) {
        look.write(out, &format!("- {sentence}"))?;
    }
    Ok(())
}

/// Writes the one answer for each device.
fn write_devices(out: &mut String, report: &Report, look: &Look) -> fmt::Result {
    for device in &report.verdict.devices {
        let answer = device.memory.iter().find_map(|group| match group.says {
            Says::Memory { total, free, used } => Some((total, free, used)),
            Says::Integrated(_) | Says::Error(_) => None,
        });
        let Some((total, free, used)) = answer else {
            continue;
        };
        let amount = |name: &str, bytes: Option<u64>| {
            bytes.map_or(String::new(), |bytes| {
                format!(", {} {name}", Bytes::new(bytes))
            })
        };
        let text = format!(
            "device   {}: {} total{}{}",
            name_of(report, device),
            Bytes::new(total),
            amount("free", free),
            amount("used", used)
        );
        look.write(out, &text)?;
    }
    Ok(())
}

fn name_of<'a>(report: &'a Report, device: &'a DeviceVerdict) -> &'a str {
    let names = &report.survey.devices;
    let name = names.iter().find(|(uuid, _)| *uuid == device.uuid);
    name.map_or(&device.uuid, |(_, name)| name)
}

fn write_skipped(out: &mut String, report: &Report, look: &Look) -> fmt::Result {
    let skipped = &report.survey.skipped;
    let function = |row: &Skipped| match row.api.as_str() {
        "*" => "everything".to_owned(),
        api => api.to_owned(),
    };
    if look.verbose && !skipped.is_empty() {
        writeln!(out, "\nnot asked")?;
        return skipped.iter().try_for_each(|row| {
            writeln!(out, "  {} by {}: {}", function(row), row.route, row.why)
        });
    }
    let mut routes: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for row in skipped {
        // Missing libraries and failed contexts have messages of their own. Most machines have no
        // Vulkan or no OpenCL.
        let is_said = Route::parse(&row.route).is_ok_and(Route::is_other_api)
            || report.survey.missing().any(|(_, why)| why == row.why)
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
    look.write(out, &text)
}

fn write_slice(out: &mut String, report: &Report, look: &Look) -> fmt::Result {
    let Some(shown) = &report.slice else {
        return writeln!(out, "slice    none");
    };
    let path = shown.path.display();
    let Some(slice) = &shown.slice else {
        return look.write(out, &format!("slice    unusable: {path}"));
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
    let text = format!("slice    {name}{} (from {path})", limits.join(", "));
    look.write(out, &text)?;
    match shown.held_by() {
        Some(fence) => look.write(out, &format!("limit held by: {fence}")),
        None => Ok(()),
    }
}

fn write_device(
    out: &mut String,
    report: &Report,
    device: &DeviceVerdict,
    look: &Look,
) -> fmt::Result {
    writeln!(out)?;
    let name = format!("{}  {}", name_of(report, device), device.uuid);
    look.write(out, &name)?;
    writeln!(
        out,
        "  {:>11} {:>11} {:>11}  reported by",
        "total", "free", "used"
    )?;
    for groups in [&device.memory, &device.integrated] {
        let all = everybody(groups);
        for group in groups {
            let askers = askers(&report.survey.asked, &all, &group.rows);
            write_group(out, &group.says, &askers, look)?;
        }
    }
    Ok(())
}

/// Writes an answer's line, and one line for each set of functions that give it.
fn write_group(out: &mut String, says: &Says, askers: &[Askers], look: &Look) -> fmt::Result {
    let mut head = answer(says);
    for line in askers.iter().flat_map(|askers| by_whom(askers, look)) {
        writeln!(out, "  {head}  {line}")?;
        head = " ".repeat(COLUMNS);
    }
    Ok(())
}

/// The width of an answer's three columns together.
const COLUMNS: usize = 35;
/// The least width for the functions and routes.
const NARROWEST: usize = 24;

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
fn by_whom(askers: &Askers, look: &Look) -> Vec<String> {
    let text = askers.to_string();
    // Four blanks separate the columns.
    let width = look.width.saturating_sub(COLUMNS).saturating_sub(4);
    wrapped(&text, width.max(NARROWEST))
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
