//! The shipped binary of the hook is static and small.
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
    // The bound is for musl. A hook with glibc is larger; hook/oci/build.sh builds one where musl
    // is not available. The standard library's backtraces take some 140 kB of either.
    let musl = format!("target/{}-unknown-linux-musl/hook", std::env::consts::ARCH);
    let musl = top.join(musl);
    let bound = if musl.exists() { 1172 << 10 } else { 2 << 20 };
    assert!(length <= bound, "{length} bytes");
    let elf = Elf::read(&file).unwrap();
    assert!(!elf.has_loader(), "the hook has a dynamic loader");
    assert_eq!(elf.needed_versions(), Some(Vec::new()));
    // An LD_PRELOAD of the image has no effect on the hook (CVE-2025-23266).
    let mut hook = Command::new(&path);
    hook.env("LD_PRELOAD", "/nowhere/evil.so");
    hook.env("LD_LIBRARY_PATH", "/nowhere");
    let said = patience::output(hook.arg("--version"));
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
}
