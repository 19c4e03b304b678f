//! Links libgpuslice.so: without startup files, without symbol versions, without a panic.
//! Touches: `OUT_DIR`; runs the C compiler that also links.

use std::env;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Everything that the shim takes from libc.
///
/// It is linked against a stand-in that has these names, libc's soname and no symbol versions:
/// so the library does not ask for the glibc of the machine that built it. A name that is not
/// on this list gets libc's version, which a test refuses.
const IMPORTS: [&str; 4] = [
    "_r_debug",
    "clock_gettime",
    "dl_iterate_phdr",
    "secure_getenv",
];

/// What the compiler calls, where we do not have it ourselves (`memory.rs`).
const MEMORY: [&str; 6] = ["bcmp", "memcmp", "memcpy", "memmove", "memset", "strlen"];

/// Why each is there: every process of a container pays for what the loader does with us.
const LINK: [&str; 9] = [
    // One linker on every architecture, and one that puts constants and code in one mapping.
    "-fuse-ld=bfd",
    // No crt files: they bring constructors, and an import of __cxa_finalize.
    "-nostartfiles",
    // Code and data in as few mappings as the loader can make.
    "-Wl,-z,noseparate-code",
    "-Wl,-z,norelro",
    "-Wl,--hash-style=gnu",
    "-Wl,-Bsymbolic",
    "-Wl,--build-id=sha1",
    "-Wl,--as-needed",
    "-Wl,-soname,libgpuslice.so",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=CC");
    let out = env::var("OUT_DIR")?;
    let own_memory =
        env::var("CARGO_CFG_TARGET_ARCH")? == "x86_64" && env::var("PROFILE")? == "release";
    let memory: &[&str] = if own_memory { &[] } else { &MEMORY };
    stand_in(Path::new(&out), &[&IMPORTS, memory].concat())?;
    // As a library of this crate, it comes before libc itself, which the `libc` crate names.
    println!("cargo:rustc-link-search=native={out}");
    println!("cargo:rustc-link-lib=dylib=imports");
    for argument in LINK {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
    if env::var("CARGO_CFG_TARGET_ARCH")? == "x86_64" {
        // Elsewhere pages may be larger: the linker's own choice loads on all of them.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,max-page-size=4096");
    }
    if env::var("PROFILE")? == "release" {
        // Debug builds have a standard library, and sections of more kinds.
        let layout = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("layout.ld");
        println!("cargo:rerun-if-changed={}", layout.display());
        println!("cargo:rustc-cdylib-link-arg=-Wl,-T,{}", layout.display());
        // Read by a test: a function that is renamed must not lose its place in the layout.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-Map,{out}/libgpuslice.map");
        // The panic handler calls a function that nobody defines: a panic that the optimiser
        // has not proven impossible does not link.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,defs");
    }
    Ok(())
}

fn stand_in(out: &Path, imports: &[&str]) -> Result<(), Box<dyn Error>> {
    let source = out.join("imports.s");
    let library = out.join("libimports.so");
    let mut text = String::from(".text\n");
    for name in imports {
        text += &format!(".globl {name}\n.type {name}, %function\n{name}:\n");
    }
    text += ".byte 0\n.section .note.GNU-stack,\"\",%progbits\n";
    fs::write(&source, text)?;
    let compiler = env::var("RUSTC_LINKER")
        .or_else(|_| env::var("CC"))
        .unwrap_or_else(|_| "cc".into());
    let made = Command::new(&compiler)
        .args(["-shared", "-nostdlib", "-Wl,-soname,libc.so.6", "-o"])
        .arg(&library)
        .arg(&source)
        .status()
        .map_err(|error| format!("cannot run {compiler}: {error}"))?;
    if !made.success() {
        return Err(format!("{compiler} cannot make {}", library.display()).into());
    }
    Ok(())
}
