//! Reads the values of a slices file: sizes, words, lists and tables.
//! Touches: its arguments.

use super::not;
use clap::ValueEnum;
use std::ffi::OsString;
use std::ops::Range;
use toml::Spanned;
use toml::de::DeValue;

/// Why a value is not one of its key's.
pub(super) enum Wrong {
    /// It is of another kind: a table instead of a size.
    Kind(&'static str),
    /// It is of the right kind. The place may be that of an element.
    Value(Range<usize>, String),
}

/// A value and its place.
pub(super) type Value<'a> = Spanned<DeValue<'a>>;

/// Returns the kind of a value, with its article.
pub(super) fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// Reads a text that one of the command line's parsers understands.
pub(super) fn text<T>(
    value: &Value<'_>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<T, Wrong> {
    match value.get_ref() {
        DeValue::String(text) => parsed(value, text, parse),
        _ => not(value),
    }
}

/// Reads a size: a text, or a number of bytes.
pub(super) fn size<T>(
    value: &Value<'_>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<T, Wrong> {
    match value.get_ref() {
        DeValue::Integer(number) => parsed(value, &number.to_string(), parse),
        _ => text(value, parse),
    }
}

fn parsed<T>(
    value: &Value<'_>,
    text: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<T, Wrong> {
    let wrong = |why: String| {
        // Some parsers name the text themselves.
        let message = match why.contains(text) && !text.is_empty() {
            true => why,
            false => format!("\"{text}\": {why}"),
        };
        Wrong::Value(value.span(), message)
    };
    parse(text).map_err(wrong)
}

/// Reads one of the words of an option.
pub(super) fn word<T: ValueEnum>(value: &Value<'_>) -> Result<T, Wrong> {
    text(value, |text| {
        T::from_str(text, false).map_err(|_| {
            let all = T::value_variants().iter();
            let names = all.filter_map(|one| Some(one.to_possible_value()?.get_name().to_owned()));
            let names: Vec<String> = names.collect();
            format!("\"{text}\" is not one of: {}", names.join(", "))
        })
    })
}

pub(super) fn flag(value: &Value<'_>) -> Result<bool, Wrong> {
    match value.get_ref() {
        DeValue::Boolean(is_set) => Ok(*is_set),
        _ => not(value),
    }
}

/// Reads a list of texts, each by a parser.
pub(super) fn list<T>(
    value: &Value<'_>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, Wrong> {
    match value.get_ref() {
        DeValue::Array(elements) => elements.iter().map(|one| text(one, &parse)).collect(),
        _ => not(value),
    }
}

/// Reads a table in the order of the file.
pub(super) fn table<T>(
    value: &Value<'_>,
    entry: impl Fn(&str, &Value<'_>) -> Result<T, Wrong>,
) -> Result<Vec<T>, Wrong> {
    let DeValue::Table(table) = value.get_ref() else {
        return not(value);
    };
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let read = entries.into_iter().map(|(key, value)| {
        let read = entry(key.get_ref(), value);
        read.map_err(|wrong| match wrong {
            // The entry's key says more than the place of its value.
            Wrong::Kind(found) => Wrong::Kind(found),
            Wrong::Value(_, why) => Wrong::Value(key.span(), why),
        })
    });
    read.collect()
}

/// Checks a text that becomes an argument of a program.
pub(super) fn argument(text: &str) -> Result<OsString, String> {
    match text.contains('\0') {
        true => Err("an argument cannot hold a zero byte".to_owned()),
        false => Ok(text.into()),
    }
}
