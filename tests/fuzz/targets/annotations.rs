//! Fuzzes the annotations of a container, and the requests of other systems, which may hold any
//! text. An accepted request has a limit.
//! Touches: its input.
#![no_main]

use gpuslice_hook::request::annotations::{AnnotatedRequest, read};
use gpuslice_hook::request::dialects::{self, Amount, Given};
use gpuslice_hook::request::identity::{Annotations, Identity};
use gpuslice_host::machine::dialects::Dialects;

// The first line of the input is the container's name. The others are `key=value`.
libfuzzer_sys::fuzz_target!(|text: &str| {
    let mut lines = text.lines();
    let name = lines.next().unwrap_or_default();
    let pairs = lines.filter_map(|line| line.split_once('='));
    let mut annotations: Annotations = pairs
        .map(|(key, value)| (format!("gpuslice.io/{key}"), value.to_owned()))
        .collect();
    annotations.insert(
        "io.kubernetes.cri.container-name".to_owned(),
        name.to_owned(),
    );
    let who = Identity::of("c", &annotations);
    assert!(who.title().len() < 512);
    if let Ok(AnnotatedRequest::Slice(request)) = read(&annotations, &who) {
        assert!(request.limits_something());
    }
    let own = text.lines().skip(1);
    let all = Given {
        dialects: Dialects {
            kai: true,
            hami: true,
            nvidia: true,
        },
        annotations: &own
            .clone()
            .filter_map(|line| line.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
        env: &own.map(str::to_owned).collect::<Vec<_>>(),
        name: Some(name),
        visible: None,
    };
    if let Ok(translated) = dialects::read(&all) {
        assert!(
            translated
                .ceiling
                .is_none_or(|(_, memory)| memory.get() > 0)
        );
        let asked = translated.asked.map(|asked| asked.amount);
        assert!(!matches!(asked, Some(Amount::Size(memory)) if memory.get() == 0));
    }
});
