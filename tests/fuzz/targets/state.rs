//! Fuzzes a runtime's state, which may hold any text. An accepted id names one file.
//! Touches: its input.
#![no_main]

use gpuslice_hook::request::state;
use std::path::{Component, Path};

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let Ok(state) = state::parse(text) else {
        return;
    };
    let mut parts = Path::new(&state.id).components();
    assert!(matches!(
        (parts.next(), parts.next()),
        (Some(Component::Normal(_)), None)
    ));
    assert!(state.bundle.as_os_str().is_empty() || state.bundle.is_absolute());
});
