//! Parses the state that a runtime gives a hook on its standard input.
//! Touches: its arguments.
//! Law: an unknown key is not an error. A container id that could leave a folder is.

use crate::request::json_filter::{self, Keep};
use crate::request::spec;
use gpuslice_host::base::text::shown;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::PathBuf;

/// The bytes that are kept of it.
pub const CAP: usize = 1 << 20;

/// The members to read: the fields of [`State`].
const KEPT: Keep = Keep::Members(&[
    ("id", Keep::All),
    ("status", Keep::All),
    ("pid", Keep::All),
    ("bundle", Keep::All),
    ("annotations", spec::ANNOTATIONS),
]);

/// The longest id, because file names are made of it.
pub const ID: usize = 200;

/// A container's state, as its runtime reports it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct State {
    /// The container's id.
    pub id: String,
    /// `creating`, `created` or `stopped`, as the runtime reports it.
    #[serde(default)]
    pub status: String,
    /// Its first process, in the pid namespace of the process that started the hook. Absent when
    /// stopped.
    #[serde(default)]
    pub pid: i32,
    /// The folder with its config.json.
    #[serde(default)]
    pub bundle: PathBuf,
    /// Its annotations.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

/// Why a state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It is not JSON, or not a state.
    #[error("the container's state on standard input is not an OCI state")]
    Content(#[from] io::Error),
    /// The id could be a path.
    #[error(
        "\"{0}\" is not a container id (1 to {ID} of A-Z a-z 0-9 _ . + -, and no dot at its start)"
    )]
    Id(String),
    /// The bundle is relative.
    #[error("the container's bundle \"{0}\" is not an absolute path")]
    Bundle(String),
}

/// Parses the text of a state.
///
/// # Errors
/// When it is not a state, or its id or bundle is invalid.
pub fn parse(text: &[u8]) -> Result<State, StateError> {
    read(text)
}

/// Like [`parse`], from a stream.
///
/// # Errors
/// As [`parse`].
pub fn read(from: impl Read) -> Result<State, StateError> {
    let kept = json_filter::reduce(from, &KEPT, CAP)?;
    let state: State = serde_json::from_slice(&kept).map_err(io::Error::from)?;
    if !is_id(&state.id) {
        return Err(StateError::Id(shown(&state.id)));
    }
    if !state.bundle.as_os_str().is_empty() && !state.bundle.is_absolute() {
        return Err(StateError::Bundle(shown(&state.bundle.to_string_lossy())));
    }
    Ok(state)
}

/// Whether a text is a plain file name and cannot be a path.
#[must_use]
pub fn is_id(text: &str) -> bool {
    let plain = |letter: u8| letter.is_ascii_alphanumeric() || b"_.+-".contains(&letter);
    !text.is_empty() && text.len() <= ID && !text.starts_with('.') && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_states_of_runc_and_crun_are_read() {
        let runc = br#"{"ociVersion":"1.0.2-dev","id":"web","status":"creating","pid":4711,
            "bundle":"/b","annotations":{"gpuslice.io/memory":"8GiB"}}"#;
        let state = parse(runc).unwrap();
        assert_eq!((state.id.as_str(), state.pid), ("web", 4711));
        assert_eq!(state.annotations["gpuslice.io/memory"], "8GiB");
        let crun = br#"{"ociVersion":"1.0","id":"web","pid":0,"root":"/r","bundle":"/","status":"created"}"#;
        assert_eq!(parse(crun).unwrap().pid, 0);
        let stopped = br#"{"ociVersion":"1.0","id":"web","status":"stopped"}"#;
        assert_eq!(parse(stopped).unwrap().bundle, PathBuf::new());
    }

    #[test]
    fn an_id_that_could_be_a_path_is_refused() {
        for id in [
            "",
            ".",
            "..",
            "a/b",
            "../../etc",
            ".hidden",
            "a b",
            "a\u{0}b",
            "ü",
        ] {
            let state = serde_json::json!({ "id": id, "bundle": "/b" }).to_string();
            assert!(parse(state.as_bytes()).is_err(), "{id:?}");
        }
        assert!(!is_id(&"x".repeat(ID + 1)));
        assert!(is_id(&"x".repeat(ID)));
        assert!(is_id("k8s_web-1.2+3"));
    }

    #[test]
    fn a_relative_bundle_and_a_cut_state_are_refused() {
        assert!(parse(br#"{"id":"a","bundle":"b"}"#).is_err());
        assert!(parse(br#"{"id":"a","bundle":"/b""#).is_err());
        assert!(parse(b"").is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused_without_a_panic(
            text in proptest::collection::vec(proptest::num::u8::ANY, 0..300),
        ) {
            if let Ok(state) = parse(&text) {
                proptest::prop_assert!(is_id(&state.id));
            }
        }
    }
}
