//! What a process pays for a preload that it never needs: `/bin/true`, started again and again.
//! Touches: the built shim, an empty library as the floor of any preload, and the library that
//! GPUSLICE_BENCH_PEER names, if any.
#![expect(
    clippy::expect_used,
    reason = "a bench that cannot start says why and stops"
)]

use gpuslice_bench::{Variant, compare, target};
use std::path::Path;
use std::process::Command;

fn start(preload: Option<&Path>) {
    let mut command = Command::new("/bin/true");
    command.env_clear();
    if let Some(library) = preload {
        command.env("LD_PRELOAD", library);
    }
    let status = command.status().expect("/bin/true runs");
    assert!(status.success());
}

fn main() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let empty = folder.path().join("empty.so");
    let source = folder.path().join("empty.c");
    std::fs::write(&source, "").expect("the source is written");
    let built = Command::new("cc")
        .args(["-shared", "-nostdlib", "-Wl,-z,noseparate-code", "-o"])
        .args([&empty, &source])
        .status()
        .expect("cc runs");
    assert!(built.success());
    let shim = target().join("release/libgpuslice.so");
    let peer = std::env::var_os("GPUSLICE_BENCH_PEER");
    let mut variants = vec![
        Variant::new("no preload", || start(None)),
        Variant::new("an empty library (the floor of any preload)", || {
            start(Some(&empty));
        }),
        Variant::new("libgpuslice.so", || start(Some(&shim))),
    ];
    if let Some(peer) = &peer {
        variants.push(Variant::new("GPUSLICE_BENCH_PEER", || {
            start(Some(Path::new(peer)));
        }));
    }
    compare("process start of /bin/true", 2000, 1, &mut variants);
}
