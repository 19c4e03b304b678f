//! The binary that is shipped: static and small.
//! Touches: target/release/gpuslice-hook, which `make` builds.

use crate::support::patience;
use gpuslice_host::base::elf::Elf;
use std::fs::File;
use std::path::Path;
use std::process::Command;

#[test]
fn the_hook_is_static_and_small() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = top.join("target/release/gpuslice-hook");
    let file = File::open(&path)
        .unwrap_or_else(|error| panic!("{}: {error} (run make first)", path.display()));
    let length = file.metadata().unwrap().len();
    // The bound is musl's; glibc, which hook/oci/build.sh takes where that cannot be had, is larger.
    // Some 140 kB of either are the standard library's backtraces.
    let musl = format!("target/{}-unknown-linux-musl/hook", std::env::consts::ARCH);
    let musl = top.join(musl);
    let bound = if musl.exists() { 17 << 16 } else { 2 << 20 };
    assert!(length <= bound, "{length} bytes");
    let elf = Elf::read(&file).unwrap();
    assert!(!elf.has_loader(), "it asks for a dynamic loader");
    assert_eq!(elf.needed_versions(), Some(Vec::new()));
    // An image's LD_PRELOAD says nothing to it (CVE-2025-23266).
    let mut hook = Command::new(&path);
    hook.env("LD_PRELOAD", "/nowhere/evil.so");
    hook.env("LD_LIBRARY_PATH", "/nowhere");
    let said = patience::output(hook.arg("--version"));
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
}
