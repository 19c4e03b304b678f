//! The table `[guard]` of the daemon's configuration.
//! Touches: its argument.

use super::bypass::Step;
use gpuslice_config::words::units::{Bytes, ParseBytesError};
use serde::Deserialize;
use std::time::Duration;

/// The table `[guard]` of the configuration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    /// The reaction to a host that runs short of memory; None warns if a GPU
    /// shares the host's memory or the driver lists no GPU, and else does nothing.
    pub(crate) memory: Option<Memory>,
    /// The reserve R of the host; None takes that of the policy, or the default.
    pub(crate) reserve: Option<Bytes>,
    /// The highest step against processes that hold memory beyond their slice; None turns the
    /// search off.
    pub(crate) bypass: Option<Step>,
    /// The difference between the driver's figure and the ledger's that is not suspicious.
    pub(crate) slack: Bytes,
    /// The time between two steps.
    pub(crate) pause: Duration,
    /// The names of programs outside the slices that may get a signal.
    pub(crate) programs: Vec<String>,
}

/// The reaction to a host that runs short of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Memory {
    /// Nothing.
    Off,
    /// It is logged, with the process that would get a signal.
    Warn,
    /// Caches are dropped, and processes get signals.
    Act,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Bypass {
    Off,
    Warn,
    Deny,
    Terminate,
    Kill,
}

/// The table as it may be written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Written {
    memory: Option<Memory>,
    reserve: Option<String>,
    bypass: Option<Bypass>,
    slack: Option<String>,
    step_seconds: Option<f64>,
    host: Option<WrittenHost>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenHost {
    programs: Vec<String>,
}

/// Reasons why the table cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    /// A size that is not understood.
    #[error("{key} in [guard]")]
    Size {
        /// The key.
        key: &'static str,
        /// The reason.
        source: ParseBytesError,
    },
    /// A time that is negative or too long.
    #[error("step_seconds in [guard]: {0} is not a number of seconds")]
    Pause(f64),
    /// The name of a program that no process can have.
    #[error(
        "programs in [guard.host]: \"{0}\" is not the name of a program (the name that ps -o comm \
         prints, at most 15 letters, without a path)"
    )]
    Program(String),
}

/// The longest name that the kernel keeps of a process.
const LONGEST: usize = 15;

impl TryFrom<Written> for Settings {
    type Error = SettingsError;

    fn try_from(written: Written) -> Result<Settings, SettingsError> {
        let size = |key, text: Option<String>| {
            let size = text.map(|text| text.parse::<Bytes>()).transpose();
            size.map_err(|source| SettingsError::Size { key, source })
        };
        let seconds = written.step_seconds.unwrap_or(10.0);
        let programs = written.host.map_or(Vec::new(), |host| host.programs);
        let is_name = |name: &String| {
            !name.is_empty() && name.len() <= LONGEST && !name.contains(['/', '\n', '\0'])
        };
        if let Some(wrong) = programs.iter().find(|name| !is_name(name)) {
            return Err(SettingsError::Program(wrong.clone()));
        }
        Ok(Settings {
            memory: written.memory,
            reserve: size("reserve", written.reserve)?,
            bypass: match written.bypass {
                Some(Bypass::Off) => None,
                None | Some(Bypass::Warn) => Some(Step::Warn),
                Some(Bypass::Deny) => Some(Step::Deny),
                Some(Bypass::Terminate) => Some(Step::Terminate),
                Some(Bypass::Kill) => Some(Step::Kill),
            },
            slack: size("slack", written.slack)?.unwrap_or(Bytes::mib(256)),
            pause: Duration::try_from_secs_f64(seconds)
                .map_err(|_| SettingsError::Pause(seconds))?,
            programs,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings, String> {
        let written: Written = toml::from_str(text).map_err(|error| error.to_string())?;
        Settings::try_from(written).map_err(|error| format!("{:#}", anyhow::Error::new(error)))
    }

    #[test]
    fn without_keys_the_guard_only_warns() {
        let settings = read("").unwrap();
        assert_eq!(settings.memory, None);
        assert_eq!(settings.bypass, Some(Step::Warn));
        assert_eq!((settings.slack, settings.reserve), (Bytes::mib(256), None));
        assert_eq!(settings.programs, Vec::<String>::new());
    }

    #[test]
    fn each_key_is_read() {
        let text = "memory = \"act\"\nreserve = \"4GiB\"\nbypass = \"kill\"\nslack = \"1GiB\"\n\
                    step_seconds = 0.5\n[host]\nprograms = [\"python3\"]\n";
        let settings = read(text).unwrap();
        assert_eq!(settings.memory, Some(Memory::Act));
        assert_eq!(settings.bypass, Some(Step::Kill));
        assert_eq!(settings.reserve, Some(Bytes::gib(4)));
        assert_eq!(settings.slack, Bytes::gib(1));
        assert_eq!(settings.pause, Duration::from_millis(500));
        assert_eq!(settings.programs, ["python3"]);
        assert_eq!(read("bypass = \"off\"").unwrap().bypass, None);
    }

    #[test]
    fn an_error_names_the_key() {
        for (text, part) in [
            ("memory = \"kill\"", "unknown variant `kill`"),
            ("reserve = \"8Q\"", "reserve in [guard]"),
            ("slack = \"1Q\"", "slack in [guard]"),
            ("step_seconds = -1.0", "-1 is not a number of seconds"),
            (
                "[host]\nprograms = [\"/bin/x\"]",
                "is not the name of a program",
            ),
            ("[host]\nprograms = [\"\"]", "is not the name of a program"),
            ("mode = 1", "unknown field `mode`"),
        ] {
            let failure = read(text).unwrap_err();
            assert!(failure.contains(part), "{text}: {failure}");
        }
    }
}
