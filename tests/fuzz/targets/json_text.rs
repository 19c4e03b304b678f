//! Fuzzes the wrapper's changes to a config.json, with serde_json as the judge.
//! Touches: its input.
#![no_main]

use gpuslice_oci::json_text;
use gpuslice_oci::wrapper::hooks::{Ours, STAGES, add};
use serde_json::Value;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let ours = Ours {
        path: "/usr/bin/gpuslice-hook",
        options: &[],
    };
    let scanned = json_text::root(text);
    let read = serde_json::from_str::<serde::de::IgnoredAny>(text);
    assert_eq!(
        scanned.is_ok(),
        read.is_ok(),
        "the two readers disagree whether this is JSON"
    );
    let Ok(changed) = add(text, &ours) else {
        return;
    };
    // Numbers that serde_json cannot hold (1e400) are left alone, and cannot be judged here.
    let Ok(Value::Object(config)) = serde_json::from_str::<Value>(&changed) else {
        return;
    };
    for stage in STAGES {
        let hooks = config["hooks"][stage].as_array().expect("a list of hooks");
        let is_ours = |hook: &&Value| hook["path"] == "/usr/bin/gpuslice-hook";
        assert!(
            hooks.iter().any(|hook| is_ours(&hook)),
            "no hook of ours at {stage}"
        );
    }
    assert_eq!(
        add(&changed, &ours).as_deref(),
        Ok(&*changed),
        "a second change changes more"
    );
});
