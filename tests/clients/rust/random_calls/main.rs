//! Makes random calls of the GPU's libraries, and logs every code and every byte that comes back.
//! The differential test (`tests/suite/tests/suite/differential/`) compares the log of a program
//! without a slice with that of a program in one.
//! Touches: the driver's libraries, in a child process for each sequence.
//! Law: a sequence depends on its seed and on the answers of the driver, and on nothing else.
//!
//! Usage: random-calls SEED COUNT LENGTH [STEP...]
//! Runs COUNT sequences of LENGTH calls, from the seed SEED on. If steps are given, the sequences
//! have only these.

mod arguments;
mod cuda;
mod libraries;
mod nvml;
mod opencl;
mod rng;
mod runtime;
mod vulkan;
mod world;

use libraries::Libraries;
use rng::Rng;
use world::World;

/// The time that a sequence may take. A call that hangs ends it.
const PATIENCE: u32 = 20;

type Act = fn(&mut World<'_>);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = || arguments.next().and_then(|text| text.parse::<u64>().ok());
    let (Some(seed), Some(count), Some(length)) = (number(), number(), number()) else {
        eprintln!("usage: random-calls SEED COUNT LENGTH [STEP...]");
        std::process::exit(125);
    };
    let steps: Vec<u64> = std::iter::from_fn(number).collect();
    let libraries = Libraries::open();
    for seed in seed..seed + count {
        println!("sequence {seed}");
        // SAFETY: this process has one thread.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: alarm only sets a timer.
                unsafe { libc::alarm(PATIENCE) };
                play(&libraries, seed, length, &steps);
                // SAFETY: ends this process without the parent's exit handlers.
                unsafe { libc::_exit(0) };
            }
            child => {
                let mut status = 0;
                // SAFETY: waits for our own child; the status is a place for an int.
                unsafe { libc::waitpid(child, &raw mut status, 0) };
                println!("end {seed}: status {status:#x}");
            }
        }
    }
}

fn play(libraries: &Libraries, seed: u64, length: u64, steps: &[u64]) {
    let acts = acts(seed);
    let total: usize = acts.iter().map(|(weight, _)| weight).sum();
    let mut world = World::new(libraries);
    for step in 0..length {
        if !steps.is_empty() && !steps.contains(&step) {
            continue;
        }
        world.rng = Rng::of(seed, step);
        world.say(&format!("step {step}"));
        if step == 0 && world.rng.percent(95) {
            cuda::contexts::begin(&mut world);
            nvml::begin(&mut world);
            continue;
        }
        let mut at = world.rng.below(total);
        let chosen = acts.iter().find(|(weight, _)| {
            let is_here = at < *weight;
            at = at.saturating_sub(*weight);
            is_here
        });
        if let Some((_, act)) = chosen {
            act(&mut world);
        }
    }
    world.say("step last");
    world.rng = Rng::of(seed, length);
    vulkan::end(&mut world);
    opencl::end(&mut world);
    cuda::end::release(&mut world);
}

/// The calls of a sequence. Some sequences use more libraries than CUDA's.
fn acts(seed: u64) -> Vec<(usize, Act)> {
    let mut acts = cuda::acts();
    acts.extend(nvml::acts());
    match seed % 8 {
        0 | 1 => acts.extend(runtime::acts()),
        2 => acts.extend(vulkan::acts()),
        3 => acts.extend(opencl::acts()),
        _ => {}
    }
    acts
}
