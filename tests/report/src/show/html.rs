//! The report as one page, without scripts and without other files.

use super::amount::{self, COLUMNS, cells};
use super::{plot, summary, text};
use crate::measure::figure::Section;
use crate::report::Report;

const STYLE: &str = include_str!("style.css");

/// A text between tags.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Writes the page.
pub(crate) fn write(report: &Report) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>What gpuslice costs, {}</title>\n<style>\n{STYLE}</style></head>\n<body>\n\
         <h1>What gpuslice costs</h1>\n",
        escape(&report.machine.date)
    );
    if let Some(warning) = &report.warning {
        page.push_str(&format!("<p class=\"warning\">{}</p>\n", escape(warning)));
    }
    page.push_str("<table class=\"facts\">\n");
    let peer = report.peer.as_deref().unwrap_or("none");
    let own = [
        ("report", report.effort.to_owned()),
        ("peer", peer.to_owned()),
    ];
    for (name, value) in own.into_iter().chain(report.machine.rows()) {
        let value = escape(&value);
        page.push_str(&format!(
            "<tr><th scope=\"row\">{name}</th><td>{value}</td></tr>\n"
        ));
    }
    page.push_str("</table>\n");
    summarise(report, &mut page);
    page.push_str(READING);
    contents(report, &mut page);
    for part in &report.sections {
        section(part, &mut page);
    }
    if !report.budgets.is_empty() {
        page.push_str("<h2 id=\"budgets\">Budgets of instructions</h2>\n");
        for budget in &report.budgets {
            let (name, text) = (escape(&budget.name), escape(&budget.text));
            page.push_str(&format!("<h3>{name}</h3>\n<pre>{text}</pre>\n"));
        }
    }
    if !report.faults.is_empty() {
        page.push_str("<h2 id=\"faults\">Faults</h2>\n");
        let rows = report
            .faults
            .iter()
            .map(|fault| text::fault(fault).to_vec());
        table(&text::FAULTS.map(str::to_owned), rows, &mut page);
    }
    page.push_str("</body>\n</html>\n");
    page
}

const READING: &str = "<h2 id=\"reading\">How to read it</h2>\n\
<p>In every round, each variant has its turn in a process of its own, on the same driver; the next \
round begins with another variant. A dot is the median of all samples, which is also the number at \
the right; the bar goes from p25 to p75, and the thin line to p99. <em>Added</em> is the median of \
the differences to the first variant of the same round, with its quartiles; <em>ratio</em> is the \
median of the ratios. All axes of plots are logarithmic. The drivers answer at once and no GPU is \
used, so a difference is what a preload takes, and a ratio says little about calls that take longer \
on a real driver.</p>\n";

fn table(head: &[String], rows: impl Iterator<Item = Vec<String>>, page: &mut String) {
    page.push_str("<div class=\"wide\"><table><thead><tr>");
    for cell in head {
        page.push_str(&format!("<th scope=\"col\">{}</th>", escape(cell)));
    }
    page.push_str("</tr></thead>\n");
    for row in rows {
        page.push_str("<tr>");
        for (place, cell) in row.iter().enumerate() {
            let cell = escape(cell);
            match place {
                0 => page.push_str(&format!("<th scope=\"row\">{cell}</th>")),
                _ => page.push_str(&format!("<td>{cell}</td>")),
            }
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
}

fn summarise(report: &Report, page: &mut String) {
    if report.summary.is_empty() {
        return;
    }
    page.push_str(
        "<h2 id=\"summary\">In short</h2>\n<p>What each preload adds to no preload, or the ratio to it \
         (medians).</p>\n",
    );
    let variants = summary::variants(&report.summary);
    let mut head = vec![String::new(), "no preload".to_owned()];
    head.extend(variants.clone());
    let rows = report.summary.iter().map(|line| {
        let mut row = vec![line.title.to_owned(), line.bare.clone()];
        row.extend(
            variants
                .iter()
                .map(|name| summary::cell(line, name).to_owned()),
        );
        row
    });
    table(&head, rows, page);
}

fn contents(report: &Report, page: &mut String) {
    page.push_str("<nav><ul>\n");
    for section in &report.sections {
        let not_run = if section.not_run.is_some() {
            " (not run)"
        } else {
            ""
        };
        let (key, title) = (section.key, escape(section.title));
        page.push_str(&format!(
            "<li><a href=\"#{key}\">{title}</a>{not_run}</li>\n"
        ));
    }
    page.push_str("</ul></nav>\n");
}

fn section(section: &Section, page: &mut String) {
    let (key, title, about) = (section.key, escape(section.title), escape(section.about));
    page.push_str(&format!("<h2 id=\"{key}\">{title}</h2>\n<p>{about}</p>\n"));
    if let Some(reason) = &section.not_run {
        let reason = escape(reason);
        page.push_str(&format!("<p class=\"warning\">Not run: {reason}</p>\n"));
        return;
    }
    let mut notes = vec![format!(
        "{} rounds, {:.0} s, others used {:.1} % of the processors",
        section.measured.rounds, section.seconds, section.load.others_percent
    )];
    notes.extend(section.measured.notes.iter().cloned());
    page.push_str(&format!(
        "<p class=\"note\">{}.</p>\n",
        escape(&notes.join("; "))
    ));
    if section.load.is_busy() {
        page.push_str("<p class=\"warning\">The machine was busy with other work.</p>\n");
    }
    for failure in &section.measured.failures {
        page.push_str(&format!(
            "<p class=\"warning\">Failed: {}: {}</p>\n",
            escape(&failure.variant),
            escape(&failure.reason)
        ));
    }
    for plot in plot::plots(section) {
        page.push_str(&plot);
    }
    page.push_str("<details><summary>All numbers</summary>\n");
    for figure in &section.measured.figures {
        let mut head = vec![amount::title(figure, section.count_of)];
        head.extend(COLUMNS.map(str::to_owned));
        let rows = figure.rows.iter().map(|row| {
            let mut line = vec![row.variant.clone()];
            line.extend(cells(&row.summary, figure.unit));
            line
        });
        table(&head, rows, page);
    }
    page.push_str("</details>\n");
}
