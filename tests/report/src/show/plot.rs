//! Plots as SVG, with a logarithmic axis: rows of dots, and lines over a count. Written here because
//! colours come from the page's style sheet, for light and dark; a plotting crate fixes them.

use super::amount::{amount, power, title};
use super::html::escape;
use crate::measure::figure::{Figure, Section, Unit};
use crate::measure::statistics::Summary;

const WIDTH: f64 = 760.0;
/// Where the axis begins, after the names of the variants.
const LEFT: f64 = 290.0;
/// Where it ends, before the column of medians.
const RIGHT: f64 = 665.0;

/// The plots of a section.
pub(crate) fn plots(section: &Section) -> Vec<String> {
    let (lines, dots): (Vec<&Figure>, Vec<&Figure>) = section
        .measured
        .figures
        .iter()
        .filter(|figure| !figure.rows.is_empty())
        .partition(|figure| figure.count.is_some());
    let mut plots = Vec::new();
    for unit in [Unit::Nanoseconds, Unit::Mebibytes, Unit::PercentOfCore] {
        let of_unit: Vec<&Figure> = dots
            .iter()
            .filter(|figure| figure.unit == unit)
            .copied()
            .collect();
        if !of_unit.is_empty() {
            plots.push(rows(&of_unit, section, unit));
        }
    }
    let mut names: Vec<&str> = lines.iter().map(|figure| figure.name.as_str()).collect();
    names.dedup();
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
            let of_name: Vec<&Figure> = lines
                .iter()
                .filter(|figure| figure.name == name)
                .copied()
                .collect();
            plots.push(curves(&of_name, section));
        }
    }
    plots
}

/// A logarithmic axis from a pixel to a pixel.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// An axis on which all values lie, from a power of ten to a power of ten.
    fn of(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Axis {
        let positive = values.filter(|value| *value > 0.0);
        let (low, high) = positive.fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let low = low.min(high).log10().floor();
        Axis {
            low,
            high: high.log10().ceil().max(low + 1.0),
            from,
            to,
        }
    }

    fn place(&self, value: f64) -> f64 {
        let part = match value > 0.0 {
            true => (value.log10() - self.low) / (self.high - self.low),
            false => 0.0,
        };
        self.from + part.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// The powers of ten.
    fn ticks(&self) -> impl Iterator<Item = f64> {
        let last = self.high;
        std::iter::successors(Some(self.low), |power| Some(power + 1.0))
            .take_while(move |power| *power <= last)
            .map(|power| 10_f64.powf(power))
    }
}

/// The values of figures that a plot shows.
fn values<'f>(
    figures: &'f [&Figure],
    shown: fn(&Summary) -> [f64; 3],
) -> impl Iterator<Item = f64> + 'f {
    let rows = figures.iter().flat_map(|figure| &figure.rows);
    rows.flat_map(move |row| shown(&row.summary))
}

/// The place of a variant among those of the section, which decides its colour.
fn colour(section: &Section, variant: &str) -> usize {
    let names = &section.measured.variants;
    names.iter().position(|name| name == variant).unwrap_or(0)
}

fn svg(height: f64, label: &str, body: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{}\">{body}</svg>\n",
        escape(label)
    )
}

/// A dot for the median of each row, a bar from p25 to p75, and a thin line to p99.
fn rows(figures: &[&Figure], section: &Section, unit: Unit) -> String {
    let values = values(figures, |row| [row.p25, row.median, row.p99]);
    let axis = Axis::of(values, LEFT, RIGHT);
    let (mut body, mut y) = (String::new(), 8.0);
    for figure in figures {
        y += 16.0;
        body.push_str(&format!(
            "<text class=\"name\" x=\"4\" y=\"{y:.0}\">{}</text>",
            escape(&title(figure, section.count_of))
        ));
        for row in &figure.rows {
            y += 15.0;
            let [low, median, high, most] = [
                row.summary.p25,
                row.summary.median,
                row.summary.p75,
                row.summary.p99,
            ]
            .map(|value| axis.place(value));
            let (middle, colour) = (y - 4.0, colour(section, &row.variant));
            let value = amount(row.summary.median, unit);
            body.push_str(&format!(
                "<text class=\"variant\" x=\"{:.0}\" y=\"{y:.0}\">{}</text>\
                 <g class=\"v{colour}\"><path class=\"thin\" d=\"M{low:.1} {middle:.1}H{most:.1}\"/>\
                 <path class=\"bar\" d=\"M{low:.1} {middle:.1}H{high:.1}\"/>\
                 <circle cx=\"{median:.1}\" cy=\"{middle:.1}\" r=\"3.5\"/></g>\
                 <text class=\"value\" text-anchor=\"end\" x=\"{:.0}\" y=\"{y:.0}\">{value}</text>",
                LEFT - 10.0,
                escape(&row.variant),
                WIDTH - 6.0
            ));
        }
        y += 5.0;
    }
    let mut grid = String::new();
    for tick in axis.ticks() {
        let x = axis.place(tick);
        grid.push_str(&format!(
            "<path class=\"grid\" d=\"M{x:.1} 8V{y:.0}\"/><text class=\"tick\" x=\"{x:.1}\" y=\"{:.0}\">{}</text>",
            y + 14.0,
            power(tick, unit)
        ));
    }
    let label = format!("{}: medians, p25 to p75, and p99", section.title);
    svg(y + 20.0, &label, &format!("{grid}{body}"))
}

