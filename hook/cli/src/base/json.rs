//! The JSON documents that commands print: each begins with the version of its form.
//! Touches: its arguments.

use serde::Serialize;

/// The version of the forms that this gpuslice prints. It changes when a key changes its meaning or
/// is removed, and not when a key is added.
const SCHEMA: u32 = 1;

/// A document: the version, then the members of the content.
#[derive(Serialize)]
struct Document<'a, T> {
    schema: u32,
    #[serde(flatten)]
    content: &'a T,
}

/// Formats a document over several lines, with a line end.
///
/// # Errors
/// When the content cannot be serialized.
pub(crate) fn document<T: Serialize>(content: &T) -> serde_json::Result<String> {
    let schema = SCHEMA;
    let text = serde_json::to_string_pretty(&Document { schema, content })?;
    Ok(format!("{text}\n"))
}

/// Formats a document on one line, with a line end.
///
/// # Errors
/// When the content cannot be serialized.
pub(crate) fn line<T: Serialize>(content: &T) -> serde_json::Result<String> {
    let schema = SCHEMA;
    let text = serde_json::to_string(&Document { schema, content })?;
    Ok(format!("{text}\n"))
}
