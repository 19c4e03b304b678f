//! OpenGL in a slice: the memory that `GL_NVX_gpu_memory_info` reports. Mesa's driver stands for
//! NVIDIA's: zink has the extension, and a copy of Mesa's libraries has the names of NVIDIA's.
//! Touches: OpenGL programs in slices of simulated machines, an X server without a screen.

use crate::vulkan;
use crate::x_server::XServer;
use gpuslice_suite::run::Run;
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::Counted;
use gpuslice_suite::{compile, place};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder of this machine's libraries.
fn libraries() -> PathBuf {
    let triple = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    PathBuf::from(triple)
}

/// A folder with Mesa's library for EGL, under this name, and the file that names it to libglvnd.
fn vendor(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join(name);
    fs::copy(libraries().join("libEGL_mesa.so.0"), &library).unwrap();
    let json = format!(
        r#"{{"file_format_version":"1.0.0","ICD":{{"library_path":"{}"}}}}"#,
        library.display()
    );
    fs::write(folder.path().join("vendor.json"), json).unwrap();
    folder
}

/// The values that the program prints: KiB by each of the four queries, for each of the five names.
fn values(run: Run, vendor: &Path, library: &str) -> Vec<[u64; 4]> {
    let run = run
        .env("__EGL_VENDOR_LIBRARY_FILENAMES", vendor.join("vendor.json"))
        .env("GALLIUM_DRIVER", "zink")
        .env("LIBGL_ALWAYS_SOFTWARE", "1")
        .env("VK_ICD_FILENAMES", vulkan::others::lavapipe());
    let run = match library {
        "" => run,
        library => run.arg(library),
    };
    let answer = run.answer();
    assert_eq!(answer.end, "exit 0", "{answer:?}");
    let mut lines: Vec<&str> = answer.stdout.lines().collect();
    let other = lines.pop().unwrap();
    assert!(
        other.starts_with("other 1") && other.ends_with("error 0"),
        "{other}"
    );
    let numbers = |line: &&str| {
        let mut words = line.split(' ').skip(1).map(|word| word.parse().unwrap());
        [(); 4].map(|()| words.next().unwrap())
    };
    lines.iter().map(numbers).collect()
}

/// The ways to OpenGL's functions: EGL's own look-up, and libglvnd's libraries.
const LIBRARIES: [&str; 4] = ["", "libOpenGL.so.0", "libGL.so.1", "libGLESv2.so.2"];

#[test]
fn opengl_reports_the_slice_by_every_library_and_query() {
    let nvidia = vendor("libEGL_nvidia.so.0");
    for library in LIBRARIES {
        // Without the extension by which Mesa would report another uuid than the simulated card's, the
        // only listed device counts.
        let listed = json!([{"uuid": "GPU-3090aaaa-1111-4222-8333-444455550000", "memory": GIB}]);
        let slice = Counted::with("rtx3090", &json!({"devices": listed}));
        let bare = slice.machine().place(Run::new(compile::c("opengl")));
        let bare = values(bare, nvidia.path(), library);
        assert!(bare[0][0] >= 2 << 20, "lavapipe's memory: {bare:?}");
        let mut worker = slice.worker();
        worker.must(&format!("alloc 0 {}", GIB / 4));
        let free = worker.free() >> 10;
        let run = slice.run(compile::c("opengl"));
        let run = run.env("MESA_EXTENSION_OVERRIDE", "-GL_EXT_memory_object");
        let sliced = values(run, nvidia.path(), library);
        // A device that the slice does not list.
        let other = values(slice.run(compile::c("opengl")), nvidia.path(), library);
        assert_eq!(other, bare, "{library}");
        let total = GIB >> 10;
        assert_eq!(
            sliced[..3],
            [[total; 4], [total; 4], [free; 4]],
            "{library}"
        );
        // The counts of evictions stay the driver's.
        assert_eq!(sliced[3..], bare[3..], "{library}");
    }
}

#[test]
fn the_opengl_of_other_vendors_is_left_alone() {
    let mesa = vendor("libEGL_mesa.so.0");
    let slice = Counted::new("rtx3090", GIB);
    let sliced = values(slice.run(compile::c("opengl")), mesa.path(), "");
    assert!(sliced[0][0] >= 2 << 20, "{sliced:?}");
}

/// The MiB that glxinfo prints: the card's memory, all memory, and the free memory of the card.
fn glxinfo(run: Run, server: &XServer, folder: &Path) -> [u64; 3] {
    let path = format!("{}:{}", folder.display(), place::sim().display());
    let answer = run
        .arg("-B")
        .env("DISPLAY", &server.display)
        .env("__GLX_VENDOR_LIBRARY_NAME", "nvidia")
        .env("GALLIUM_DRIVER", "zink")
        .env("LIBGL_ALWAYS_SOFTWARE", "1")
        .env("VK_ICD_FILENAMES", vulkan::others::lavapipe())
        .env("LD_LIBRARY_PATH", path)
        .answer();
    assert_eq!(answer.end, "exit 0", "{answer:?}");
    let value = |name: &str| {
        let mut lines = answer.stdout.lines().map(str::trim);
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_suffix(" MB"));
        let value = value.unwrap_or_else(|| panic!("no {name} in {answer:?}"));
        value.trim().parse().unwrap()
    };
    // The lines of another extension come first; these stand below its own.
    [
        "Dedicated video memory:",
        "Total available memory:",
        "Currently available dedicated video memory:",
    ]
    .map(value)
}

#[test]
fn glxinfo_shows_the_slice() {
    let server = XServer::start();
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libGLX_nvidia.so.0");
    fs::copy(libraries().join("libGLX_mesa.so.0"), library).unwrap();
    let slice = Counted::new("rtx3090", GIB);
    let bare = slice.machine().place(Run::new("glxinfo"));
    assert!(glxinfo(bare, &server, folder.path())[0] >= 2048);
    let sliced = glxinfo(slice.run("glxinfo"), &server, folder.path());
    assert_eq!(sliced, [1024; 3]);
}
