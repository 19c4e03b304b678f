//! Fuzzes the folder of promises: its listing, the names of its files, and their contents. A file
//! that is not a promise is ignored, and no promise claims more than the budget in its name.
//! Touches: its input; a folder below TMPDIR.
#![no_main]

use gpuslice_config::promises::{HEAD, Promise, directory, file_name, read_folder};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

/// The offset of the name in a `struct linux_dirent64`.
const NAME: usize = 19;

// Each line of the input is the name of a file, and after the last dot its contents.
libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    assert!(directory::names(text).count() <= text.len().div_ceil(NAME));
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').take(6).collect();
    listed(&lines);
    lines.iter().for_each(|line| named(line));
    stored(&lines);
});

/// A listing in the form of the kernel has the names that were put into it.
fn listed(names: &[&[u8]]) {
    let mut listing = Vec::new();
    let is_name = |name: &&&[u8]| !name.contains(&0) && name.len() < 256;
    let names: Vec<&[u8]> = names.iter().filter(is_name).copied().collect();
    for name in &names {
        let length = (NAME + name.len() + 1).next_multiple_of(8);
        let mut entry = vec![0; length];
        entry[16..18].copy_from_slice(&u16::try_from(length).expect("short").to_ne_bytes());
        entry[NAME..NAME + name.len()].copy_from_slice(name);
        listing.extend(entry);
    }
    let read = directory::names(&listing).map(|name| name.to_bytes());
    assert!(read.eq(names));
}

fn named(name: &[u8]) {
    let Some(promise) = Promise::named(name) else {
        return;
    };
    let written = [
        promise.budget.get().to_string().as_bytes(),
        b".",
        promise.slice,
    ]
    .concat();
    assert_eq!(written, name, "two names mean one promise");
    assert!(promise.unused(name) <= promise.budget);
    let path = [b"/run/5.a/", name].concat();
    assert_eq!(Promise::id_of(&path), Some(promise.slice));
    if let Ok(slice) = std::str::from_utf8(promise.slice) {
        let again = file_name(promise.budget, slice);
        assert_eq!(again.is_some(), name.len() <= 255);
    }
}

/// A folder of these files has the promises among them, and nothing else.
fn stored(lines: &[&[u8]]) {
    let folder = std::env::temp_dir().join(format!("promises-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).expect("the folder is made");
    let mut files = BTreeMap::new();
    for line in lines {
        let dot = line
            .iter()
            .rposition(|byte| *byte == b'.')
            .unwrap_or(line.len());
        let (name, contents) = line.split_at(dot);
        // A name with a separator would lead out of the folder. The kernel refuses some others.
        let is_plain = !name.contains(&b'/');
        if is_plain && fs::write(folder.join(OsStr::from_bytes(name)), contents).is_ok() {
            files.insert(name, contents);
        }
    }
    let mut expected: Vec<_> = files
        .into_iter()
        .filter_map(|(name, contents)| {
            let promise = Promise::named(name)?;
            let head = contents.get(..HEAD).unwrap_or(contents);
            let slice = String::from_utf8_lossy(promise.slice).into_owned();
            Some((slice, promise.budget, promise.unused(head)))
        })
        .collect();
    expected.sort();
    let read = read_folder(&folder)
        .expect("the folder is read")
        .into_iter();
    let mut read: Vec<_> = read
        .map(|one| (one.slice, one.budget, one.unused))
        .collect();
    read.sort();
    assert_eq!(read, expected);
}
