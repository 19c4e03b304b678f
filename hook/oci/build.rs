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
        println!("cargo:rerun-if-changed=no-unwinding.ld");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/no-unwinding.ld");
        println!("cargo:rustc-link-arg-bins=-Wl,--no-eh-frame-hdr,-T,{script}");
    }
}
