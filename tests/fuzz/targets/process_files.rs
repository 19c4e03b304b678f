//! Fuzzes the readers of a process's files in /proc. Whatever name a process or a file has, the
//! other fields are read as the kernel wrote them.
//! Touches: its input.
#![no_main]

use gpuslice_config::slice::{is_within, version_2};
use gpuslice_host::machine::process;
use gpuslice_readers::commands::cache::mappings;
use gpuslice_readers::commands::status::process::files::{map_one_file, status};
use gpuslice_readers::inject::topmost_mounts;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let _ = (process::parse(text), status(text), mappings::read(text));
    if let Some(path) = version_2(text) {
        assert!(!path.contains(&b'\n'));
        assert!(is_within(path, path, false));
    }
    let (numbers, name) = text.split_at(text.len().min(8));
    let number = numbers
        .iter()
        .fold(1_u64, |sum, byte| (sum << 6) ^ u64::from(*byte))
        >> 8;
    stat(name, number);
    status_file(name, number);
    maps(name, number);
    mounts(text);
});

fn small(number: u64) -> i32 {
    i32::try_from(number & 0x3f_ffff).expect("22 bits")
}

/// `/proc/PID/stat` has the name as it is, in parentheses.
fn stat(name: &[u8], number: u64) {
    let parent = small(number);
    let after = format!(") S {parent} 1 1 0 -1 64 0 0 0 0 0 0 0 0 20 0 1 0 {number} 0 0\n");
    let line = [b"7 (", name, after.as_bytes()].concat();
    let read = process::parse(&line).expect("a line of the kernel's is read");
    assert_eq!(
        (read.state, read.parent, read.start_time),
        (b'S', parent, number)
    );
}

/// `/proc/PID/status` has the name with its line breaks and backslashes escaped.
fn status_file(name: &[u8], number: u64) {
    let parent = small(number).unsigned_abs();
    let escape = |byte: &u8| match byte {
        b'\n' => b"\\n".to_vec(),
        b'\\' => b"\\\\".to_vec(),
        other => vec![*other],
    };
    let escaped: Vec<u8> = name.iter().flat_map(escape).collect();
    let after = format!("\nState:\tS\nPPid:\t{parent}\nUid:\t1\t{parent}\t3\t4\nNSpid:\t9\t2\n");
    let text = [b"Name:\t", escaped.as_slice(), after.as_bytes()].concat();
    let expected = String::from_utf8_lossy(name);
    let read = status(&text).expect("a file of the kernel's is read");
    let expected = expected.trim_end_matches('\n').to_owned();
    assert_eq!(read, (expected, Some(2), parent, parent));
}

/// `/proc/PID/maps` has a path with its line breaks escaped.
fn maps(name: &[u8], number: u64) {
    let inode = number | 1;
    let path: Vec<u8> = name.iter().copied().filter(|byte| *byte != b'\n').collect();
    let line = |inode: u64| {
        let before = format!("7f00000-7f01000 r--p 00002000 fe:03 {inode}                    /");
        [before.as_bytes(), &path].concat()
    };
    let expected = (0x7f0_0000, 0x7f0_1000, 0x2000, inode);
    assert_eq!(mappings::read(&line(inode)), Some(expected));
    assert!(map_one_file(&line(inode), &line(inode)));
    assert!(!map_one_file(&line(inode), &line(inode ^ 2)));
}

/// `/proc/PID/mountinfo` has paths with their blanks, line breaks and backslashes escaped. Each
/// line of the input is a mount point.
fn mounts(text: &[u8]) {
    let _ = topmost_mounts(text, Path::new("/"));
    let place = Path::new("/c");
    let mut points = BTreeSet::new();
    let mut table = Vec::new();
    for line in text.split(|byte| *byte == b'\n').take(8) {
        let point = [b"/c/", line].concat();
        let escape = |byte: &u8| match byte {
            b' ' | b'\t' | b'\\' => format!("\\{byte:03o}").into_bytes(),
            other => vec![*other],
        };
        table.extend(b"22 21 0:5 / ");
        table.extend(point.iter().flat_map(escape));
        table.extend(b" rw - tmpfs t rw\n");
        let below = Path::new(OsStr::from_bytes(&point)).strip_prefix(place);
        points.insert(below.expect("a path below the place").to_owned());
    }
    points.remove(Path::new(""));
    let topmost = topmost_mounts(&table, place);
    let above = |point: &PathBuf| topmost.iter().any(|top| point.starts_with(top));
    assert!(points.iter().all(above), "a mount is missing");
    assert!(
        topmost.iter().all(|top| points.contains(top)),
        "a mount that is none"
    );
}
