//! Names the library as NVIDIA names its own.
//! Touches: the linker's arguments.

fn main() {
    for argument in ["-Wl,-soname,libGLX_nvidia.so.0", "-Wl,-Bsymbolic"] {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
}
