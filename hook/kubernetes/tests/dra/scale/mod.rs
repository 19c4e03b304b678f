//! Clusters of many simulated nodes, with the driver's own code on each: random claims, and the load
//! on the API server.
//! Touches: temporary folders, mounts of a namespace of its own, child processes, sockets.

mod containers;
mod node;
mod publishing;
mod random;
mod scheduler;
mod steps;
mod watcher;
mod world;

use crate::scale::world::World;
use std::time::Instant;

/// The processor time of this thread and of the children that it has waited for, in seconds.
fn processor_time() -> f64 {
    let of = |who| {
        // SAFETY: all bytes zero is a valid rusage.
        let mut used: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `used` is a rusage that the call may write to.
        assert_eq!(unsafe { libc::getrusage(who, &raw mut used) }, 0);
        let seconds = |time: libc::timeval| {
            f64::from(i32::try_from(time.tv_sec).unwrap())
                + f64::from(i32::try_from(time.tv_usec).unwrap()) / 1e6
        };
        seconds(used.ru_utime) + seconds(used.ru_stime)
    };
    of(libc::RUSAGE_SELF) + of(libc::RUSAGE_CHILDREN)
}

/// A number from the environment, or else another.
fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

fn random_claims(nodes: usize, claims: usize, real: usize) {
    let (before, start) = (processor_time(), Instant::now());
    let seed = setting("GPUSLICE_CLAIMS_SEED", 20_261_124);
    // A namespace of mounts belongs to a thread, and ends with it.
    let run = move || {
        let mut world = World::new(seed, nodes, real);
        let begun = processor_time();
        world.run(claims);
        println!(
            "start {:.1} s, claims {:.1} s",
            begun - before,
            processor_time() - begun
        );
        world.ends();
        world.summary()
    };
    let thread = std::thread::Builder::new().name("claims".to_owned());
    let summary = thread.spawn(run).unwrap().join().unwrap();
    println!(
        "{summary}; seed {seed}, {:.1} s, processor time {:.1} s",
        start.elapsed().as_secs_f64(),
        processor_time() - before
    );
}

#[test]
fn random_claims_are_never_overcommitted_or_leaked() {
    random_claims(100, 400, 12);
}

#[test]
#[ignore = "minutes of processor time: make claims"]
fn ten_thousand_random_claims_are_never_overcommitted_or_leaked() {
    random_claims(100, 10_000, 12);
}
