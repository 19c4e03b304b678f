//! The picture of the handbook: a run of `gpuslice top`, drawn from the terminal emulator.
//! Touches: packaging/handbook/src/top.svg (`make picture`).
#![expect(clippy::arithmetic_side_effects, reason = "places on a small picture")]

use super::session::{HERE, Session, top};
use crate::support::machine::{Machine, end};
use crate::support::start;
use std::fmt::Write;
use std::path::Path;
use std::process::{Child, Stdio};

/// Allocates device memory step by step up to an amount in MiB, and then what does not fit.
const SERVES: &str = "
import ctypes, sys, time
most, refused = int(sys.argv[1]), int(sys.argv[2])
cuda = ctypes.CDLL('libcuda.so.1')
assert cuda.cuInit(0) == 0
context = ctypes.c_void_p()
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
def take(mib):
    return cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(mib << 20))
print('started', flush=True)
for step in range(12):
    assert take(most // 12) == 0
    time.sleep(0.5)
for step in range(refused):
    assert take(1 << 20) != 0
    time.sleep(0.5)
sys.stdin.read()
";

const SIZE: (u16, u16) = (126, 9);

#[test]
#[ignore = "draws packaging/handbook/src/top.svg: make picture"]
fn draws_the_picture_of_the_handbook() {
    let machine = Machine::new(&HERE, "rtx3090");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("serve.py"), SERVES).unwrap();
    let slices = [
        ("llama", "12GiB", "11200", "2"),
        ("qwen", "8GiB", "5400", "0"),
        ("embed", "2GiB", "600", "0"),
    ];
    let start = |(name, memory, most, refused): (&str, &str, &str, &str)| {
        let options = [format!("--memory={memory}"), format!("--name={name}")];
        let options = options.each_ref().map(String::as_str);
        // The command line has no folders of this machine.
        let script = format!("exec -a python3 /usr/bin/python3 serve.py {most} {refused}");
        let mut command = machine.run_command(&options, &["bash", "-c", &script]);
        command.current_dir(folder.path());
        start(command.stdin(Stdio::piped())).0
    };
    let children: Vec<Child> = slices.into_iter().map(start).collect();
    let mut top = Session::start(&mut top(&machine.home, &["--interval=0.5"]), SIZE);
    top.shows("2 +2");
    // The history has the growth and what came after it.
    let now = std::time::Instant::now();
    top.until("some seconds are over", |_| now.elapsed().as_secs() >= 4);
    let picture = drawn(top.emulator());
    top.press("q");
    assert_eq!(top.end(), 0);
    children.into_iter().for_each(end);
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/handbook/src/top.svg");
    std::fs::write(place, picture).unwrap();
}

const STYLE: &str = "text{font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',\
    monospace;fill:#c9d1d9;white-space:pre}.c1{fill:#ff7b72}.c2{fill:#7ee787}.c3{fill:#e3b341}\
    .c6{fill:#79c0ff}.b{font-weight:700}.d{opacity:.6}.r{fill:#161b22}";

/// Draws a screen as SVG, in the style of tests/demo/picture.py.
fn drawn(screen: &vt100::Screen) -> String {
    let (lines, columns) = (SIZE.1, SIZE.0);
    let (advance, pitch, margin, bar) = (8.43, 19, 18, 34);
    let width = f64::from(columns) * advance + 36.0;
    let height = bar + i32::from(lines) * pitch + margin;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height}\" \
         width=\"{width:.0}\" height=\"{height}\" role=\"img\">\n\
         <title>gpuslice top: three slices of one card</title>\n<style>{STYLE}</style>\n\
         <rect width=\"{width:.0}\" height=\"{height}\" rx=\"8\" fill=\"#161b22\"/>\n"
    );
    for (x, colour) in [(20, "#ff5f58"), (40, "#ffbd2e"), (60, "#18c132")] {
        writeln!(
            svg,
            "<circle cx=\"{x}\" cy=\"18\" r=\"6\" fill=\"{colour}\"/>"
        )
        .unwrap();
    }
    for line in 0..lines {
        let y = bar + (i32::from(line) + 1) * pitch - 5;
        let mut column = 0;
        while column < columns {
            let cell = screen.cell(line, column).unwrap();
            let class = class(cell);
            let mut text = String::new();
            let first = column;
            while let Some(cell) = screen
                .cell(line, column)
                .filter(|cell| self::class(cell) == class)
            {
                text.push_str(if cell.has_contents() {
                    cell.contents()
                } else {
                    " "
                });
                column += 1;
            }
            let x = 18.0 + f64::from(first) * advance;
            let length = f64::from(column - first) * advance;
            if cell.inverse() {
                let top = y - 14;
                writeln!(svg, "<rect x=\"{x:.1}\" y=\"{top}\" width=\"{length:.1}\" height=\"{pitch}\" fill=\"#c9d1d9\"/>").unwrap();
            } else if text.trim().is_empty() {
                continue;
            }
            // Each word has its own place, whatever the font and its blanks are.
            let mut at = 0;
            for word in text.split_inclusive(' ') {
                let place = x + f64::from(at) * advance;
                at += i32::try_from(word.chars().count()).unwrap();
                let word = word.trim_end();
                let length = word.chars().count() as f64 * advance;
                let word = word.replace('&', "&amp;").replace('<', "&lt;");
                if !word.is_empty() {
                    writeln!(
                        svg,
                        "<text x=\"{place:.1}\" y=\"{y}\" textLength=\"{length:.1}\" \
                         class=\"{class}\">{word}</text>"
                    )
                    .unwrap();
                }
            }
        }
    }
    svg + "</svg>\n"
}

/// The classes of a cell in the style.
fn class(cell: &vt100::Cell) -> String {
    let mut class = match (cell.inverse(), cell.fgcolor()) {
        (true, _) => "r".to_owned(),
        (false, vt100::Color::Idx(colour)) => format!("c{colour}"),
        (false, _) => String::new(),
    };
    if cell.bold() {
        class.push_str(" b");
    }
    if cell.dim() {
        class.push_str(" d");
    }
    class.trim().to_owned()
}
