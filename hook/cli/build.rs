//! Builds the libraries by which `gpuslice check` asks as a linked program does.
//! Touches: the C compiler, OUT_DIR.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What each object is linked to.
const OBJECTS: [(&str, &str, &str); 2] = [
    ("GPUSLICE_CUDA", "libcuda.so.1", "linked-cuda.so"),
    ("GPUSLICE_NVML", "libnvidia-ml.so.1", "linked-nvml.so"),
];

const SOURCE: &str = "src/commands/check/query/linked.c";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={SOURCE}");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("no OUT_DIR")?);
    for (which, driver, object) in OBJECTS {
        // An empty library under the driver's name is all that the link needs: the references
        // are weak, and this machine may have no driver.
        let stand_in = out.join(driver);
        compile(&stand_in, |cc| {
            cc.arg(format!("-Wl,-soname,{driver}"))
                .args(["-x", "c", "/dev/null"])
        })?;
        compile(&out.join(object), |cc| {
            cc.arg(format!("-D{which}"))
                .args(["-fno-optimize-sibling-calls", "-fno-stack-protector"])
                .args(["-fvisibility=hidden", "-Wl,-z,undefs"])
                .arg(format!("-Wl,-soname,gpuslice-{object}"))
                .arg(SOURCE)
                .arg("-Wl,--no-as-needed")
                .arg(&stand_in)
        })?;
    }
    Ok(())
}

/// Builds the shared library `to`, without libc.
fn compile(
    to: &Path,
    add: impl for<'a> FnOnce(&'a mut Command) -> &'a mut Command,
) -> Result<(), Box<dyn Error>> {
    let mut cc = cc::Build::new()
        .opt_level(1)
        .debug(false)
        .pic(true)
        .cargo_metadata(false)
        .try_get_compiler()?
        .to_command();
    // zig's compiler writes debug information unless told not to, with the build's path.
    cc.args(["-g0", "-shared", "-nostdlib", "-o"]).arg(to);
    add(&mut cc);
    let status = cc
        .status()
        .map_err(|error| format!("cannot start the C compiler: {error} ({cc:?})"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("the C compiler failed ({status}): {cc:?}").into()),
    }
}
