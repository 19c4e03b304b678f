//! The options of a slice, from the opaque configuration of a claim and of its class.
//! Touches: its arguments.
//! Law: a key that is not understood is refused by name, as in annotations.

use gpuslice_config::slice::{Fence, PageCache, PresentAs, Total};
use gpuslice_config::words::units::{Bytes, ParseBytesError};
use gpuslice_host::base::text::shown;
use serde_json::Value;
use std::collections::BTreeMap;

/// The keys, as error messages list them.
pub const KEYS: &str = "total, present-as, headroom, page-cache, fence";

/// The version and kind that a configuration may state.
const API_VERSION: &str = "gpuslice.io/v1";
const KIND: &str = "SliceParameters";

/// Checked options: the values of the hook's options, by their names without hyphens in front.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options(BTreeMap<&'static str, String>);

/// Why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// It is not a list of keys and values.
    #[error("the parameters are not an object (known keys: {KEYS})")]
    NoObject,
    /// A key is unknown.
    #[error("unknown key \"{0}\" (known: {KEYS})")]
    Unknown(String),
    /// A value is not a text.
    #[error("{0} is not a text")]
    NoText(&'static str),
    /// A value is not one of the words.
    #[error("{0} \"{1}\" is not one of {2}")]
    Word(&'static str, String, &'static str),
    /// A value is not a size.
    #[error("{0} \"{1}\": {2}")]
    Size(&'static str, String, ParseBytesError),
    /// It is for another version of gpuslice.
    #[error("{0} \"{1}\" is not {2}")]
    Other(&'static str, String, &'static str),
}

impl Options {
    /// Adds the parameters of one configuration. Its values replace those that were added before.
    ///
    /// # Errors
    /// [`OptionsError`] names the key.
    pub fn add(&mut self, parameters: &Value) -> Result<(), OptionsError> {
        let all = parameters.as_object().ok_or(OptionsError::NoObject)?;
        for (key, value) in all {
            match key.as_str() {
                "apiVersion" => states("apiVersion", value, API_VERSION)?,
                "kind" => states("kind", value, KIND)?,
                "total" => self.word("total", value, "slice, device", |word| {
                    Total::from_word(word).is_some()
                })?,
                "present-as" => self.word("present-as", value, "uma, discrete", |word| {
                    PresentAs::from_word(word).is_some()
                })?,
                "page-cache" => {
                    self.word("page-cache", value, "keep, drop, drop-behind", |word| {
                        PageCache::from_word(word).is_some()
                    })?;
                }
                "fence" => self.word("fence", value, Fence::WORDS, |word| {
                    Fence::from_word(word).is_some()
                })?,
                "headroom" => self.size("headroom", value)?,
                _ => return Err(OptionsError::Unknown(shown(key))),
            }
        }
        Ok(())
    }

    fn word(
        &mut self,
        key: &'static str,
        value: &Value,
        words: &'static str,
        is_known: impl Fn(&str) -> bool,
    ) -> Result<(), OptionsError> {
        let text = value.as_str().ok_or(OptionsError::NoText(key))?;
        if !is_known(text) {
            return Err(OptionsError::Word(key, shown(text), words));
        }
        self.0.insert(key, text.to_owned());
        Ok(())
    }

    /// A size may also be a number of bytes without quotes. A size of 0 is valid.
    fn size(&mut self, key: &'static str, value: &Value) -> Result<(), OptionsError> {
        let text = match value {
            Value::Number(number) => number.to_string(),
            value => value.as_str().ok_or(OptionsError::NoText(key))?.to_owned(),
        };
        let size = match text.as_str() {
            "0" => Bytes::ZERO,
            text => Bytes::configured(text)
                .map_err(|fault| OptionsError::Size(key, shown(text), fault))?,
        };
        self.0.insert(key, size.get().to_string());
        Ok(())
    }

    /// The arguments of the hook.
    pub fn arguments(&self) -> impl Iterator<Item = String> {
        self.0
            .iter()
            .flat_map(|(key, value)| [format!("--{key}"), value.clone()])
    }
}

fn states(key: &'static str, value: &Value, expected: &'static str) -> Result<(), OptionsError> {
    let text = value.as_str().ok_or(OptionsError::NoText(key))?;
    match text == expected {
        true => Ok(()),
        false => Err(OptionsError::Other(key, shown(text), expected)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(parameters: &Value) -> Result<Vec<String>, String> {
        let mut options = Options::default();
        let added = options.add(parameters);
        added.map_err(|error| error.to_string())?;
        Ok(options.arguments().collect())
    }

    #[test]
    fn every_option_becomes_an_argument_of_the_hook() {
        let parameters = json!({
            "apiVersion": "gpuslice.io/v1",
            "kind": "SliceParameters",
            "total": "device",
            "present-as": "discrete",
            "headroom": "512Mi",
            "page-cache": "drop",
            "fence": "preload",
        });
        let expected = "--fence preload --headroom 536870912 --page-cache drop \
                        --present-as discrete --total device";
        assert_eq!(read(&parameters).unwrap().join(" "), expected);
        assert_eq!(read(&json!({"headroom": 0})).unwrap(), ["--headroom", "0"]);
        assert!(read(&json!({})).unwrap().is_empty());
    }

    #[test]
    fn an_unknown_key_and_a_wrong_value_are_refused_by_name() {
        for (parameters, message) in [
            (
                json!({"memory": "8Gi"}),
                "unknown key \"memory\" (known: total, present-as, headroom, page-cache, fence)",
            ),
            (
                json!({"headroom": "lots"}),
                "headroom \"lots\": not a size (try 12GiB)",
            ),
            (
                json!({"fence": "wood"}),
                "fence \"wood\" is not one of auto, driver, preload",
            ),
            (json!({"total": 8}), "total is not a text"),
            (
                json!({"kind": "GpuConfig"}),
                "kind \"GpuConfig\" is not SliceParameters",
            ),
            (
                json!([]),
                "the parameters are not an object \
                 (known keys: total, present-as, headroom, page-cache, fence)",
            ),
        ] {
            assert_eq!(read(&parameters).unwrap_err(), message, "{parameters}");
        }
    }
}
