//! Pools: they are charged by the memory that they reserve.

use crate::probe::{MIB, Probe, Sim};

fn attributes(process: &mut Probe, pool: &str) -> [u64; 4] {
    [5, 6, 7, 8].map(|attribute| {
        process.ok(&format!("cuMemPoolGetAttribute ${pool} {attribute} @value"));
        process.show("value")
    })
}

#[test]
fn a_pool_charges_what_it_reserves_until_it_is_synchronised() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    let before = process.free();
    process.ok("cuDeviceGetDefaultMemPool @pool 0");
    process.ok(&format!("cuMemAllocAsync @a {MIB} 0"));
    assert_eq!(before - process.free(), 32 * MIB);
    assert_eq!(
        attributes(&mut process, "pool"),
        [32 * MIB, 32 * MIB, MIB, MIB]
    );
    process.ok(&format!("cuMemAllocAsync @b {} 0", 40 * MIB));
    assert_eq!(before - process.free(), 64 * MIB);
    process.ok("cuMemFreeAsync $a 0");
    process.ok("cuMemFreeAsync $b 0");
    assert_eq!(
        before - process.free(),
        64 * MIB,
        "freed in stream order, still reserved"
    );
    process.ok("cuStreamSynchronize 0");
    assert_eq!(process.free(), before);
    assert_eq!(attributes(&mut process, "pool"), [0, 64 * MIB, 0, 41 * MIB]);
}

#[test]
fn a_threshold_keeps_memory_and_a_trim_gives_it_back() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    let before = process.free();
    process.ok("cuDeviceGetDefaultMemPool @pool 0");
    process.ok(&format!("put threshold 8:{}", 1024 * MIB));
    process.ok("cuMemPoolSetAttribute $pool 4 @threshold");
    process.ok(&format!("cuMemAllocAsync @a {} 0", 512 * MIB));
    process.ok("cuMemFreeAsync $a 0");
    process.ok("cuStreamSynchronize 0");
    assert_eq!(before - process.free(), 512 * MIB);
    process.ok(&format!("cuMemPoolTrimTo $pool {}", 100 * MIB));
    assert_eq!(before - process.free(), 100 * MIB);
    process.ok("cuMemPoolTrimTo $pool 0");
    assert_eq!(process.free(), before);
}

#[test]
fn a_pool_of_ones_own_has_its_own_limit_and_twins_do_the_same() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    let before = process.free();
    process.ok(&format!(
        "put props 4:1 4:0 4:1 4:0 8:0 8:{} 8:0 8:0 8:0 8:0",
        64 * MIB
    ));
    process.ok("cuMemPoolCreate @pool @props");
    process.ok(&format!(
        "cuMemAllocFromPoolAsync_ptsz @a {} $pool 0",
        60 * MIB
    ));
    assert_eq!(before - process.free(), 64 * MIB);
    assert_eq!(
        process.call(&format!("cuMemAllocFromPoolAsync @b {} $pool 0", 32 * MIB)),
        2
    );
    process.ok("cuMemFreeAsync_ptsz $a 0");
    process.ok("cuMemPoolDestroy $pool");
    assert_eq!(process.free(), before);
    assert_eq!(process.call("cuMemPoolDestroy $pool"), 1);
}

#[test]
fn a_pool_that_cannot_grow_by_its_step_takes_what_is_left() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with_context();
    let free = process.free();
    assert_eq!(
        process.alloc("a", free / (2 * MIB) * (2 * MIB) - 4 * MIB),
        0
    );
    process.ok(&format!("cuMemAllocAsync @b {} 0", 4 * MIB));
    assert_eq!(
        process.call(&format!("cuMemAllocAsync @c {} 0", 4 * MIB)),
        2
    );
    process.ok("cuMemFree_v2 $b");
    assert_eq!(
        process.call(&format!("cuMemAllocAsync @c {} 0", 4 * MIB)),
        0
    );
}
