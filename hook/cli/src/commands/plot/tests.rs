//! The picture as text and as pixels: what it shows, and that foreign names cannot break it.
#![expect(
    clippy::arithmetic_side_effects,
    reason = "the pixels of a small picture"
)]

use super::*;
use std::process::{Command, Stdio};

const LAYERS: [(&str, &str); 2] = [("low", "#4c72b0"), ("high", "#8172b3")];

fn figure(name: &str) -> Figure {
    let mut segment = Segment {
        limit: Some(8 << 30),
        ..Segment::default()
    };
    segment.add(1_000, vec![1 << 30, 0], 0);
    segment.add(3_000, vec![2 << 30, 1 << 30], 0);
    segment.add(5_000, vec![2 << 30, 1 << 30], 3);
    segment.end = 9_000;
    Figure {
        title: name.to_owned(),
        subtitle: "node1".to_owned(),
        from: 0,
        to: 10_000,
        offset: 0,
        panels: vec![Panel {
            title: name.to_owned(),
            layers: LAYERS.to_vec(),
            segments: vec![segment],
        }],
    }
}

#[test]
fn the_limit_the_refusals_and_the_date_are_in_the_picture() {
    let drawn = draw(&figure("llama"));
    for text in [
        "llama</text>",
        "node1  ·  1970-01-01  ·  UTC",
        "limit 8 GiB",
        "refused (3)",
        "<title>3 refused</title>",
        ">00:00:02</text>",
        ">8 GiB</text>",
    ] {
        assert!(drawn.contains(text), "{text}: {drawn}");
    }
    // The limit is at the top of the scale, from the first value to the end: a tenth to nine tenths.
    assert!(drawn.contains("<path d=\"M148.0 92.0H692.0\""), "{drawn}");
}

#[test]
fn a_line_ends_where_the_slice_ends_and_never_slopes() {
    let drawn = draw(&figure("llama"));
    let low = drawn
        .split("<path d=\"")
        .find(|path| path.contains("#4c72b0"))
        .unwrap();
    let low = low.split('"').next().unwrap();
    // Each value holds until the next one: the edge goes along, then up.
    assert_eq!(
        low,
        "M148.0 242.5H284.0L284.0 221.0H420.0L420.0 221.0H692.0L692.0 264.0L420.0 264.0L420.0 264.0\
         L284.0 264.0L284.0 264.0L148.0 264.0Z"
    );
}

/// The picture as rsvg-convert draws it: its width, and red, green and blue of each pixel.
fn rendered(svg: &str) -> (usize, Vec<u8>, Vec<u8>) {
    use std::io::Write;
    let mut renderer = Command::new("rsvg-convert")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("run tests/setup.sh clients first");
    renderer
        .stdin
        .take()
        .unwrap()
        .write_all(svg.as_bytes())
        .unwrap();
    let file = renderer.wait_with_output().unwrap();
    assert!(file.status.success());
    let (width, pixels) = decoded(&file.stdout);
    (width, pixels, file.stdout)
}

fn decoded(file: &[u8]) -> (usize, Vec<u8>) {
    let mut decoder = png::Decoder::new(std::io::Cursor::new(file));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    let width = usize::try_from(info.width).unwrap();
    let samples = info.color_type.samples();
    let rgb = pixels.chunks(samples).flat_map(|pixel| pixel[..3].to_vec());
    (width, rgb.collect())
}

/// The share of blocks of 8 by 8 pixels that differ visibly. Versions of the renderer draw letters
/// a little differently.
fn difference(width: usize, one: &[u8], other: &[u8]) -> f64 {
    assert_eq!(one.len(), other.len(), "the pictures differ in size");
    let mean = |pixels: &[u8], x: usize, y: usize, channel: usize| {
        let places = (0..64).map(|index| ((y + index / 8) * width + x + index % 8) * 3 + channel);
        places.map(|place| f64::from(pixels[place])).sum::<f64>() / 64.0
    };
    let (height, mut blocks, mut differ) = (one.len() / 3 / width, 0.0, 0.0);
    for (x, y) in (0..height / 8).flat_map(|row| (0..width / 8).map(move |x| (x * 8, row * 8))) {
        let apart = |channel| (mean(one, x, y, channel) - mean(other, x, y, channel)).abs();
        blocks += 1.0;
        differ += f64::from(u8::from((0..3).any(|channel| apart(channel) > 12.0)));
    }
    differ / blocks
}

/// The picture that was looked at. UPDATE_GOLDENS=1 replaces it: look at it then.
#[test]
fn the_picture_looks_as_it_did_when_it_was_reviewed() {
    let reviewed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pictures/plot.png");
    let mut figure = figure("llama on GPU 0");
    let (width, pixels, file) = rendered(&draw(&figure));
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::write(&reviewed, &file).unwrap();
    }
    let (_, expected) = decoded(&std::fs::read(&reviewed).unwrap());
    let differ = difference(width, &pixels, &expected);
    assert!(
        differ < 0.01,
        "{differ} of the picture differs from {}",
        reviewed.display()
    );
    // A picture without the limit would be noticed.
    figure.panels[0].segments[0].limit = None;
    let (_, without, _) = rendered(&draw(&figure));
    assert!(difference(width, &without, &expected) > 0.015);
}

#[test]
fn a_name_cannot_break_the_picture() {
    let drawn = draw(&figure("</svg><script>\"&\u{0}\u{1b}"));
    assert_eq!(drawn.matches("</svg>").count(), 1);
    assert!(!drawn.contains("<script>") && !drawn.contains('\u{0}') && !drawn.contains('\u{1b}'));
    assert!(
        drawn.contains("&lt;/svg&gt;&lt;script&gt;&quot;&amp;\u{fffd}\u{fffd}"),
        "{drawn}"
    );
    let long = draw(&figure(&"x".repeat(500)));
    assert!(long.contains(&format!("{}…", "x".repeat(90))) && !long.contains(&"x".repeat(91)));
}
