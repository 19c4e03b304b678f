//! Fuzzes the reader of an image's libc. That libc may be any file.
//! Touches: its input, as a file in memory.
#![no_main]

use gpuslice_host::base::elf::Elf;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io::Write;

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let file = memfd_create(c"image", MFdFlags::empty()).expect("a file in memory");
    let mut file = File::from(file);
    file.write_all(text)
        .expect("a file in memory can be written");
    let Some(elf) = Elf::read(&file) else { return };
    let _ = (elf.machine(), elf.has_loader());
    let _ = (
        elf.undefined(),
        elf.needed_versions(),
        elf.defined_versions(),
    );
    let _ = elf.defines(b"memcpy");
});
