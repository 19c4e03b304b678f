//! The law of a slice, with CUDA, Vulkan and OpenCL at once and processes that are killed at any moment:
//! the slice never holds more than its limit, and nothing stays charged.

use super::{MIB, WAYS, opened, seen};
use crate::opencl;
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

/// The APIs by which a process allocates.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Api {
    Cuda,
    Vulkan,
    OpenCl,
}

/// The programs: each API twice, Vulkan and OpenCL with their loaders and without.
const PROGRAMS: [(Api, usize); 6] = [
    (Api::Cuda, 0),
    (Api::Cuda, 1),
    (Api::Vulkan, 0),
    (Api::Vulkan, 1),
    (Api::OpenCl, 0),
    (Api::OpenCl, 1),
];

/// A process of one API, and the number of its allocations.
struct Program {
    worker: Worker,
    held: u64,
    api: Api,
}

impl Program {
    fn start(slice: &Counted, place: usize) -> Program {
        let (api, way) = PROGRAMS[place];
        let worker = match api {
            Api::Cuda => slice.worker(),
            Api::Vulkan => opened(slice, WAYS[way]),
            Api::OpenCl => opencl::worker(slice, ["libOpenCL.so.1", "icd"][way]),
        };
        Program {
            worker,
            held: 0,
            api,
        }
    }

    fn allocation(&self, bytes: u64) -> String {
        match self.api {
            Api::Cuda => format!("alloc {} {bytes}", self.held),
            Api::Vulkan => format!("take {} {bytes} 0 0 1 0", self.held),
            Api::OpenCl => format!("buffer {} {bytes}", self.held),
        }
    }

    /// Releases its last allocation.
    fn release(&mut self) {
        self.held -= 1;
        let operation = match self.api {
            Api::Cuda | Api::Vulkan => "free",
            Api::OpenCl => "release",
        };
        self.worker.must(&format!("{operation} {}", self.held));
    }
}

#[test]
fn cuda_vulkan_and_opencl_never_hold_more_than_the_slice_together() {
    const LIMIT: u64 = 3 * GIB;
    for scenario in ["rtx3090", "gb10"] {
        let slice = Counted::new(scenario, LIMIT);
        let mut numbers = Numbers(7);
        let all = 0..PROGRAMS.len();
        let mut programs: Vec<Program> = all.map(|it| Program::start(&slice, it)).collect();
        let (mut granted, mut refused) = (0, 0);
        for round in 0..300 {
            let place = usize::try_from(numbers.below(PROGRAMS.len() as u64)).unwrap();
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
                1..4 if program.held > 0 => program.release(),
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

#[test]
fn each_api_sees_what_the_others_have_taken_on_every_machine() {
    for scenario in ["rtx3090", "h200", "gb10", "thor", "orin", "n1x"] {
        let slice = Counted::new(scenario, 4 * GIB);
        let mut cuda = slice.worker();
        let mut vulkan = opened(&slice, WAYS[0]);
        let mut opencl = opencl::worker(&slice, "icd");
        let mut free = |vulkan: &mut Worker| {
            let free = cuda.free();
            assert_eq!(cuda.nvml()[0], free, "{scenario}");
            assert_eq!(seen(vulkan).free, free, "{scenario}");
            free
        };
        let before = free(&mut vulkan);
        vulkan.must(&format!("take 0 {} 0 0 1 0", 512 * MIB));
        assert_eq!(before - free(&mut vulkan), 512 * MIB, "{scenario}");
        opencl.must(&format!("buffer 0 {}", 256 * MIB));
        assert_eq!(before - free(&mut vulkan), 768 * MIB, "{scenario}");
        vulkan.must("free 0");
        opencl.must("release 0");
        assert_eq!(free(&mut vulkan), before, "{scenario}");
    }
}
