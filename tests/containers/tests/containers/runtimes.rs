//! A container with an annotation gets its slice from every runtime and at every stage.

use gpuslice_containers::bundle::Oci;
use gpuslice_containers::engine::Engine;
use gpuslice_containers::host::Host;
use gpuslice_containers::podman::Podman;
use gpuslice_containers::ready::ready;
use gpuslice_containers::slice::{GIB, assert_nothing_left, assert_sliced, assert_unsliced};
use gpuslice_containers::spec::Spec;

const STAGES: [&str; 3] = ["prestart", "createRuntime", "createContainer"];

/// Runs two containers at once, each with its own slice, with exec and restart. One has a read-only
/// root. A third has no annotation. At the end no state is left.
pub(crate) fn keeps_its_promises(host: &Host, engine: &mut dyn Engine) {
    let one = engine.start(&Spec::new("one").memory("8GiB"));
    let one = one.unwrap_or_else(|done| panic!("{}: {done:?}", engine.name()));
    let mut two = Spec::new("two").memory("3GiB");
    two.read_only = true;
    let two = engine.start(&two);
    let two = two.unwrap_or_else(|done| panic!("{}: {done:?}", engine.name()));
    assert_sliced(engine, &one, 8 * GIB);
    assert_sliced(engine, &two, 3 * GIB);
    // A process that is started in the container later is in the slice, too.
    assert_sliced(engine, &one, 8 * GIB);
    engine.restart(&one);
    assert_sliced(engine, &one, 8 * GIB);
    assert_sliced(engine, &two, 3 * GIB);
    engine.remove(&one);
    engine.remove(&two);
    assert_nothing_left(host);

    let bare = engine.start(&Spec::new("bare")).expect("it starts");
    assert_unsliced(engine, &bare);
    engine.remove(&bare);
    assert_nothing_left(host);
}

#[test]
fn runc_at_every_stage() {
    if ready() {
        let host = Host::new();
        for stage in STAGES {
            keeps_its_promises(&host, &mut Oci::new(&host, "runc", stage));
        }
    }
}

#[test]
fn crun_at_every_stage() {
    if ready() {
        let host = Host::new();
        for stage in STAGES {
            keeps_its_promises(&host, &mut Oci::new(&host, "crun", stage));
        }
    }
}

#[test]
fn podman_at_every_stage_with_both_runtimes() {
    if ready() {
        let host = Host::new();
        for runtime in ["runc", "crun"] {
            let mut podman = Podman::new(&host, runtime, STAGES[0]);
            for stage in STAGES {
                podman.hooks_d(stage);
                keeps_its_promises(&host, &mut podman);
            }
        }
    }
}
