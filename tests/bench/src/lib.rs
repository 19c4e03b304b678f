//! Measures variants side by side (medians and differences), and counts instructions, system calls
//! and page faults, which tests compare with stored numbers.
//! Touches: the clock, the built artefacts, valgrind, ptrace. Times are never asserted, because
//! machines are noisy.
#![expect(
    clippy::expect_used,
    reason = "a bench that cannot start says why and stops"
)]
#![expect(clippy::print_stdout, reason = "the result of a bench is its output")]

pub mod budgets;
pub mod callgrind;
pub mod start;
pub mod stub;

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A thing to be measured, by name.
pub struct Variant<'a> {
    /// What the table calls it.
    pub name: &'a str,
    /// One unit of work.
    pub work: Box<dyn FnMut() + 'a>,
}

impl<'a> Variant<'a> {
    /// Names a piece of work.
    pub fn new(name: &'a str, work: impl FnMut() + 'a) -> Variant<'a> {
        Variant {
            name,
            work: Box::new(work),
        }
    }
}

/// Runs every variant `batch` times in turn, `rounds` times over, and prints the median time of
/// one unit of work, what it adds to the first variant, and the ratio.
pub fn compare(title: &str, rounds: usize, batch: u32, variants: &mut [Variant<'_>]) {
    let mut times = vec![Vec::with_capacity(rounds); variants.len()];
    for _ in 0..rounds {
        for (variant, times) in variants.iter_mut().zip(&mut times) {
            let start = Instant::now();
            for _ in 0..batch {
                black_box(&mut variant.work)();
            }
            times.push(start.elapsed().checked_div(batch).unwrap_or(Duration::MAX));
        }
    }
    println!("\n{title} ({rounds} rounds of {batch}, interleaved)");
    let mut first = None;
    for (variant, times) in variants.iter().zip(&mut times) {
        times.sort_unstable();
        let median = nanoseconds(times, 50);
        let bare = *first.get_or_insert(median);
        println!(
            "  {:<44} median {:>10.1} ns  p25 {:>10.1}  added {:>9.1}  ratio {:.2}",
            variant.name,
            median,
            nanoseconds(times, 25),
            median - bare,
            median / bare,
        );
    }
}

fn nanoseconds(sorted: &[Duration], percent: usize) -> f64 {
    let place = sorted.len().saturating_mul(percent).checked_div(100);
    let time = place.and_then(|place| sorted.get(place));
    time.map_or(f64::NAN, |time| time.as_secs_f64() * 1e9)
}

/// The folder of the built artefacts.
///
/// # Panics
/// When nothing has been built.
#[must_use]
pub fn target() -> PathBuf {
    let named = std::env::var_os("GPUSLICE_TARGET").map(PathBuf::from);
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let target = named.unwrap_or_else(default);
    target
        .canonicalize()
        .ok()
        .filter(|target| target.join("release/libgpuslice.so").exists())
        .expect("run make first")
}