/// A line for each variant over the counts, with its band from p25 to p75.
fn curves(figures: &[&Figure], section: &Section) -> String {
    let (top, bottom, left) = (34.0, 300.0, 70.0);
    let Some(first) = figures.first() else {
        return String::new();
    };
    let values = values(figures, |row| [row.p25, row.median, row.p75]);
    let axis = Axis::of(values, bottom, top);
    let step = (RIGHT - left) / figures.len() as f64;
    let x = |place: usize| left + step * (place as f64 + 0.5);
    let mut body = format!(
        "<text class=\"name\" x=\"4\" y=\"14\">{}</text>",
        escape(&first.name)
    );
    for tick in axis.ticks() {
        let y = axis.place(tick);
        body.push_str(&format!(
            "<path class=\"grid\" d=\"M{left} {y:.1}H{RIGHT}\"/><text class=\"value\" text-anchor=\"end\" x=\"{:.0}\" y=\"{:.1}\">{}</text>",
            left - 6.0,
            y + 4.0,
            power(tick, first.unit)
        ));
    }
    for (place, figure) in figures.iter().enumerate() {
        body.push_str(&format!(
            "<text class=\"tick\" x=\"{:.1}\" y=\"{:.0}\">{}</text>",
            x(place),
            bottom + 16.0,
            figure.count.unwrap_or(0)
        ));
    }
    body.push_str(&format!(
        "<text class=\"tick\" x=\"{:.0}\" y=\"{:.0}\">{}</text>",
        (left + RIGHT) / 2.0,
        bottom + 32.0,
        escape(section.count_of.unwrap_or_default())
    ));
    for (colour, variant) in section.measured.variants.iter().enumerate() {
        let summaries: Vec<_> = figures
            .iter()
            .enumerate()
            .filter_map(|(place, figure)| {
                let row = figure.rows.iter().find(|row| row.variant == *variant)?;
                Some((x(place), &row.summary))
            })
            .collect();
        if summaries.is_empty() {
            continue;
        }
        let point = |x: f64, value: f64| format!("{x:.1} {:.1}", axis.place(value));
        let line: Vec<String> = summaries
            .iter()
            .map(|(x, row)| point(*x, row.median))
            .collect();
        let band: Vec<String> = summaries
            .iter()
            .map(|(x, row)| point(*x, row.p25))
            .chain(summaries.iter().rev().map(|(x, row)| point(*x, row.p75)))
            .collect();
        let dots: String = summaries
            .iter()
            .map(|(x, row)| {
                format!(
                    "<circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"3.5\"/>",
                    axis.place(row.median)
                )
            })
            .collect();
        let legend = bottom + 50.0 + 16.0 * colour as f64;
        body.push_str(&format!(
            "<g class=\"v{colour}\"><path class=\"band\" d=\"M{}Z\"/><path class=\"line\" d=\"M{}\"/>{dots}\
             <path class=\"bar\" d=\"M{left} {:.0}h24\"/></g><text x=\"{:.0}\" y=\"{legend:.0}\">{}</text>",
            band.join("L"),
            line.join("L"),
            legend - 4.0,
            left + 32.0,
            escape(variant)
        ));
    }
    let height = bottom + 50.0 + 16.0 * section.measured.variants.len() as f64;
    let label = format!(
        "{}: {}, by {}",
        section.title,
        first.name,
        section.count_of.unwrap_or_default()
    );
    svg(height, &label, &body)
}
