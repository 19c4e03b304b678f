//! Our hooks in a container's configuration.
//! Touches: its arguments.
//! Law: whatever else the configuration says, also what we do not know, stays byte for byte.

use crate::json_text::{self, Changed, JsonError, quoted};
use std::ops::Range;

/// What our hooks are in JSON.
#[derive(Clone, Debug)]
pub struct Ours<'a> {
    /// The hook's executable, by its absolute path.
    pub path: &'a str,
    /// Its options, in front of the verb.
    pub options: &'a [String],
}

/// The stages that have work to do. What a runtime that is older than `createRuntime` calls
/// `prestart` is for whoever configures that runtime.
pub const STAGES: [&str; 2] = ["createRuntime", "poststop"];

/// Never empty: runc before 1.3 gives a hook without one the image's (CVE-2025-23266).
pub const ENVIRONMENT: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Ours<'_> {
    /// The hook of one stage.
    #[must_use]
    pub fn json(&self, stage: &str) -> String {
        let options = self.options.iter().map(String::as_str);
        let arguments: Vec<String> = std::iter::once("gpuslice-hook")
            .chain(options)
            .chain([stage])
            .map(quoted)
            .collect();
        format!(
            "{{\"path\":{},\"args\":[{}],\"env\":[{}]}}",
            quoted(self.path),
            arguments.join(","),
            quoted(ENVIRONMENT)
        )
    }
}

/// The configuration with our hooks, each once, whoever has put one there before.
///
/// # Errors
/// When it is not JSON, or not what the OCI runtime specification says it is.
pub fn add(config: &str, ours: &Ours<'_>) -> Changed {
    let mut text = config.to_owned();
    for stage in STAGES {
        text = add_to(text, stage, ours)?;
    }
    Ok(text)
}

fn add_to(text: String, stage: &str, ours: &Ours<'_>) -> Changed {
    let hook = ours.json(stage);
    let list = format!("[{hook}]");
    let root = json_text::root(&text)?;
    let Some(hooks) = there(&text, &root, "hooks")? else {
        let hooks = format!("{{{}:{list}}}", quoted(stage));
        return json_text::set(&text, &root, "hooks", &hooks);
    };
    let Some(entries) = there(&text, &hooks, stage)? else {
        return json_text::set(&text, &hooks, stage, &list);
    };
    for entry in json_text::elements(&text, &entries)? {
        let path = there(&text, &entry, "path")?;
        if path.and_then(|path| json_text::plain(&text, &path)) == Some(ours.path) {
            let (head, tail) = (text.get(..entry.start), text.get(entry.end..));
            let around = |part: Option<&str>| part.unwrap_or_default().to_owned();
            return Ok(around(head) + &hook + &around(tail));
        }
    }
    json_text::push(&text, &entries, &hook)
}

/// Returns the value of a member, unless it is null. A key that differs from `key` only in case or
/// by escapes is refused: runc, which is written in Go, would read it as `key`, and crun would not.
fn there(text: &str, of: &Range<usize>, key: &str) -> Result<Option<Range<usize>>, JsonError> {
    let exact = quoted(key);
    for member in json_text::members(text, of)? {
        let written = text.get(member.key).unwrap_or_default();
        let read = serde_json::from_str::<String>(written).unwrap_or_default();
        if folded(&read) == folded(key) && written != exact {
            return Err(JsonError::Twice);
        }
    }
    let found = json_text::member(text, of, key)?;
    let value = found.map(|member| member.value);
    Ok(value.filter(|value| text.get(value.clone()) != Some("null")))
}

/// Go compares keys by simple case folding, for which the long s is an s and the Kelvin sign a k.
fn folded(key: &str) -> String {
    let upper = key.chars().flat_map(char::to_uppercase);
    upper.flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Ours<'static> = Ours {
        path: "/usr/bin/gpuslice-hook",
        options: &[],
    };

    fn hook(stage: &str) -> String {
        format!(
            r#"{{"path":"/usr/bin/gpuslice-hook","args":["gpuslice-hook","{stage}"],"env":["{ENVIRONMENT}"]}}"#
        )
    }

    #[test]
    fn a_configuration_without_hooks_gets_ours_and_keeps_the_rest() {
        let (create, stop) = (hook("createRuntime"), hook("poststop"));
        let expected =
            format!(r#"{{"x":1e999,"hooks":{{"createRuntime":[{create}],"poststop":[{stop}]}}}}"#);
        assert_eq!(add(r#"{"x":1e999}"#, &OURS).unwrap(), expected);
        assert_eq!(add(r#"{"x":1e999,"hooks":null}"#, &OURS).unwrap(), expected);
        // Again: it is there once.
        assert_eq!(add(&expected, &OURS).unwrap(), expected);
    }

    #[test]
    fn the_hooks_of_others_stay_in_front_of_ours() {
        let config = r#"{ "hooks": { "prestart": [ {"path": "/n"} ], "createRuntime": [ {"path": "/o"} ], "poststop": null } }"#;
        let (create, stop) = (hook("createRuntime"), hook("poststop"));
        assert_eq!(
            add(config, &OURS).unwrap(),
            format!(
                r#"{{ "hooks": {{ "prestart": [ {{"path": "/n"}} ], "createRuntime": [ {{"path": "/o"}}, {create} ], "poststop": [{stop}] }} }}"#
            )
        );
    }

    #[test]
    fn one_of_ours_with_other_options_is_replaced() {
        let before = add("{}", &OURS).unwrap();
        let options = ["--memory".to_owned(), "8GiB".to_owned()];
        let wanted = Ours {
            options: &options,
            ..OURS
        };
        let after = add(&before, &wanted).unwrap();
        assert_eq!(after, add("{}", &wanted).unwrap());
        assert!(after.contains(r#""args":["gpuslice-hook","--memory","8GiB","poststop"]"#));
    }

    #[test]
    fn a_key_that_runc_would_read_as_hooks_is_refused() {
        for config in [
            r#"{"hooks":{},"hook\u0073":{"createRuntime":[]}}"#,
            r#"{"hook\u0073":{"createRuntime":[]}}"#,
            r#"{"Hooks":null}"#,
            r#"{"hoo\u212as":{}}"#,
            r#"{"hook\u017f":{}}"#,
            r#"{"hooks":{"createruntime":[]}}"#,
            r#"{"hooks":{"createRuntime":[{"path":"/o","Path":"/usr/bin/gpuslice-hook"}]}}"#,
        ] {
            assert_eq!(add(config, &OURS), Err(JsonError::Twice), "{config}");
        }
    }

    #[test]
    fn a_configuration_that_is_none_is_refused() {
        for config in [
            "[]",
            "{",
            "{}x",
            r#"{"hooks":[]}"#,
            r#"{"hooks":{"createRuntime":{}}}"#,
            r#"{"hooks":{},"hooks":{}}"#,
            r#"{"hooks":{"poststop":[1]}}"#,
        ] {
            assert!(add(config, &OURS).is_err(), "{config}");
        }
    }
}
