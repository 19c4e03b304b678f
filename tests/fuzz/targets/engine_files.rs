//! Fuzzes the changes of the engines' files: daemon.json, containerd's config.toml and the file of
//! NVIDIA's toolkit. A file that was changed and changed back has its former meaning, and the text
//! by which `--remove` finds the former file byte for byte.
//! Touches: its input.
#![no_main]

use gpuslice_readers::commands::engines::edits::{Edit, add, added_and_removed, has, remove};
use serde_json::Value;

// The first byte of the input names the file and the change.
libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((first, text)) = input.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let flag = first & 4 != 0;
    let edit = match first & 3 {
        0 => Edit::Docker { sized: flag },
        1 => Edit::Containerd { by_hooks: flag },
        _ => Edit::Nvidia,
    };
    let default = first & 8 != 0;
    let Some(added) = add(Some(text), edit, default) else {
        return;
    };
    assert!(has(&added, edit), "gpuslice's part is missing in {added}");
    assert_eq!(
        add(Some(&added), edit, default).as_deref(),
        Some(added.as_str()),
        "a second change"
    );
    let removed = remove(&added, edit).expect("an added part can be removed");
    assert!(!has(&removed, edit), "gpuslice's part is left in {removed}");
    assert_eq!(
        remove(&removed, edit).as_deref(),
        Some(removed.as_str()),
        "a second removal"
    );
    // A file that had the part, or gives a runtime the name, is not restored.
    let names = text.contains("gpuslice") || has(text, edit);
    let is_default = default && text.contains("default");
    if names || is_default {
        return;
    }
    // The command compares this with its backup of the file, and restores that.
    assert_eq!(
        added_and_removed(text, edit).as_deref(),
        Some(removed.as_str())
    );
    match edit {
        Edit::Docker { .. } if !text.trim().is_empty() => {
            // The editor keeps numbers that serde_json cannot hold (1e400).
            let value = |text: &str| serde_json::from_str::<Value>(text);
            if let (Ok(before), Ok(after)) = (value(text), value(&removed)) {
                assert_eq!(without_empty(before), without_empty(after));
            }
        }
        _ => {}
    }
});

/// A file without an empty object of runtimes, which has no meaning.
fn without_empty(mut file: Value) -> Value {
    let is_empty = |runtimes: &Value| runtimes.as_object().is_none_or(|all| all.is_empty());
    if let Some(all) = file.as_object_mut()
        && all.get("runtimes").is_some_and(is_empty)
    {
        all.remove("runtimes");
    }
    file
}
