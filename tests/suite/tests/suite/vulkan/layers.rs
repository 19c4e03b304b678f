//! Layers between a program and its driver: Khronos' validation, and the overlay MangoHud.
//! Touches: vkcube on an X server without a screen.

use super::others::LavapipeAsNvidias;
use super::{MIB, NO_ROOM, Way, client, take};
use crate::x_server::XServer;
use gpuslice_suite::run::Run;
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::Counted;

const VALIDATION: &str = "VK_LAYER_KHRONOS_validation";
const MANGOHUD: &str = "VK_LAYER_MANGOHUD_overlay";

#[test]
fn a_slice_holds_below_the_validation_layer_and_it_complains_of_nothing() {
    let slice = Counted::new("rtx3090", GIB);
    let layer = "VK_LAYER_KHRONOS_validation";
    let run = slice.run(env!("CARGO_BIN_EXE_client-vulkan"));
    let complaints = slice.machine().folder().join("complaints");
    let file = std::fs::File::create(&complaints).unwrap();
    let run = run.env("VK_INSTANCE_LAYERS", layer).stderr(file);
    let mut vulkan = client(run, Way::Loader);
    vulkan.must("open 0 0 1");
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", vulkan.pid())).unwrap();
    assert!(maps.contains("libVkLayer_khronos_validation.so"), "{maps}");
    // The layer hands out handles of its own.
    assert_eq!(take(&mut vulkan, 1, 600 * MIB), 0);
    assert_eq!(take(&mut vulkan, 2, 600 * MIB), NO_ROOM);
    assert_eq!(super::seen(&mut vulkan).free, GIB - 600 * MIB);
    vulkan.must("free 1");
    vulkan.must("shut 0");
    assert_eq!((slice.held(), slice.counted()), (0, 0));
    vulkan.kill();
    let said = std::fs::read_to_string(&complaints).unwrap();
    let ours = "gpuslice: ";
    assert!(
        said.lines()
            .all(|line| line.contains(ours) && line.contains("refused")),
        "{said}"
    );
}

#[test]
fn a_program_with_layers_in_either_order_draws_in_a_slice_and_nothing_complains() {
    let server = XServer::start();
    let driver = LavapipeAsNvidias::new();
    for layers in [
        String::new(),
        MANGOHUD.to_owned(),
        format!("{MANGOHUD}:{VALIDATION}"),
        format!("{VALIDATION}:{MANGOHUD}"),
    ] {
        let slice = driver.slice(GIB);
        let draw = |run: Run| {
            let run = driver.place(run).args(["--c", "30", "--width", "64"]);
            let run = run
                .env("DISPLAY", &server.display)
                .env("VK_INSTANCE_LAYERS", &layers);
            // What the layers print when they start has the time and the process in it.
            let answer = run.answer();
            assert_eq!(answer.end, "exit 0", "{layers}: {answer:?}");
            answer
        };
        let sliced = draw(slice.run("vkcube"));
        let said = sliced.stdout + &sliced.stderr;
        assert!(!said.contains("gpuslice"), "{layers}: {said}");
        let bare = draw(slice.machine().place(Run::new("vkcube")));
        let complaints = |said: &str| said.matches("VUID").count();
        assert_eq!(
            complaints(&said),
            complaints(&(bare.stdout + &bare.stderr)),
            "{layers}: {said}"
        );
        assert_eq!((slice.refusals().count, slice.counted()), (0, 0));
    }
}

#[test]
fn a_program_that_does_not_fit_is_refused_below_mangohud_too() {
    let driver = LavapipeAsNvidias::new();
    let slice = driver.slice(GIB);
    let run = slice.run(env!("CARGO_BIN_EXE_client-vulkan"));
    let run = driver.place(run).env("MANGOHUD", "1");
    let mut vulkan = gpuslice_suite::worker::Worker::start(run);
    vulkan.must("open 0 0 1");
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", vulkan.pid())).unwrap();
    assert!(maps.contains("libMangoHud.so"), "{maps}");
    assert_eq!(take(&mut vulkan, 1, 600 * MIB), 0);
    assert_eq!(slice.counted(), 600 * MIB);
    assert_eq!(take(&mut vulkan, 2, 600 * MIB), NO_ROOM);
    vulkan.must("free 1");
    assert_eq!(slice.counted(), 0);
}
