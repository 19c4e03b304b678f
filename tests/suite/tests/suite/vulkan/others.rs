//! Drivers of other vendors, and drivers inside drivers.

use super::{MIB, NO_ROOM, Way, client, heaps_of, take};
use gpuslice_suite::compile::compile;
use gpuslice_suite::place;
use gpuslice_suite::run::Run;
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, Worker};
use serde_json::{Value, json};
use std::path::PathBuf;
use tempfile::TempDir;

/// The manifest of Mesa's driver for the processor, as Debian installs it.
pub(crate) fn lavapipe() -> PathBuf {
    let folder = std::fs::read_dir("/usr/share/vulkan/icd.d");
    let files = folder.into_iter().flatten().flatten().map(|it| it.path());
    let named = |it: &PathBuf| it.to_string_lossy().contains("lvp_icd");
    let mut found = files.filter(named);
    found
        .next()
        .unwrap_or_else(|| panic!("no lavapipe: run tests/clients/setup.sh first"))
}

/// Mesa's driver for the processor under the name of NVIDIA's, which the library therefore limits.
pub(crate) struct LavapipeAsNvidias {
    folder: TempDir,
    /// The device's uuid, in NVML's format.
    uuid: String,
}

impl LavapipeAsNvidias {
    pub(crate) fn new() -> LavapipeAsNvidias {
        let manifest = std::fs::read_to_string(lavapipe()).unwrap();
        let mut manifest: Value = serde_json::from_str(&manifest).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let driver = folder.path().join("libGLX_nvidia.so.0");
        let library = manifest["ICD"]["library_path"].as_str().unwrap();
        std::fs::copy(library, &driver).unwrap();
        manifest["ICD"]["library_path"] = driver.to_str().unwrap().into();
        std::fs::write(folder.path().join("icd.json"), manifest.to_string()).unwrap();
        // Mesa makes it of its version.
        let said = Run::new("vulkaninfo")
            .env("VK_ICD_FILENAMES", folder.path().join("icd.json"))
            .answer();
        let mut lines = said.stdout.lines().map(str::trim);
        let uuid = lines.find_map(|line| line.strip_prefix("deviceUUID")?.split("= ").nth(1));
        let uuid = format!(
            "GPU-{}",
            uuid.unwrap_or_else(|| panic!("no uuid: {said:?}"))
        );
        LavapipeAsNvidias { folder, uuid }
    }

    /// A slice of this device.
    pub(crate) fn slice(&self, memory: u64) -> Counted {
        let listed = json!([{"uuid": self.uuid, "memory": memory}]);
        Counted::with("rtx3090", &json!({"devices": listed}))
    }

    /// A program that finds this driver and no other.
    pub(crate) fn place(&self, run: Run) -> Run {
        let manifest = self.folder.path().join("icd.json");
        run.env("VK_ICD_FILENAMES", &manifest)
            .env("VK_DRIVER_FILES", manifest)
            .env("XDG_RUNTIME_DIR", self.folder.path())
    }
}

fn on_lavapipe(run: Run) -> Worker {
    let run = run
        .env("VK_ICD_FILENAMES", lavapipe())
        .env("VK_DRIVER_FILES", lavapipe());
    Worker::start(run)
}

#[test]
fn another_vendors_device_is_left_alone() {
    let slice = Counted::new("rtx3090", 64 * MIB);
    let program = env!("CARGO_BIN_EXE_client-vulkan");
    let mut bare = on_lavapipe(slice.machine().place(Run::new(program)));
    let mut sliced = on_lavapipe(slice.run(program));
    let said = [&mut bare, &mut sliced].map(|it| {
        let said = it.ask("heaps 0");
        // Mesa has VK_EXT_memory_budget from 23.1 on; its numbers are the whole machine's.
        [said[0], said[1], said[2]]
    });
    assert_eq!(said[0], said[1]);
    sliced.must("open 0 0 1");
    sliced.must(&format!("take 1 {} 0 0 1 0", 256 * MIB));
    assert_eq!(slice.counted(), 0);
    sliced.must("free 1");
    sliced.must("shut 0");
}

#[test]
fn a_program_without_a_slice_sees_the_card() {
    let slice = Counted::new("rtx3090", GIB);
    let program = env!("CARGO_BIN_EXE_client-vulkan");
    let run = |with: bool| match with {
        true => slice.machine().place(Run::new(program)).with_shim(),
        false => slice.machine().place(Run::new(program)),
    };
    let said = [false, true].map(|with| heaps_of(&mut client(run(with), Way::Loader), 0));
    assert_eq!(said[0], said[1]);
}

/// A driver that passes every call on to the simulated one, in a file of this name.
fn wrapper(name: &str) -> PathBuf {
    let words = ["-shared", "-fPIC", "-ldl"];
    compile("cc", "c/vulkan_wrapper.c", name, &words)
}

#[test]
fn a_driver_inside_a_driver_is_charged_once() {
    for name in ["libvulkan_wrapper.so", "libEGL_nvidia.so.0"] {
        let slice = Counted::new("rtx3090", GIB);
        let driver = wrapper(name);
        let run = slice.run(env!("CARGO_BIN_EXE_client-vulkan")).arg(driver);
        let inner = place::sim().join("libGLX_nvidia.so.0");
        let mut vulkan = Worker::start(run.env("GPUSLICE_WRAPPED", inner));
        vulkan.must("open 0 0 1");
        assert_eq!(take(&mut vulkan, 1, 600 * MIB), 0, "{name}");
        assert_eq!(
            (slice.held(), slice.counted()),
            (600 * MIB, 600 * MIB),
            "{name}"
        );
        assert_eq!(take(&mut vulkan, 2, 600 * MIB), NO_ROOM, "{name}");
        assert_eq!(super::seen(&mut vulkan).free, GIB - 600 * MIB, "{name}");
        vulkan.must("free 1");
        assert_eq!((slice.held(), slice.counted()), (0, 0), "{name}");
    }
}
