//! The law of a slice, with CUDA and Vulkan at once and processes that are killed at any moment: the
//! slice never holds more than its limit, and nothing stays charged.

use super::{MIB, WAYS, opened, seen};
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, Worker};

/// Numbers that are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % most
    }
}

/// A process of CUDA or of Vulkan, and the number of its allocations.
struct Program {
    worker: Worker,
    held: u64,
    is_cuda: bool,
}

impl Program {
    fn start(slice: &Counted, place: usize) -> Program {
        let is_cuda = place < 2;
        let worker = match is_cuda {
            true => slice.worker(),
            false => opened(slice, WAYS[place % 2]),
        };
        Program {
            worker,
            held: 0,
            is_cuda,
        }
    }

    fn allocation(&self, bytes: u64) -> String {
        match self.is_cuda {
            true => format!("alloc {} {bytes}", self.held),
            false => format!("take {} {bytes} 0 0 1 0", self.held),
        }
    }
}

#[test]
fn cuda_and_vulkan_never_hold_more_than_the_slice_together() {
    const LIMIT: u64 = 3 * GIB;
    for scenario in ["rtx3090", "gb10"] {
        let slice = Counted::new(scenario, LIMIT);
        let mut numbers = Numbers(7);
        let mut programs: Vec<Program> = (0..5).map(|it| Program::start(&slice, it)).collect();
        let (mut granted, mut refused) = (0, 0);
        for round in 0..300 {
            let place = usize::try_from(numbers.below(5)).unwrap();
            let program = &mut programs[place];
            let line = program.allocation((numbers.below(150) + 1) * 2 * MIB);
            match numbers.below(10) {
                0 => {
                    // Killed in the call, or soon after it.
                    program.worker.send(0, &line);
                    let killed = programs.remove(place).worker;
                    let pid = killed.pid();
                    killed.kill();
                    // Only processes that have asked for memory are in the ledger.
                    let others = slice.records().iter().filter(|it| it.pid != pid).count();
                    slice.buried(others);
                    programs.insert(place, Program::start(&slice, place));
                }
                1..4 if program.held > 0 => {
                    program.held -= 1;
                    let number = program.held;
                    program.worker.must(&format!("free {number}"));
                }
                _ if program.worker.code(&line) == 0 => {
                    program.held += 1;
                    granted += 1;
                }
                _ => refused += 1,
            }
            let (held, counted) = (slice.held(), slice.counted());
            assert!(held <= LIMIT, "{scenario} {round}: {held}");
            assert_eq!(held, counted, "{scenario} {round}");
        }
        assert!(granted > 50 && refused > 10, "{granted} {refused}");
        let free = programs[0].worker.free();
        assert_eq!(seen(&mut programs[2].worker).free, free, "{scenario}");
        for program in programs {
            program.worker.kill();
        }
        slice.buried(0);
        assert_eq!((slice.held(), slice.counted()), (0, 0), "{scenario}");
    }
}
