//! Adds our hooks to a container's configuration.
//! Touches: its arguments.
//! Law: the rest of the configuration, including unknown members, stays byte for byte. A gpuslice
//! hook that gives a size, such as a CDI device's, is kept.

use crate::engine::hook_arguments::{self, NAME, SizeError};
use crate::engine::json_edit::{self, JsonError, quoted};
use std::ops::Range;

/// The content of our hooks.
#[derive(Clone, Debug)]
pub struct Ours<'a> {
    /// The hook's executable, by its absolute path.
    pub path: &'a str,
    /// Its options, before the verb.
    pub options: &'a [String],
    /// The bundle, if gpuslice-runtime adds the hooks. Before version 1.27, crun tells the hooks of
    /// a container with a user namespace that the bundle is `/`.
    pub bundle: Option<&'a str>,
    /// Whether gpuslice-runtime already changed the configuration for this call and then executed
    /// itself. Its hooks are then kept.
    pub is_again: bool,
}

/// The stages that have work to do. An operator whose runtime is too old for `createRuntime`
/// configures the `prestart` hook by hand.
pub const STAGES: [&str; 2] = ["createRuntime", "poststop"];

/// The environment of each hook. It is never empty: before version 1.3, runc gives a hook
/// without an environment that of the image (CVE-2025-23266).
pub const ENVIRONMENT: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The variable that marks a hook added by gpuslice-runtime. When gpuslice-runtime is called again
/// for the same bundle, it replaces such a hook.
const BY_RUNTIME: &str = "GPUSLICE_HOOK_ADDED_BY=gpuslice-runtime";

/// The hook's option that names the bundle.
const BUNDLE: &str = "--bundle";

/// Why hooks cannot be added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HooksError {
    /// The configuration is not what the specification says.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// The configuration requests two sizes.
    #[error(transparent)]
    Size(#[from] SizeError),
}

/// A gpuslice hook definition in a configuration.
struct Entry {
    at: Range<usize>,
    arguments: Option<(Range<usize>, Vec<String>)>,
    /// Whether gpuslice-runtime has added it.
    is_added: bool,
    /// Whether the new hook replaces it: an earlier call added it, or it has no options.
    replaceable: bool,
}

impl Ours<'_> {
    /// The hook of one stage, as JSON.
    #[must_use]
    pub fn json(&self, stage: &str) -> String {
        let bundle = self.bundle.map(|bundle| [BUNDLE, bundle]);
        let arguments: Vec<&str> = std::iter::once(NAME)
            .chain(bundle.into_iter().flatten())
            .chain(self.options.iter().map(String::as_str))
            .chain([stage])
            .collect();
        let marker = self.bundle.map(|_| BY_RUNTIME);
        let environment: Vec<&str> = std::iter::once(ENVIRONMENT).chain(marker).collect();
        format!(
            "{{\"path\":{},\"args\":{},\"env\":{}}}",
            quoted(self.path),
            strings(&arguments),
            strings(&environment)
        )
    }

    /// The arguments of another gpuslice hook, with the bundle added.
    fn with_bundle(&self, arguments: &[String]) -> Option<String> {
        let (name, rest) = arguments.split_first()?;
        let mut words = vec![name.as_str(), BUNDLE, self.bundle?];
        let mut rest = rest.iter();
        while let Some(word) = rest.next() {
            match word == BUNDLE {
                true => drop(rest.next()),
                false => words.push(word),
            }
        }
        Some(strings(&words))
    }
}

fn strings(all: &[&str]) -> String {
    let all: Vec<String> = all.iter().copied().map(quoted).collect();
    format!("[{}]", all.join(","))
}

/// Returns the configuration with gpuslice's hooks, whether or not it already contained one.
///
/// # Errors
/// When it is not JSON, not what the OCI runtime specification says it is, or gives two sizes.
pub fn add(config: &str, ours: &Ours<'_>) -> Result<String, HooksError> {
    let root = json_edit::root(config)?;
    let mut stages: Vec<String> = STAGES.map(str::to_owned).to_vec();
    let mut sizes: Vec<String> = Vec::new();
    sizes.extend(hook_arguments::memory_of(ours.options).map(str::to_owned));
    if let Some(hooks) = there(config, &root, "hooks")? {
        for member in json_edit::members(config, &hooks)? {
            let Some(stage) = json_edit::plain(config, &member.key) else {
                continue;
            };
            let is_list = config
                .get(member.value.clone())
                .is_some_and(|it| it.starts_with('['));
            if !is_list {
                continue;
            }
            if !STAGES.contains(&stage) {
                stages.push(stage.to_owned());
            }
            if stage != "poststop" {
                for entry in entries(config, &member.value, ours)? {
                    let given = entry.arguments.filter(|_| !entry.replaceable);
                    let size = given.and_then(|(_, words)| {
                        hook_arguments::memory_of(&words).map(str::to_owned)
                    });
                    sizes.extend(size);
                }
            }
        }
    }
    hook_arguments::one(sizes.iter().map(String::as_str))?;
    let mut text = config.to_owned();
    for stage in &stages {
        text = add_to(text, stage, ours)?;
    }
    Ok(text)
}

