//! Fuzzes the command line of gpuslice-runtime, which engines write. The runtime gets every
//! argument but gpuslice's own, in its order.
//! Touches: its input.
#![no_main]

use gpuslice_hook::wrapper::arguments::read;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// The verbs that create a container.
const MAKING: [&str; 3] = ["create", "run", "restore"];

// Each line of the input is an argument.
libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let words: Vec<OsString> = text
        .split(|byte| *byte == b'\n')
        .map(|word| OsStr::from_bytes(word).to_owned())
        .collect();
    let call = read(words.clone());
    let mut all = words.iter();
    let is_next = |passed: &OsString| all.any(|word| word == passed);
    assert!(
        call.passed_on.iter().all(is_next),
        "an argument that was not given"
    );
    let is_own = |word: &&OsString| {
        let word = word.as_bytes();
        word.starts_with(b"-gpuslice-") || word.starts_with(b"--gpuslice-")
    };
    let own = words.iter().filter(is_own).count();
    assert!(
        words.len() - call.passed_on.len() <= 2 * own,
        "an argument of the runtime's is missing"
    );
    if own == 0 {
        assert_eq!(call.passed_on, words);
        assert!(call.own.is_empty() && call.unknown.is_none() && call.runtime.is_none());
    }
    assert_eq!(call.own.len() % 2, 0);
    let makes = |word: &OsString| MAKING.iter().any(|verb| word == verb);
    assert!(call.bundle.is_none() || call.passed_on.iter().any(makes));
    // The runtime reads its arguments as they were read here.
    let again = read(call.passed_on.clone());
    assert_eq!(
        (again.bundle, again.config, again.log),
        (call.bundle, call.config, call.log)
    );
    let run = read([OsString::from("run")].into_iter().chain(words));
    assert!(run.bundle.is_some(), "a container is not recognised");
});
