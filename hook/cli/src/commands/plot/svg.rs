//! Writes a picture as SVG text.
//! Touches: its arguments.

use super::ticks;
use super::{Figure, Panel, Segment};
use crate::base::local_time;
use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

const WIDTH: f64 = 960.0;
/// The edges of the panels.
const LEFT: f64 = 80.0;
const RIGHT: f64 = 760.0;
/// The height of the title, and of a panel with its own title.
const HEAD: f64 = 58.0;
const PANEL: f64 = 226.0;
/// The parts of a panel: its title, and the drawing below.
const TITLE: f64 = 34.0;
const DRAWN: f64 = 172.0;
const FOOT: f64 = 34.0;

/// The colour of limits and refusals.
const RED: &str = "#c0392b";

/// The most letters of a title.
const LETTERS: usize = 90;

/// Returns the picture as SVG text.
#[must_use]
pub(crate) fn draw(figure: &Figure) -> String {
    let count = u32::try_from(figure.panels.len()).unwrap_or(u32::MAX);
    let height = HEAD + PANEL * f64::from(count) + FOOT;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"DejaVu Sans, Verdana, Arial, sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"26\" font-size=\"17\" font-weight=\"bold\">{}</text>\
         <text x=\"{LEFT}\" y=\"46\" fill=\"#555\">{}</text>",
        escaped(&figure.title),
        escaped(&subtitle(figure))
    );
    let time = Axis {
        from: figure.from,
        to: figure.to.max(figure.from.saturating_add(1)),
        start: LEFT,
        end: RIGHT,
    };
    let ticks = ticks::of_time(figure.from, time.to, figure.offset);
    for (index, panel) in (0u32..).zip(&figure.panels) {
        let top = HEAD + PANEL * f64::from(index);
        draw_panel(&mut svg, panel, &time, &ticks, top);
    }
    svg.push_str("</svg>\n");
    svg
}

fn subtitle(figure: &Figure) -> String {
    let date = |ms: u64| {
        let time = UNIX_EPOCH
            .checked_add(Duration::from_millis(ms))
            .unwrap_or(UNIX_EPOCH);
        let shown = local_time::with_offset(time, figure.offset);
        shown.split(' ').next().unwrap_or_default().to_owned()
    };
    let (first, last) = (date(figure.from), date(figure.to));
    let days = match first == last {
        true => first,
        false => format!("{first} to {last}"),
    };
    let zone = local_time::zone(figure.offset);
    let parts = [figure.subtitle.as_str(), &days, &zone];
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("  ·  ")
}

fn draw_panel(svg: &mut String, panel: &Panel, time: &Axis, ticks: &[(u64, String)], top: f64) {
    let (roof, floor) = (top + TITLE, top + TITLE + DRAWN);
    let most = panel
        .segments
        .iter()
        .map(Segment::highest)
        .max()
        .unwrap_or(0);
    let amounts = ticks::of_bytes(most);
    let bytes = Axis {
        from: 0,
        to: amounts.last().map_or(1, |(bytes, _)| *bytes).max(1),
        start: floor,
        end: roof,
    };
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"{:.1}\" font-weight=\"bold\">{}</text>",
        top + TITLE - 16.0,
        escaped(&panel.title)
    );
    for (amount, text) in &amounts {
        let y = bytes.at(*amount);
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {y:.1}H{RIGHT}\" stroke=\"#000\" stroke-opacity=\"0.12\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            LEFT - 7.0,
            y + 4.0
        );
    }
    for (tick, text) in ticks {
        let x = time.at(*tick);
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} {roof:.1}V{:.1}\" stroke=\"#000\" stroke-opacity=\"0.12\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
            floor + 4.0,
            floor + 18.0
        );
    }
    for segment in &panel.segments {
        for (index, (_, colour)) in panel.layers.iter().enumerate() {
            let path = area(segment, index, time, &bytes);
            if !path.is_empty() {
                let _ = writeln!(
                    svg,
                    "<path d=\"{path}\" fill=\"{colour}\" fill-opacity=\"0.75\" stroke=\"{colour}\"/>"
                );
            }
        }
        draw_limit(svg, segment, time, &bytes);
    }
    let _ = writeln!(
        svg,
        "<path d=\"M{LEFT} {roof:.1}V{floor:.1}H{RIGHT}\" fill=\"none\" stroke=\"#333\"/>"
    );
    legend(svg, panel, roof);
}

/// Draws the limit of a segment, and a mark at it for each refusal.
fn draw_limit(svg: &mut String, segment: &Segment, time: &Axis, bytes: &Axis) {
    let start = segment.values.first().map_or(segment.end, |(at, _)| *at);
    if let Some(limit) = segment.limit_at(start) {
        let mut path = format!("M{:.1} {:.1}", time.at(start), bytes.at(limit));
        for (at, limit) in segment.limits.iter().filter(|(at, _)| *at > start) {
            let _ = write!(path, "H{:.1}V{:.1}", time.at(*at), bytes.at(*limit));
        }
        let _ = writeln!(
            svg,
            "<path d=\"{path}H{:.1}\" fill=\"none\" stroke=\"{RED}\" stroke-width=\"1.5\" \
             stroke-dasharray=\"6 3\"/>",
            time.at(segment.end)
        );
    }
    for (at, count) in &segment.refusals {
        let (x, y) = (
            time.at(*at),
            bytes.at(segment.limit_at(*at).unwrap_or_else(|| segment.highest())),
        );
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} {y:.1}l-5 -9h10z\" fill=\"{RED}\"><title>{count} refused</title></path>"
        );
    }
}

