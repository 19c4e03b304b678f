//! Fuzzes slices.toml, which people write. Each slice has a name of its own and a limit, and a
//! fault names a line of the file.
//! Touches: its input.
#![no_main]

use gpuslice_config::words::units::Bytes;
use gpuslice_readers::command_line::slices;
use std::collections::BTreeSet;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let lines = text.split('\n').count();
    let slices = match slices(text) {
        Ok(slices) => slices,
        Err((line, message)) => {
            assert!((1..=lines).contains(&line), "line {line} of {lines}");
            assert!(!message.is_empty() && !message.contains(char::is_control));
            return;
        }
    };
    let names: BTreeSet<&str> = slices.iter().map(|slice| slice.name.as_str()).collect();
    assert_eq!(names.len(), slices.len(), "two slices have one name");
    assert!(slices.is_sorted_by_key(|slice| slice.line));
    for slice in &slices {
        assert!((1..=lines).contains(&slice.line));
        assert!(!slice.limits.is_empty());
        assert!(slice.limits.iter().all(|limit| *limit >= Bytes::mib(1)));
        assert!(
            slice
                .command
                .first()
                .is_none_or(|program| !program.is_empty())
        );
        let texts = slice
            .command
            .iter()
            .chain(slice.env.iter().flat_map(|(name, value)| [name, value]));
        let no_zero = |text: &std::ffi::OsString| !text.as_encoded_bytes().contains(&0);
        assert!(
            texts.into_iter().all(no_zero),
            "no program can get a zero byte"
        );
    }
});
