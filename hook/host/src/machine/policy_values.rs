//! Reads the values of the operator's policy: sizes, GPUs, words.
//! Touches: its arguments.

use crate::machine::policy::{DriverLimits, NotInjectable, OnError};
use gpuslice_config::slice::threshold::Threshold;
use gpuslice_config::slice::thresholds::Thresholds;
use gpuslice_config::slice::{PageCache, PresentAs, Pressure, Total};
use gpuslice_config::words::device::Selector;
use gpuslice_config::words::units::Bytes;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

/// A size or the name of a GPU: a text, or a number without quotes.
struct TextOrNumber(String);

impl<'de> Deserialize<'de> for TextOrNumber {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<TextOrNumber, D::Error> {
        from.deserialize_any(Either)
    }
}

struct Either;

impl Visitor<'_> for Either {
    type Value = TextOrNumber;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a text or a whole number")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<TextOrNumber, E> {
        Ok(TextOrNumber(text.to_owned()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<TextOrNumber, E> {
        Ok(TextOrNumber(number.to_string()))
    }
}

pub(super) fn some_size<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
    let TextOrNumber(text) = TextOrNumber::deserialize(from)?;
    let fault = |fault| D::Error::custom(format!("{text:?}: {fault}"));
    Bytes::configured(&text).map_err(fault)
}

pub(super) fn size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Bytes>, D::Error> {
    some_size(from).map(Some)
}

fn word<'de, D: Deserializer<'de>, T>(
    from: D,
    read: impl Fn(&str) -> Option<T>,
    words: &str,
) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(from)?;
    let known = read(&text);
    let unknown = || D::Error::custom(format!("{text:?} is not one of {words}"));
    known.map(Some).ok_or_else(unknown)
}

pub(super) fn total_word<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Total>, D::Error> {
    word(from, Total::from_word, "slice, device")
}

pub(super) fn present_as_word<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<PresentAs>, D::Error> {
    word(from, PresentAs::from_word, "uma, discrete")
}

pub(super) fn pressure_word<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Pressure>, D::Error> {
    word(from, Pressure::from_word, "refuse, release")
}

pub(super) fn thresholds<'de, D: Deserializer<'de>>(from: D) -> Result<Thresholds, D::Error> {
    let given: Vec<String> = Vec::deserialize(from)?;
    let mut thresholds = Thresholds::default();
    for text in given {
        let threshold: Threshold = text.parse().map_err(D::Error::custom)?;
        threshold.set(&mut thresholds);
    }
    Ok(thresholds)
}

pub(super) fn page_cache_word<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<PageCache>, D::Error> {
    word(from, PageCache::from_word, "keep, drop, drop-behind")
}

pub(super) fn selectors<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Vec<Selector>>, D::Error> {
    let texts: Vec<TextOrNumber> = Vec::deserialize(from)?;
    let selector = |TextOrNumber(text): TextOrNumber| {
        let unknown = || D::Error::custom(format!("{text:?} is no index or uuid of a GPU"));
        text.parse().map_err(|_| unknown())
    };
    texts
        .into_iter()
        .map(selector)
        .collect::<Result<_, _>>()
        .map(Some)
}

impl<'de> Deserialize<'de> for OnError {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<OnError, D::Error> {
        Ok(match is_second(from, ["refuse", "start"])? {
            false => OnError::Refuse,
            true => OnError::Start,
        })
    }
}

impl<'de> Deserialize<'de> for NotInjectable {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<NotInjectable, D::Error> {
        Ok(match is_second(from, ["warn", "refuse"])? {
            false => NotInjectable::Warn,
            true => NotInjectable::Refuse,
        })
    }
}

impl<'de> Deserialize<'de> for DriverLimits {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<DriverLimits, D::Error> {
        Ok(match is_second(from, ["auto", "off"])? {
            false => DriverLimits::Auto,
            true => DriverLimits::Off,
        })
    }
}

/// Reads one of two words. Derived code would add a kilobyte to the hook for each type.
fn is_second<'de, D: Deserializer<'de>>(from: D, words: [&str; 2]) -> Result<bool, D::Error> {
    let text = String::deserialize(from)?;
    let place = words.iter().position(|word| *word == text);
    let unknown = || D::Error::custom(format!("{text:?} is not one of {}", words.join(", ")));
    place.map(|place| place == 1).ok_or_else(unknown)
}