/// Returns the outline of one layer: along its upper edge, and back along its lower edge.
fn area(segment: &Segment, layer: usize, time: &Axis, bytes: &Axis) -> String {
    let below = |layers: &[u64], count: usize| layers.iter().take(count).sum::<u64>();
    let has_any = segment
        .values
        .iter()
        .any(|(_, layers)| layers.get(layer).is_some_and(|it| *it > 0));
    if !has_any {
        return String::new();
    }
    let mut path = String::new();
    let mut edge: Vec<(f64, f64)> = Vec::new();
    let ends = segment
        .values
        .iter()
        .skip(1)
        .map(|(at, _)| *at)
        .chain([segment.end]);
    for ((at, layers), end) in segment.values.iter().zip(ends) {
        let (x, next) = (time.at(*at), time.at(end));
        let (high, low) = (below(layers, layer.saturating_add(1)), below(layers, layer));
        let (high, low) = (bytes.at(high), bytes.at(low));
        let first = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{first}{x:.1} {high:.1}H{next:.1}");
        edge.push((x, low));
        edge.push((next, low));
    }
    for (x, y) in edge.into_iter().rev() {
        let _ = write!(path, "L{x:.1} {y:.1}");
    }
    path.push('Z');
    path
}

/// Lists the layers from top to bottom, as they are stacked.
fn legend(svg: &mut String, panel: &Panel, top: f64) {
    let x = RIGHT + 18.0;
    let mut y = top + 12.0;
    let changed = panel.segments.iter().flat_map(|segment| &segment.limits);
    let limits: Vec<u64> = changed
        .map(|(_, limit)| *limit)
        .chain(panel.segments.iter().filter_map(|segment| segment.limit))
        .collect();
    if let Some(limit) = limits.last() {
        let differ = limits.iter().any(|other| other != limit);
        let text = match differ {
            true => "limit".to_owned(),
            false => format!("limit {}", size(*limit)),
        };
        let _ = writeln!(
            svg,
            "<path d=\"M{x} {:.1}h14\" stroke=\"{RED}\" stroke-width=\"1.5\" stroke-dasharray=\"6 3\"/>\
             <text x=\"{:.1}\" y=\"{y:.1}\">{text}</text>",
            y - 4.0,
            x + 20.0
        );
        y += 19.0;
    }
    let refused = panel.segments.iter().flat_map(|segment| &segment.refusals);
    let refused: u64 = refused.map(|(_, count)| *count).sum();
    if refused > 0 {
        let _ = writeln!(
            svg,
            "<path d=\"M{:.1} {:.1}l-5 -9h10z\" fill=\"{RED}\"/><text x=\"{:.1}\" y=\"{y:.1}\">refused \
             ({refused})</text>",
            x + 7.0,
            y + 1.0,
            x + 20.0
        );
        y += 19.0;
    }
    for (name, colour) in panel.layers.iter().rev() {
        let _ = writeln!(
            svg,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\" \
             fill-opacity=\"0.75\"/><text x=\"{:.1}\" y=\"{y:.1}\">{name}</text>",
            x + 1.0,
            y - 11.0,
            x + 20.0
        );
        y += 19.0;
    }
}

/// Formats a limit: whole where it is whole.
fn size(bytes: u64) -> String {
    let text = gpuslice_config::words::units::Bytes::new(bytes).to_string();
    text.replace(".00 ", " ")
}

/// An axis of the picture.
struct Axis {
    from: u64,
    to: u64,
    start: f64,
    end: f64,
}

impl Axis {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a picture has no sixteen digits"
    )]
    fn at(&self, value: u64) -> f64 {
        let length = self.to.saturating_sub(self.from).max(1) as f64;
        let along = value.clamp(self.from, self.to).saturating_sub(self.from) as f64;
        self.start + (self.end - self.start) * along / length
    }
}

/// Text for SVG: foreign names may contain markup, and characters that XML does not allow.
fn escaped(text: &str) -> String {
    let mut letters = text.chars();
    let shown: String = letters.by_ref().take(LETTERS).collect();
    let more = if letters.next().is_some() { "…" } else { "" };
    let mut escaped = String::new();
    for letter in shown.chars().chain(more.chars()) {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            letter if letter.is_control() || ('\u{fffe}'..='\u{ffff}').contains(&letter) => {
                escaped.push('\u{fffd}');
            }
            letter => escaped.push(letter),
        }
    }
    escaped
}
