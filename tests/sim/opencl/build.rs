//! Gives the library the vendor's soname.
//! Touches: the linker's arguments.

fn main() {
    for arg in ["-Wl,-soname,libnvidia-opencl.so.1", "-Wl,-Bsymbolic"] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
}
