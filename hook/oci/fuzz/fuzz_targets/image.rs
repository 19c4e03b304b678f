//! A libc of an image may be any file.
//! Touches: its input, as a file in memory.
#![no_main]

use gpuslice_oci::elf::Elf;
use std::fs::File;
use std::io::Write;

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let Ok(mut file) = File::options().create(true).truncate(true).read(true).write(true)
        .open(format!("/dev/shm/gpuslice-fuzz-{}", std::process::id())) else { return };
    let _ = file.write_all(text);
    let Some(elf) = Elf::read(&file) else { return };
    let _ = (elf.undefined(), elf.needed_versions(), elf.defined_versions());
    let _ = elf.defines(b"memcpy");
});