fn add_to(text: String, stage: &str, ours: &Ours<'_>) -> Result<String, HooksError> {
    let is_added = STAGES.contains(&stage);
    let hook = ours.json(stage);
    let list = format!("[{hook}]");
    let root = json_edit::root(&text)?;
    let Some(hooks) = there(&text, &root, "hooks")? else {
        let hooks = format!("{{{}:{list}}}", quoted(stage));
        return Ok(json_edit::set(&text, &root, "hooks", &hooks)?);
    };
    let Some(all) = there(&text, &hooks, stage)? else {
        return Ok(json_edit::set(&text, &hooks, stage, &list)?);
    };
    let (mut replaced, mut kept) = (false, false);
    let mut changes: Vec<(Range<usize>, String)> = Vec::new();
    for entry in entries(&text, &all, ours)? {
        if is_added && entry.replaceable && !replaced {
            replaced = true;
            changes.push((entry.at, hook.clone()));
        } else if let Some((at, words)) = entry.arguments {
            kept |= entry.is_added || hook_arguments::memory_of(&words).is_some();
            changes.extend(ours.with_bundle(&words).map(|words| (at, words)));
        }
    }
    let mut changed = text;
    for (at, new) in changes.into_iter().rev() {
        if changed.get(at.clone()) != Some(new.as_str()) {
            changed.replace_range(at, &new);
        }
    }
    // If no size is given here, a kept hook that gives a size already does the work of ours.
    let is_needed = hook_arguments::memory_of(ours.options).is_some() || !kept;
    if !is_added || replaced || !is_needed {
        return Ok(changed);
    }
    let root = json_edit::root(&changed)?;
    let hooks = there(&changed, &root, "hooks")?.unwrap_or(root);
    match there(&changed, &hooks, stage)? {
        Some(all) => Ok(json_edit::push(&changed, &all, &hook)?),
        None => Ok(changed),
    }
}

/// The definitions of our hook in a list of hooks.
fn entries(text: &str, list: &Range<usize>, ours: &Ours<'_>) -> Result<Vec<Entry>, JsonError> {
    let mut found = Vec::new();
    for at in json_edit::elements(text, list)? {
        let text_of = |value: Option<Range<usize>>| text.get(value?).map(str::to_owned);
        let words = |value: Option<Range<usize>>| -> Option<Vec<String>> {
            serde_json::from_str(&text_of(value)?).ok()
        };
        let path = there(text, &at, "path")?;
        let path: Option<String> = text_of(path).and_then(|path| serde_json::from_str(&path).ok());
        let path = path.unwrap_or_default();
        let arguments = there(text, &at, "args")?;
        let list = words(arguments.clone()).unwrap_or_default();
        if !hook_arguments::is_ours(path.as_ref(), &list) && path != ours.path {
            continue;
        }
        let env = words(there(text, &at, "env")?).unwrap_or_default();
        let is_plain = list.len() <= 2 && path == ours.path;
        let is_added = env.iter().any(|variable| variable == BY_RUNTIME);
        found.push(Entry {
            is_added,
            replaceable: is_plain || (is_added && !ours.is_again),
            arguments: arguments.map(|at| (at, list)),
            at,
        });
    }
    Ok(found)
}

/// Returns the value of a member, unless it is null. A key that differs from `key` only in case or
/// by escapes is refused: runc, which is written in Go, would read it as `key`, and crun would not.
fn there(text: &str, of: &Range<usize>, key: &str) -> Result<Option<Range<usize>>, JsonError> {
    let exact = quoted(key);
    for member in json_edit::members(text, of)? {
        let written = text.get(member.key).unwrap_or_default();
        let read = serde_json::from_str::<String>(written).unwrap_or_default();
        if folded(&read) == folded(key) && written != exact {
            return Err(JsonError::Twice);
        }
    }
    let found = json_edit::member(text, of, key)?;
    let value = found.map(|member| member.value);
    Ok(value.filter(|value| text.get(value.clone()) != Some("null")))
}

/// Go compares keys by simple case folding, for which the long s is an s and the Kelvin sign a k.
fn folded(key: &str) -> String {
    let upper = key.chars().flat_map(char::to_uppercase);
    upper.flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
#[path = "hook_entry_tests.rs"]
mod tests;
