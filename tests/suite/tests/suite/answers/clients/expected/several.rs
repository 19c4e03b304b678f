//! Two cards in one machine, of one kind and of two kinds: each gives the answers that it
//! gives alone.
//! Touches: nothing.

use super::{Answers, H200, RTX3090, Scenario};

/// Each in a slice of 8 GiB.
pub fn two_h200() -> Scenario {
    beside("2xh200", &H200, &H200)
}

/// Each in a slice of 8 GiB.
pub fn rtx3090_and_h200() -> Scenario {
    beside("rtx3090+h200", &RTX3090, &H200)
}

/// A machine with the cards of two machines.
fn beside(name: &'static str, first: &Scenario, second: &Scenario) -> Scenario {
    assert_eq!((first.slice, first.cuda), (second.slice, second.cuda));
    Scenario {
        name,
        slice: first.slice,
        cuda: first.cuda,
        integrated: None,
        mig: None,
        bare: both(&first.bare, &second.bare),
        sliced: both(&first.sliced, &second.sliced),
        counted: None,
    }
}

fn both(first: &Answers, second: &Answers) -> Answers {
    Answers {
        cuda: kept(first.cuda.to_owned() + &next(first.cuda, second.cuda)),
        nvml: kept(first.nvml.to_owned() + &next(first.nvml, second.nvml)),
        // These ask the first card.
        threads: first.threads,
        both: first.both,
        nvitop: kept(first.nvitop.to_owned() + second.nvitop),
        gpustat: kept(in_columns(first.gpustat, second.gpustat)),
    }
}

/// The answers for the second card: the end of a simulated UUID counts the cards of one kind.
fn next(first: &str, second: &str) -> String {
    match first == second {
        true => second.replace("0000 ", "0001 "),
        false => second.to_owned(),
    }
}

/// gpustat numbers the cards, and pads their names to one width.
fn in_columns(first: &str, second: &str) -> String {
    let width = |line: &str| line.split_once(" |").unwrap().0.len();
    let width = width(first).max(width(second));
    let second = second.replace("[0]", "[1]");
    let padded = |line: &str| {
        let (name, rest) = line.split_once(" |").unwrap();
        format!("{name:width$} |{rest}")
    };
    padded(first) + &padded(&second)
}

/// Leaks a text so that it is static, because the other scenarios are constants.
fn kept(text: String) -> &'static str {
    text.leak()
}
