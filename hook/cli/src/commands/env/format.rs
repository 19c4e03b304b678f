//! Formats variables for a shell, for Slurm and for Jupyter.
//! Touches: its arguments.

use anyhow::bail;
use clap::ValueEnum;
use serde_json::{Map, Value, json};
use std::ffi::{OsStr, OsString};

/// `--format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// `export NAME='value'`, for `eval` in a POSIX shell.
    #[default]
    Shell,
    /// `export NAME=value`, as Slurm reads the output of a TaskProlog.
    Slurm,
    /// JSON, whose `env` is that of Jupyter's kernel.json.
    Json,
}

impl Format {
    /// Formats the variables. One without a value is removed.
    ///
    /// # Errors
    /// When a value cannot be written in this format.
    pub(super) fn text(
        self,
        name: &str,
        owner: i32,
        vars: &[(OsString, Option<OsString>)],
    ) -> anyhow::Result<String> {
        let mut texts = Vec::new();
        for (variable, value) in vars {
            let value = value.as_deref().map(|value| text_of(variable, value));
            texts.push((text_of(variable, variable)?, value.transpose()?));
        }
        if self == Format::Json {
            let set = texts.into_iter();
            let env: Map<String, Value> = set
                .filter_map(|(variable, value)| Some((variable.to_owned(), value?.into())))
                .collect();
            let whole = json!({"schema": 1, "name": name, "owner": owner, "env": env});
            return Ok(format!("{}\n", ordered(&whole)));
        }
        let mut lines = String::new();
        for (variable, value) in texts {
            lines.push_str(&match (self, value) {
                (_, None) => format!("unset {variable}\n"),
                (Format::Slurm, Some(value)) if value.contains('\n') => {
                    bail!("{variable} has several lines, which Slurm cannot set")
                }
                (Format::Slurm, Some(value)) => format!("export {variable}={value}\n"),
                (_, Some(value)) => {
                    format!("export {variable}='{}'\n", value.replace('\'', "'\\''"))
                }
            });
        }
        Ok(lines)
    }
}

/// Returns a value as text.
fn text_of<'a>(variable: &OsStr, value: &'a OsStr) -> anyhow::Result<&'a str> {
    match value.to_str() {
        Some(text) => Ok(text),
        None => bail!(
            "{} is not text: it has bytes that are not UTF-8",
            variable.display()
        ),
    }
}

/// Writes the members in the order of the documentation: `schema` first.
fn ordered(whole: &Value) -> String {
    let member = |key: &str| format!("  \"{key}\": {}", whole.get(key).unwrap_or(&Value::Null));
    let members = ["schema", "name", "owner"].map(member).join(",\n");
    let env = whole.get("env").unwrap_or(&Value::Null);
    let env = serde_json::to_string_pretty(env).unwrap_or_default();
    let env = env.replace('\n', "\n  ");
    format!("{{\n{members},\n  \"env\": {env}\n}}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn vars() -> Vec<(OsString, Option<OsString>)> {
        vec![
            ("A".into(), Some("it's $HOME `x` \\ \"q\"\nline".into())),
            ("B".into(), None),
            ("C".into(), Some("".into())),
        ]
    }

    #[test]
    fn a_shell_reads_back_what_was_written() {
        let text = Format::Shell.text("x", 1, &vars()).unwrap();
        let script = format!("{text}printf '%s|%s|%s' \"$A\" \"${{B-none}}\" \"$C\"");
        let output = Command::new("sh")
            .args(["-c", &script])
            .env("B", "b")
            .output()
            .unwrap();
        let read = String::from_utf8(output.stdout).unwrap();
        assert_eq!(read, "it's $HOME `x` \\ \"q\"\nline|none|");
    }

    #[test]
    fn json_has_the_schema_first_and_no_removed_variable() {
        let text = Format::Json.text("x", 7, &vars()).unwrap();
        assert!(text.starts_with("{\n  \"schema\": 1,\n  \"name\": \"x\",\n  \"owner\": 7,\n"));
        let read: Value = serde_json::from_str(&text).unwrap();
        let env = read["env"].as_object().unwrap();
        assert_eq!(env.keys().collect::<Vec<_>>(), ["A", "C"]);
        assert_eq!(env["A"], "it's $HOME `x` \\ \"q\"\nline");
    }

    #[test]
    fn slurm_takes_values_as_they_are_and_no_second_line() {
        assert!(Format::Slurm.text("x", 1, &vars()).is_err());
        let one = [
            ("A".into(), Some("it's {\"b\":1}".into())),
            ("B".into(), None),
        ];
        let text = Format::Slurm.text("x", 1, &one).unwrap();
        assert_eq!(text, "export A=it's {\"b\":1}\nunset B\n");
    }
}
