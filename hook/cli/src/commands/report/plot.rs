//! Draws the memory of the slices over time, as an SVG picture with stacked areas.
//! Touches: its arguments.

use super::history::Moment;
use super::parts::PARTS;
use std::fmt::Write;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 20.0;
const RIGHT: f64 = 190.0;
const BOTTOM: f64 = 45.0;
const LINES: u32 = 5;

/// Returns the picture as SVG text.
pub(super) fn svg(moments: &[Moment]) -> String {
    let seconds = moments.last().map_or(0.0, |moment| moment.at.as_secs_f64());
    let sums = moments
        .iter()
        .map(|moment| moment.parts.iter().sum::<u64>());
    let (most, unit, name) = scale(sums.max().unwrap_or(0));
    let scale = Scale {
        seconds: seconds.max(1.0),
        most,
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{WIDTH}\" \
         height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    for (index, (part, colour)) in PARTS.iter().enumerate() {
        let area = scale.area(moments, index);
        let _ = writeln!(svg, "<polygon points=\"{area}\" fill=\"{colour}\"/>");
        // The topmost area is the last part, so the legend's topmost line must be that part too.
        let place = u32::try_from(PARTS.len().saturating_sub(index)).unwrap_or(0);
        let y = TOP + 18.0 * f64::from(place);
        let x = WIDTH - RIGHT + 15.0;
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"{y}\">{part}</text>",
            y - 11.0,
            x + 18.0
        );
    }
    for line in 0..=LINES {
        let share = f64::from(line) / f64::from(LINES);
        let (x, y) = (scale.x(share * scale.seconds), scale.y(share * most));
        let (end, foot) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{end}\" y2=\"{y:.1}\" stroke=\"black\" stroke-opacity=\"0.15\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{:.1} {name}</text>\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{:.0} s</text>",
            LEFT - 6.0,
            y + 4.0,
            share * most / unit,
            foot + 20.0,
            share * scale.seconds
        );
    }
    svg.push_str("</svg>\n");
    svg
}

struct Scale {
    seconds: f64,
    most: f64,
}

/// Returns the top of the scale, and its unit.
#[expect(
    clippy::cast_precision_loss,
    reason = "a picture has no sixteen digits"
)]
fn scale(most: u64) -> (f64, f64, &'static str) {
    let (unit, name) = match most >> 30 {
        0 => (f64::from(1 << 20), "MiB"),
        _ => (f64::from(1 << 30), "GiB"),
    };
    let units = (most as f64 / unit).max(1.0);
    let step = 10f64.powf(units.log10().floor());
    ((units / step).ceil() * step * unit, unit, name)
}

impl Scale {
    fn x(&self, seconds: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * seconds / self.seconds
    }

    fn y(&self, bytes: f64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * bytes / self.most
    }

    /// Returns the corners of one part's area: along its upper edge, and back along its lower edge.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a picture has no sixteen digits"
    )]
    fn area(&self, moments: &[Moment], part: usize) -> String {
        let edge = |moment: &Moment, parts: usize| {
            let below: u64 = moment.parts.iter().take(parts).sum();
            let x = self.x(moment.at.as_secs_f64());
            format!("{x:.1},{:.1}", self.y(below as f64))
        };
        let upper = moments
            .iter()
            .map(|moment| edge(moment, part.saturating_add(1)));
        let lower = moments.iter().rev().map(|moment| edge(moment, part));
        upper.chain(lower).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_part_has_an_area_between_the_axes_and_a_line_of_the_legend() {
        let moment = |second, device: u64| Moment {
            at: Duration::from_secs(second),
            parts: [device << 30, 1 << 28, 1 << 30, 0, 0, 1 << 20],
        };
        let drawn = svg(&[moment(0, 1), moment(5, 4), moment(10, 9)]);
        assert_eq!(drawn.matches("<polygon").count(), PARTS.len());
        for (part, _) in PARTS {
            assert!(drawn.contains(&format!(">{part}</text>")), "{part}");
        }
        assert!(
            drawn.contains(">10 s</text>") && drawn.contains("20.0 GiB"),
            "{drawn}"
        );
        let points = drawn.split("points=\"").skip(1);
        let points = points.flat_map(|rest| rest.split('"').next().unwrap().split(' '));
        for point in points {
            let (x, y) = point.split_once(',').unwrap();
            let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
            assert!((LEFT..=WIDTH - RIGHT).contains(&x), "{point}");
            assert!((TOP..=HEIGHT - BOTTOM).contains(&y), "{point}");
        }
    }

    #[test]
    fn nothing_at_all_can_be_drawn() {
        assert!(svg(&[]).ends_with("</svg>\n"));
    }
}
