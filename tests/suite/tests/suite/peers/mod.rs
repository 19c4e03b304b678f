//! Defects that users of other GPU-slicing preloads have seen and reported. Each is a test here, on
//! the simulated driver, whose comment describes the defect.
//! Touches: workers and small C programs in slices, with and without a ledger.

mod allocations;
mod closed;
mod enforced;
mod limits;
mod manners;
mod numbers;
mod overwritten;
mod processes;

use gpuslice_suite::run::{Answer, Machine, Run};
use gpuslice_suite::slice::{GIB, of_all_devices};
use std::path::Path;

const MIB: u64 = 1 << 20;
/// The memory of an RTX 3090 as CUDA reports it, and the size of a context on it.
const CARD: u64 = 25_438_126_080;
const CONTEXT: u64 = 254 * MIB;

/// Runs a program on a new RTX 3090, in a slice of 8 GiB.
fn in_a_slice(program: &Path) -> Answer {
    let machine = Machine::new("rtx3090");
    let file = of_all_devices(machine.folder(), 8 * GIB, &machine.state());
    let run = machine.place(Run::new(program));
    run.with_shim().slice(&file).answer()
}

/// Runs the program on a bare card.
fn bare(program: &Path) -> Answer {
    Machine::new("rtx3090").place(Run::new(program)).answer()
}

/// The numbers that follow this name in a program's output.
fn numbers(said: &str, name: &str) -> Vec<u64> {
    let words = said.split_whitespace();
    let pairs = words.filter_map(|word| word.split_once('='));
    let values = pairs.filter(|pair| pair.0 == name);
    values.map(|pair| pair.1.parse().unwrap()).collect()
}
