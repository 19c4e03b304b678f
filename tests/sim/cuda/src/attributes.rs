//! Device attributes: the scenario's values, and otherwise the values that such devices have.
//! Touches: nothing.

use crate::driver::Driver;
use gpuslice_sim_machine::{Gpu, Mig};

/// The value of an attribute; `None` for a number that is no attribute.
pub(crate) fn value(
    driver: &Driver,
    gpu: &Gpu,
    mig: Option<&Mig>,
    ordinal: i32,
    attribute: i32,
) -> Option<i32> {
    let yes = 1;
    let integrated = i32::from(gpu.integrated);
    let pci = |range: std::ops::Range<usize>| {
        gpu.pci
            .get(range)
            .and_then(|hex| i32::from_str_radix(hex, 16).ok())
            .unwrap_or(0)
    };
    let clock = |mhz: u32| i32::try_from(mhz).unwrap_or(0) * 1000;
    let newer = |major: i32| i32::from(gpu.compute[0] >= major);
    Some(match attribute {
        1..=3 => {
            if attribute == 3 {
                64
            } else {
                1024
            }
        }
        4 => i32::MAX,
        5..=7 => {
            if attribute == 5 {
                i32::MAX
            } else {
                65535
            }
        }
        8 => 49152,
        9 => 65536,
        10 => 32,
        11 => i32::MAX,
        12 => 65536,
        13 => clock(gpu.clocks[0]),
        14 => 512,
        15 => yes,
        16 => mig.map_or(gpu.multiprocessors, |mig| mig.multiprocessors),
        17 | 20 | 35 => 0,
        18 => integrated,
        19 => yes,
        21 => 131_072,
        22 | 27 | 42 | 53 | 55 | 61 | 66 | 67 | 77 => 32768,
        23 => 65536,
        24..=26 => 16384,
        28 | 45 | 46 | 52 | 57..=60 | 62 | 63 | 71 => 32768,
        29 | 43 | 54 | 64 | 65 | 68 => 2048,
        30 => 512,
        31 => yes,
        32 => i32::from(gpu.ecc),
        33 => pci(9..11),
        34 => pci(12..14),
        36 => clock(gpu.clocks[1]),
        37 => gpu.bus_width,
        38 => {
            if gpu.compute[0] >= 9 {
                52_428_800
            } else {
                6_291_456
            }
        }
        39 => {
            if gpu.compute == [8, 6] || gpu.compute == [8, 7] || gpu.compute[0] == 12 {
                1536
            } else {
                2048
            }
        }
        40 => {
            if gpu.integrated {
                2
            } else {
                3
            }
        }
        41 | 44 | 78..=80 | 83 => yes,
        47 | 48 => 0,
        49 | 69 | 70 => 131_072,
        50 => pci(0..8),
        51 => 32,
        56 | 72..=74 => 32768,
        75 => gpu.compute[0],
        76 => gpu.compute[1],
        81 => {
            if gpu.compute[0] >= 9 {
                233_472
            } else {
                102_400
            }
        }
        82 => 65536,
        84 => 0,
        85 => ordinal,
        86 => i32::from(gpu.pageable),
        87 => {
            if gpu.compute[0] == 9 {
                2
            } else {
                32
            }
        }
        88 => i32::from(gpu.pageable),
        89 => i32::from(gpu.pageable || !gpu.integrated),
        90..=95 => yes,
        96 => 0,
        97 => {
            if gpu.compute[0] >= 9 {
                232_448
            } else {
                101_376
            }
        }
        98 => yes,
        99 => i32::from(!gpu.integrated || gpu.pageable),
        100 | 101 => i32::from(gpu.pageable),
        102 | 103 => yes,
        104 | 105 => 0,
        106 => {
            if gpu.compute[0] >= 9 {
                32
            } else {
                16
            }
        }
        107 => i32::from(!gpu.integrated),
        108 => {
            if gpu.integrated {
                0
            } else {
                4_325_376
            }
        }
        109 => 134_217_728,
        110 => i32::from(!gpu.integrated),
        111 => 1024,
        112..=115 => yes,
        116 => i32::from(!gpu.integrated),
        117 => yes,
        118 => 100,
        119 => 1,
        120 => newer(9),
        121..=123 => yes,
        124 => i32::from(!gpu.integrated),
        125 => yes,
        126 => {
            if gpu.compute[0] >= 9 {
                4
            } else {
                1
            }
        }
        127 => newer(9),
        128 => 0,
        129 => yes,
        130 | 132 | 133 => 0,
        131 => -1,
        134 => 0,
        135..=138 => 0,
        139 => (gpu.pci_id >> 16) as i32,
        140 => 0,
        141 | 142 => i32::from(driver.machine.scenario.cuda >= 12000),
        143..=161 => 0,
        _ => return None,
    })
}
