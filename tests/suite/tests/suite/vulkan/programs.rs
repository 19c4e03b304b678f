//! Real programs that use Vulkan, unmodified.

use super::by_manifest;
use super::others::LavapipeAsNvidias;
use gpuslice_suite::place;
use gpuslice_suite::run::Run;
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::Counted;

/// The lines that ncnn's client prints itself; ncnn prints more.
fn ncnn(run: Run, opens_driver: bool) -> Vec<String> {
    let run = by_manifest(run).arg(place::source("python/ncnn_memory.py"));
    let run = match opens_driver {
        true => run.env(
            "NCNN_VULKAN_DRIVER",
            place::sim().join("libGLX_nvidia.so.0"),
        ),
        false => run,
    };
    let answer = run.answer();
    assert_eq!(answer.end, "exit 0", "{answer:?}");
    let lines = answer.stdout.lines().map(str::to_owned);
    lines.collect()
}

#[test]
fn ncnn_gets_its_slice_through_the_loader_and_without_it() {
    for opens_driver in [false, true] {
        let slice = Counted::new("rtx3090", GIB);
        let bare = slice.machine().place(Run::new(place::venv("python")));
        assert_eq!(ncnn(bare, opens_driver), ["budget 24259", "blocks 12"]);
        let sliced = slice.run(place::venv("python"));
        // The largest heap, as everywhere a sixteenth smaller than the slice.
        assert_eq!(ncnn(sliced, opens_driver), ["budget 960", "blocks 10"]);
        assert_eq!(slice.refusals().count, 2);
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn llama_cpp_is_told_its_slice_and_is_refused_more() {
    let slice = Counted::new("rtx3090", GIB);
    let folder = place::target().join("ggml-vulkan");
    let client = place::source("python/ggml_vulkan.py");
    let said = |run: Run| {
        let answer = by_manifest(run).arg(&client).arg(&folder).answer();
        assert_eq!(answer.end, "exit 0", "{answer:?}");
        let lines: Vec<String> = answer.stdout.lines().map(str::to_owned).collect();
        (lines, answer.stderr)
    };
    let (bare, _) = said(slice.machine().place(Run::new(place::venv("python"))));
    assert_eq!(bare[2], "buffers 12", "{bare:?}");
    let (sliced, complaints) = said(slice.run(place::venv("python")));
    let expected = [
        "devices 1",
        "free 1024 total 1024",
        "buffers 10",
        "free 24 total 1024",
        "free 1024 total 1024",
    ];
    assert_eq!(sliced, expected);
    assert!(
        complaints.contains("ErrorOutOfDeviceMemory"),
        "{complaints}"
    );
    assert_eq!(slice.refusals().count, 2);
}

/// The number of buffers of 100 MiB that wgpu creates, and why there is no further one.
fn wgpu(driver: &LavapipeAsNvidias, run: Run) -> (u32, String) {
    let answer = driver
        .place(run)
        .arg(place::source("python/wgpu_memory.py"))
        .answer();
    assert_eq!(answer.end, "exit 0", "{answer:?}");
    let mut words = answer.stdout.trim().splitn(3, ' ');
    assert_eq!(words.next(), Some("buffers"), "{answer:?}");
    let count = words.next().unwrap().parse().unwrap();
    (count, words.next().unwrap().to_owned())
}

#[test]
fn wgpu_allocates_in_its_slice_and_is_refused_more() {
    let driver = LavapipeAsNvidias::new();
    let slice = driver.slice(GIB);
    let bare = slice.machine().place(Run::new(place::venv("python")));
    assert_eq!(wgpu(&driver, bare), (12, "none was refused".to_owned()));
    let (count, why) = wgpu(&driver, slice.run(place::venv("python")));
    // wgpu takes larger blocks than the buffers that it puts into them.
    assert!((6..=10).contains(&count), "{count} {why}");
    assert!(why.contains("Not enough memory left"), "{why}");
    assert!(slice.refusals().count > 0);
    assert_eq!(slice.counted(), 0);
}
