//! Fuzzes the annotations of a container, which may hold any text. An accepted request has a limit.
//! Touches: its input.
#![no_main]

use gpuslice_hook::request::annotations::{AnnotatedRequest, read};
use gpuslice_hook::request::identity::{Annotations, Identity};

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
});
