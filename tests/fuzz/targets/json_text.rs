//! Fuzzes the wrapper's changes to a config.json, and compares them with serde_json.
//! Touches: its input.
#![no_main]

use gpuslice_host::engine::hook_entry::{Ours, STAGES, add};
use gpuslice_host::engine::json_edit;
use serde_json::Value;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let ours = Ours {
        path: "/usr/bin/gpuslice-hook",
        options: &[],
        bundle: None,
        is_again: false,
    };
    let scanned = json_edit::root(text);
    let read = serde_json::from_str::<serde::de::IgnoredAny>(text);
    assert_eq!(
        scanned.is_ok(),
        read.is_ok(),
        "the two readers disagree whether this is JSON"
    );
    let Ok(changed) = add(text, &ours) else {
        return;
    };
    // The wrapper keeps numbers that serde_json cannot hold (1e400). This test cannot check those.
    let Ok(Value::Object(config)) = serde_json::from_str::<Value>(&changed) else {
        return;
    };
    for stage in STAGES {
        let hooks = config["hooks"][stage].as_array().into_iter().flatten();
        // A hook of gpuslice that is there already, such as a CDI device's, may take its place.
        let is_ours = |hook: &Value| text_of(hook, "path").contains("gpuslice");
        let in_arguments = |hook: &Value| hook["args"].to_string().contains("gpuslice");
        let mut hooks = hooks.map(|hook| is_ours(hook) || in_arguments(hook));
        let elsewhere = config["hooks"].to_string().contains("--memory");
        assert!(
            elsewhere || hooks.any(|found| found),
            "no hook of ours at {stage}"
        );
    }
    let again = add(&changed, &ours);
    assert!(
        again.is_ok_and(|again| again == changed),
        "a second change changes more"
    );
});

fn text_of<'a>(hook: &'a Value, key: &str) -> &'a str {
    hook[key].as_str().unwrap_or_default()
}
