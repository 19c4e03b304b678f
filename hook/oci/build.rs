//! Keeps the static hook small.
//! Touches: the linker's arguments.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    if is("CARGO_CFG_TARGET_ENV", "musl") && is("CARGO_CFG_TARGET_ARCH", "x86_64") {
        // 45 KiB of relocations become 1: musl reads both kinds.
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
        println!("cargo:rustc-link-arg-bins=-Wl,-z,noseparate-code");
        // The folder of now, not of when this file was compiled: a checkout may be moved.
        let folder = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        let script = format!("{folder}/no-unwinding.ld");
        println!("cargo:rerun-if-changed={script}");
        println!("cargo:rustc-link-arg-bins=-Wl,--no-eh-frame-hdr,-T,{script}");
    }
}
