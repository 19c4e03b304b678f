//! Slices files: `slices.toml` names slices, with a table for each. A slice in it has the options of
//! `gpuslice run`, and may have a command and its environment.
//! Touches: its arguments; `places` reads the files.
//! Law: a key that is not understood is an error, with its line and with what is allowed.

pub(crate) mod keys;
pub(crate) mod options;
pub(crate) mod places;
mod values;

use crate::base::text::printable;
use crate::slice::options::{SliceOptions, name as checked_name};
use gpuslice_config::words::units::Bytes;
use keys::KEYS;
use std::ffi::OsString;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use values::{Wrong, kind};

/// A slice, as a slices file describes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NamedSlice {
    /// The line of its table.
    pub(crate) line: usize,
    /// The options of `gpuslice run`, with the slice's name and environment.
    pub(crate) options: SliceOptions,
    /// The command and its arguments; empty if the file has none.
    pub(crate) command: Vec<OsString>,
    /// The memory of the model's weights on each GPU, for `gpuslice plan`.
    pub(crate) weights: Option<Bytes>,
}

impl NamedSlice {
    /// Returns the slice's name.
    #[must_use]
    pub(crate) fn name(&self) -> &str {
        self.options.name.as_deref().unwrap_or_default()
    }
}

/// A fault in the text of a slices file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub(crate) struct Fault {
    /// The line of the fault, from 1.
    pub(crate) line: usize,
    /// The place in the slice, and the fault.
    pub(crate) message: String,
}

/// A fault, and its place in the text.
struct Placed {
    at: Range<usize>,
    message: String,
}

/// Parses the text of a slices file. Returns the slices in the order of the file.
///
/// # Errors
/// The first fault, with its line.
pub(crate) fn parse(text: &str) -> Result<Vec<NamedSlice>, Fault> {
    let fault = |at: Option<Range<usize>>, message: String| Fault {
        line: line_of(text, at.map_or(text.len(), |at| at.start)),
        message: printable(&message),
    };
    let table = DeTable::parse(text)
        .map_err(|error| fault(error.span(), format!("not TOML: {}", error.message())))?;
    let mut tables: Vec<_> = table.get_ref().iter().collect();
    tables.sort_by_key(|(name, _)| name.span().start);
    let slices = tables.into_iter().map(|(name, value)| {
        let line = line_of(text, name.span().start);
        slice(name, value, line).map_err(|placed| fault(Some(placed.at), placed.message))
    });
    slices.collect()
}

/// Returns the line, from 1, of a place in the text.
fn line_of(text: &str, at: usize) -> usize {
    let before = text.as_bytes().iter().take(at);
    before
        .filter(|byte| **byte == b'\n')
        .count()
        .saturating_add(1)
}

/// Reads the table of one slice.
fn slice(
    name: &Spanned<std::borrow::Cow<'_, str>>,
    value: &Spanned<DeValue<'_>>,
    line: usize,
) -> Result<NamedSlice, Placed> {
    let (title, at) = (name.get_ref().as_ref(), name.span());
    let placed = |message: String| Placed {
        at: at.clone(),
        message,
    };
    let table = match value.get_ref() {
        DeValue::Table(table) => table,
        DeValue::Array(_) if !KEYS.iter().any(|key| key.name == title) => {
            return Err(placed(format!(
                "write [{title}] for a slice, not [[{title}]]"
            )));
        }
        _ => {
            return Err(placed(format!(
                "\"{title}\" stands outside of a slice: begin one with a line [NAME]"
            )));
        }
    };
    let given = checked_name(title);
    let given = given.map_err(|why| placed(format!("\"{title}\" cannot name a slice: {why}")))?;
    let mut slice = NamedSlice {
        line,
        ..NamedSlice::default()
    };
    slice.options.name = Some(given);
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in entries {
        let written = key.get_ref().as_ref();
        let Some(known) = KEYS.iter().find(|known| known.name == written) else {
            let hint = match keys::similar(written) {
                Some(similar) => format!("did you mean {similar}?"),
                None => {
                    let all: Vec<&str> = KEYS.iter().map(|known| known.name).collect();
                    format!("its keys are {}", all.join(", "))
                }
            };
            return Err(Placed {
                at: key.span(),
                message: format!("[{title}] has no key \"{written}\"; {hint}"),
            });
        };
        (known.set)(&mut slice, value).map_err(|wrong| match wrong {
            Wrong::Kind(found) => Placed {
                at: value.span(),
                message: format!(
                    "[{title}] {written}: expected {}, found {found}",
                    known.value
                ),
            },
            Wrong::Value(at, why) => Placed {
                at,
                message: format!("[{title}] {written}: {why}"),
            },
        })?;
    }
    match slice.options.limits_something() {
        true => Ok(slice),
        false => Err(placed(format!(
            "[{title}] has no limit: give it memory = \"12GiB\", or device"
        ))),
    }
}

/// Returns what a value is, if it is not of the expected kind.
fn not<T>(value: &Spanned<DeValue<'_>>) -> Result<T, Wrong> {
    Err(Wrong::Kind(kind(value.get_ref())))
}

#[cfg(test)]
#[path = "slices_file_tests.rs"]
mod tests;
