//! Fuzzes the policy, which may hold any text. A namespace's maximum never exceeds the common one.
//! Touches: its input.
#![no_main]

use gpuslice_host::machine::policy;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Ok(policy) = policy::parse(text) else {
        return;
    };
    let everybody = policy.container_maximum(None);
    for namespace in policy.namespaces.keys() {
        let own = policy.container_maximum(Some(namespace));
        assert!(everybody.is_none_or(|most| own.is_some_and(|own| own <= most)));
    }
});
