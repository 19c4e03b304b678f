//! Fuzzes the slice that the arguments of a hook give, and the opaque configuration of a claim. All
//! that gpuslice-dra accepts in a claim, the hook accepts as arguments.
//! Touches: its input.
#![no_main]

use gpuslice_config::words::device::Selector;
use gpuslice_config::words::units::Bytes;
use gpuslice_hook::request::arguments::{Arguments, Invocation, parse};
use gpuslice_hook::request::state::is_id;
use gpuslice_readers::claims::options::Options;
use std::ffi::OsString;

// Each line of the input is an argument. The whole input may be a configuration.
libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Some(arguments) = stage(text.lines().map(str::to_owned)) {
        arguments_are_read_again(&arguments);
    }
    let Ok(parameters) = serde_json::from_str(text) else {
        return;
    };
    let mut options = Options::default();
    if options.add(&parameters).is_err() {
        return;
    }
    let again = options.clone();
    options
        .add(&parameters)
        .expect("what was accepted once is accepted again");
    assert_eq!(options, again);
    let size = ["--slice", "claim", "--memory", "8GiB"].map(str::to_owned);
    let words = size.into_iter().chain(options.arguments());
    let stage = stage(words.chain(["createRuntime".to_owned()]));
    assert!(stage.is_some(), "the hook refuses what the claim gives");
});

fn stage(words: impl Iterator<Item = String>) -> Option<Arguments> {
    match parse(words.map(OsString::from)) {
        Ok(Invocation::Stage(arguments)) => Some(*arguments),
        Ok(Invocation::Print(_)) | Err(_) => None,
    }
}

fn arguments_are_read_again(arguments: &Arguments) {
    let slice = &arguments.slice;
    let request = &slice.request;
    assert!(!arguments.verb.is_empty());
    assert!(
        arguments
            .bundle
            .as_ref()
            .is_none_or(|bundle| bundle.is_absolute())
    );
    if let Some(name) = &slice.name {
        assert!(is_id(name) && request.limits_something());
    }
    let mut words: Vec<String> = Vec::new();
    let mut size = |text: String, memory: Bytes| {
        assert!(memory >= Bytes::mib(1), "nothing can live in {memory}");
        words.extend(["--memory".to_owned(), text]);
    };
    for named in &request.devices {
        let Selector::Uuid(uuid) = named.selector else {
            panic!("a hook names a GPU by its index")
        };
        size(format!("{uuid}={}", named.memory.get()), named.memory);
    }
    if let Some(memory) = request.memory {
        size(memory.get().to_string(), memory);
    }
    let name = slice
        .name
        .iter()
        .flat_map(|name| ["--slice".to_owned(), name.clone()]);
    let words = words.into_iter().chain(name).chain(["poststop".to_owned()]);
    let again = stage(words)
        .expect("what was accepted is accepted again")
        .slice;
    assert_eq!(again.name, slice.name);
    assert_eq!(again.request.memory, request.memory);
    assert_eq!(again.request.devices, request.devices);
}
