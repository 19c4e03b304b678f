//! The keys and words of slice files that a release of gpuslice understands. libgpuslice.so states
//! them in its file, so that a command of another release knows beforehand whether the library will
//! understand the slice.
//! Touches: its arguments.
//! Law: the lists come from the reader of slice files itself.

use super::{read, words};

/// Every key and word that [`super::parse`] understands, one a line: `memory`, `devices.memory` for
/// a key of a listed device, `total=device` for a word.
pub const TERMS: [&str; 10] = [
    read::SLICE_KEYS,
    "devices\n",
    read::DEVICE_KEYS,
    read::MODEL_FILES_KEYS,
    words::TOTAL,
    words::PRESENT_AS,
    words::MANAGED,
    words::PRESSURE,
    words::PAGE_CACHE,
    words::DRIVER_LIMIT,
];

#[cfg(feature = "std")]
pub use used::terms_of;

#[cfg(feature = "std")]
mod used {
    use super::TERMS;
    use serde_json::Value;
    use std::borrow::ToOwned;
    use std::format;
    use std::string::String;
    use std::vec::Vec;

    /// The keys and words of a slice file's text, in the form of [`TERMS`]. Text that is not JSON
    /// has none.
    #[must_use]
    pub fn terms_of(text: &str) -> Vec<String> {
        let mut terms = Vec::new();
        if let Ok(value) = serde_json::from_str(text) {
            collect("", &value, &mut terms);
        }
        terms
    }

    fn collect(path: &str, value: &Value, terms: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                for (key, value) in members {
                    let path = match path {
                        "" => key.to_owned(),
                        path => format!("{path}.{key}"),
                    };
                    terms.push(path.clone());
                    collect(&path, value, terms);
                }
            }
            Value::Array(elements) => {
                for element in elements {
                    collect(path, element, terms);
                }
            }
            Value::String(word) if has_words(path) => terms.push(format!("{path}={word}")),
            _ => {}
        }
    }

    /// Whether a key's value is one of a list of words.
    fn has_words(key: &str) -> bool {
        let mut words = TERMS.iter().flat_map(|list| list.lines());
        words.any(|term| term.split_once('=').is_some_and(|(name, _)| name == key))
    }
}
