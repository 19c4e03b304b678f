//! Edits Docker's daemon.json: adds the wrapper as a runtime, and one more runtime per requested
//! size.
//! Touches: its arguments.

use crate::base::hook_entry::RUNTIME;
use gpuslice_host::engine::json_edit::{self, JsonError};
use serde::Serialize;
use serde_json::ser::PrettyFormatter;
use serde_json::{Map, Serializer, Value, json};
use std::ops::Range;
use std::path::Path;

/// The runtimes to add.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted<'a> {
    /// The wrapper's path.
    pub(super) runtime: &'a str,
    /// The sizes that get a runtime of their own, for engines that pass no annotations on. Each
    /// entry is a name and the text that the hook reads.
    pub(super) sizes: Vec<(String, String)>,
    /// Whether containers that name no runtime get the wrapper.
    pub(super) default: bool,
}

const RUNTIMES: &str = "runtimes";
const DEFAULT: &str = "default-runtime";

/// Returns the file's text with the runtimes.
pub(super) fn add(text: Option<&str>, wanted: &Wanted<'_>) -> Result<String, JsonError> {
    let mut text = start(text);
    let runtimes = runtimes(wanted);
    let root = json_edit::root(&text)?;
    if json_edit::members(&text, &root)?.is_empty() {
        // The file has no runtimes yet, so there is no style to follow.
        let whole = laid_out(&json!({RUNTIMES: runtimes}), "\n", INDENT);
        text = format!("{whole}\n");
    } else if let Some(there) = there(&text, RUNTIMES)?
        && !json_edit::members(&text, &there)?.is_empty()
    {
        for (name, runtime) in &runtimes {
            let Some(there) = self::there(&text, RUNTIMES)? else {
                break;
            };
            let value = laid_out(runtime, json_edit::margin(&text, &there), indent(&text)?);
            text = json_edit::set(&text, &there, name, &value)?;
        }
    } else {
        let margin = json_edit::margin(&text, &root);
        let value = laid_out(&Value::Object(runtimes), margin, indent(&text)?);
        text = json_edit::set(&text, &root, RUNTIMES, &value)?;
    }
    if wanted.default {
        let root = json_edit::root(&text)?;
        text = json_edit::set(&text, &root, DEFAULT, &json_edit::quoted(super::NAME))?;
    }
    Ok(text)
}

fn runtimes(wanted: &Wanted<'_>) -> Map<String, Value> {
    let plain = (super::NAME.to_owned(), json!({"path": wanted.runtime}));
    let sized = wanted.sizes.iter().map(|(name, memory)| {
        let arguments = [format!("--gpuslice-memory={memory}")];
        let runtime = json!({"path": wanted.runtime, "runtimeArgs": arguments});
        (format!("{}-{name}", super::NAME), runtime)
    });
    std::iter::once(plain).chain(sized).collect()
}

/// Returns the file's text without the runtimes.
pub(super) fn remove(text: &str) -> Result<String, JsonError> {
    let mut text = start(Some(text));
    let mut gone = Vec::new();
    while let Some(runtimes) = there(&text, RUNTIMES)? {
        let members = json_edit::members(&text, &runtimes)?;
        let ours = members.iter().find_map(|member| {
            let name = json_edit::plain(&text, &member.key)?;
            is_ours(&text, name, &member.value).then(|| name.to_owned())
        });
        text = match ours {
            Some(name) => {
                let without = json_edit::remove(&text, &runtimes, &name)?;
                gone.push(name);
                without
            }
            None if members.is_empty() && !gone.is_empty() => {
                json_edit::remove(&text, &json_edit::root(&text)?, RUNTIMES)?
            }
            None => break,
        };
    }
    if let Some(default) = there(&text, DEFAULT)?
        && json_edit::plain(&text, &default).is_some_and(|name| gone.iter().any(|it| it == name))
    {
        text = json_edit::remove(&text, &json_edit::root(&text)?, DEFAULT)?;
    }
    Ok(text)
}

/// Checks by name, program and arguments whether gpuslice has added a runtime. The name alone does
/// not suffice: another tool may have used `gpuslice-team`.
fn is_ours(text: &str, name: &str, value: &Range<usize>) -> bool {
    let value = text.get(value.clone()).unwrap_or_default();
    let Ok(runtime) = serde_json::from_str::<Value>(value) else {
        return false;
    };
    let program = runtime.get("path").and_then(Value::as_str);
    let program = Path::new(program.unwrap_or_default());
    let arguments = match runtime.get("runtimeArgs") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(all)) => all
            .iter()
            .map(|it| it.as_str().unwrap_or_default())
            .collect(),
        Some(_) => return false,
    };
    let is_sized = matches!(&arguments[..], [only] if only.starts_with("--gpuslice-memory="));
    program.file_name().is_some_and(|name| name == RUNTIME)
        && match name.strip_prefix(super::NAME) {
            Some("") => arguments.is_empty(),
            Some(rest) => rest.starts_with('-') && is_sized,
            None => false,
        }
}

/// Checks whether a file has any of gpuslice's runtimes.
pub(super) fn has(text: &str) -> bool {
    remove(text).is_ok_and(|without| without != start(Some(text)))
}

/// Returns the runtime of containers that name none.
pub(super) fn default_runtime(text: Option<&str>) -> Option<String> {
    let text = start(text);
    let default = there(&text, DEFAULT).ok()??;
    json_edit::plain(&text, &default).map(str::to_owned)
}

/// Returns the program of a runtime.
pub(super) fn program(text: Option<&str>, name: &str) -> Option<String> {
    let text = start(text);
    let file: Value = serde_json::from_str(&text).ok()?;
    let runtime = file.get(RUNTIMES)?.get(name)?;
    runtime.get("path")?.as_str().map(str::to_owned)
}

/// Returns the file's text. If the file does not exist or is empty, returns an empty object,
/// because the daemon treats both alike.
fn start(text: Option<&str>) -> String {
    match text.filter(|text| !text.trim().is_empty()) {
        Some(text) => text.to_owned(),
        None => "{}".to_owned(),
    }
}

fn there(text: &str, key: &str) -> Result<Option<Range<usize>>, JsonError> {
    let root = json_edit::root(text)?;
    let found = json_edit::member(text, &root, key)?;
    let value = found.map(|member| member.value);
    Ok(value.filter(|value| text.get(value.clone()) != Some("null")))
}

/// The indentation that Docker's documentation uses.
const INDENT: &str = "    ";

/// Returns the indentation of the file's first level.
fn indent(text: &str) -> Result<&str, JsonError> {
    let margin = json_edit::margin(text, &json_edit::root(text)?);
    let indent = margin.rsplit_once('\n').map(|(_, indent)| indent);
    Ok(indent.filter(|it| !it.is_empty()).unwrap_or(INDENT))
}

/// Formats a value that follows the text `margin`. If the margin contains a line end, the value
/// spans several lines.
fn laid_out(value: &Value, margin: &str, indent: &str) -> String {
    let Some((_, before)) = margin.rsplit_once('\n') else {
        return value.to_string();
    };
    let mut pretty = Vec::new();
    let formatter = PrettyFormatter::with_indent(indent.as_bytes());
    let mut serializer = Serializer::with_formatter(&mut pretty, formatter);
    match value.serialize(&mut serializer) {
        Ok(()) => String::from_utf8_lossy(&pretty).replace('\n', &format!("\n{before}")),
        // Formatting cannot fail. The fallback is the same JSON on one line.
        Err(_) => value.to_string(),
    }
}

#[cfg(test)]
#[path = "docker_tests.rs"]
mod tests;
