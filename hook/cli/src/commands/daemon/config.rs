//! Reads the configuration of `gpusliced`.
//! Touches: its argument, a text.
//! Law: a file that worked with an earlier version works: the keys of `[page-cache]` may stand
//! outside of any table.

use super::guard::settings::{self as guard, Settings, SettingsError};
use crate::commands::cache::choose::SUFFIXES;
use crate::commands::cache::watch::Policy;
use crate::commands::metrics::Dialect;
use gpuslice_config::words::units::{Bytes, ParseBytesError};
use gpuslice_host::slices::meminfo_page::PERIOD;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The parts of the daemon that are configured.
#[derive(Debug, PartialEq)]
pub(crate) struct Config {
    /// The page cache; None if it is left alone.
    pub(crate) page_cache: Option<Policy>,
    /// The metrics; None if they are not served.
    pub(crate) metrics: Option<Metrics>,
    /// How often the meminfo pages of containers are written; None if they are not.
    pub(crate) meminfo: Option<Duration>,
    /// The guard; None if it is off.
    pub(crate) guard: Option<Settings>,
}

/// The table `[metrics]`.
#[derive(Debug, PartialEq)]
pub(crate) struct Metrics {
    /// Where clients connect.
    pub(crate) listen: Vec<Address>,
    /// The names of other exporters under which numbers are repeated.
    pub(crate) compatible: Vec<Dialect>,
}

/// An address that the daemon listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// An IP address and a port.
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
}

/// Reasons why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// The text is not TOML, or has an unknown key.
    #[error(transparent)]
    Text(#[from] toml::de::Error),
    /// Keys of `[page-cache]` are there twice.
    #[error("keys of [page-cache] stand both in that table and outside of it (move them into it)")]
    Twice,
    /// Keys of the page cache without folders.
    #[error("[page-cache] lacks paths, the folders of models")]
    NoPaths,
    /// A size that is not understood.
    #[error("smallest in [page-cache]")]
    Smallest(#[source] ParseBytesError),
    /// A time that is negative or too long.
    #[error("settle_seconds in [page-cache]: {0} is not a time")]
    Settle(f64),
    /// An address that is not understood.
    #[error(
        "listen in [metrics]: \"{0}\" is not an address (try \"127.0.0.1:9835\", or the path of a \
         socket: \"/run/gpusliced/metrics.sock\")"
    )]
    Address(String),
    /// A time between two looks that is too short or too long.
    #[error("interval_seconds in [meminfo]: {0} is not between 0.01 and 10")]
    Interval(f64),
    /// The table of the guard.
    #[error(transparent)]
    Guard(#[from] SettingsError),
    /// Nothing to do.
    #[error(
        "nothing is configured: give paths in [page-cache], listen in [metrics], [meminfo], or [guard]"
    )]
    Nothing,
}

/// The text, as it may be written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    paths: Option<Vec<PathBuf>>,
    smallest: Option<String>,
    suffixes: Option<Vec<String>>,
    settle_seconds: Option<f64>,
    #[serde(rename = "page-cache")]
    page_cache: Option<WrittenPageCache>,
    metrics: Option<WrittenMetrics>,
    meminfo: Option<WrittenMeminfo>,
    guard: Option<guard::Written>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenMeminfo {
    interval_seconds: Option<f64>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPageCache {
    paths: Option<Vec<PathBuf>>,
    smallest: Option<String>,
    suffixes: Option<Vec<String>>,
    settle_seconds: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenMetrics {
    listen: OneOrMore,
    #[serde(default)]
    compatible: Vec<Dialect>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

/// Reads a configuration.
///
/// # Errors
/// When it cannot be used, or configures nothing.
pub(crate) fn parse(text: &str) -> Result<Config, ConfigError> {
    let written: Written = toml::from_str(text)?;
    let outside = WrittenPageCache {
        paths: written.paths,
        smallest: written.smallest,
        suffixes: written.suffixes,
        settle_seconds: written.settle_seconds,
    };
    let is_outside = outside != WrittenPageCache::default();
    let page_cache = match (written.page_cache, is_outside) {
        (Some(_), true) => return Err(ConfigError::Twice),
        (None, true) => Some(outside),
        (inside, false) => inside,
    };
    let page_cache = page_cache.map(policy).transpose()?;
    let config = Config {
        page_cache: page_cache.filter(|policy| !policy.paths.is_empty()),
        metrics: written.metrics.map(metrics).transpose()?,
        meminfo: written.meminfo.map(interval).transpose()?,
        guard: written.guard.map(Settings::try_from).transpose()?,
    };
    match config {
        Config {
            page_cache: None,
            metrics: None,
            meminfo: None,
            guard: None,
        } => Err(ConfigError::Nothing),
        config => Ok(config),
    }
}

/// The processes that a configuration asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// gpusliced: metrics, the page cache or the meminfo pages.
    pub(crate) serves: bool,
    /// gpusliced --guard.
    pub(crate) guards: bool,
}

/// Returns which of the daemon's processes a configuration requires.
///
/// # Errors
/// When the text is invalid; the error describes the fault.
pub(crate) fn parts(text: &str) -> Result<Parts, String> {
    match parse(text) {
        Ok(config) => Ok(Parts {
            serves: config.page_cache.is_some()
                || config.metrics.is_some()
                || config.meminfo.is_some(),
            guards: config.guard.is_some(),
        }),
        Err(ConfigError::Text(error)) => Err(error.message().to_owned()),
        Err(error) => Err(format!("{:#}", anyhow::Error::new(error))),
    }
}

fn policy(written: WrittenPageCache) -> Result<Policy, ConfigError> {
    let smallest = written.smallest.map(|text| text.parse());
    let smallest = smallest.transpose().map_err(ConfigError::Smallest)?;
    let suffixes = written.suffixes;
    let seconds = written.settle_seconds.unwrap_or(2.0);
    Ok(Policy {
        paths: written.paths.ok_or(ConfigError::NoPaths)?,
        smallest: smallest.unwrap_or(Bytes::mib(64)),
        suffixes: suffixes.unwrap_or_else(|| SUFFIXES.map(str::to_owned).to_vec()),
        settle: Duration::try_from_secs_f64(seconds).map_err(|_| ConfigError::Settle(seconds))?,
    })
}

fn interval(written: WrittenMeminfo) -> Result<Duration, ConfigError> {
    let Some(seconds) = written.interval_seconds else {
        return Ok(PERIOD);
    };
    match (0.01..=10.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err(ConfigError::Interval(seconds)),
    }
}

fn metrics(written: WrittenMetrics) -> Result<Metrics, ConfigError> {
    let listen = match written.listen {
        OneOrMore::One(one) => vec![one],
        OneOrMore::More(more) => more,
    };
    let listen: Result<Vec<Address>, ConfigError> = listen.into_iter().map(address).collect();
    let listen = listen?;
    match listen.is_empty() {
        true => Err(ConfigError::Nothing),
        false => Ok(Metrics {
            listen,
            compatible: written.compatible,
        }),
    }
}

fn address(text: String) -> Result<Address, ConfigError> {
    if text.starts_with('/') {
        return Ok(Address::Unix(text.into()));
    }
    // Only numbers: a name would be looked up once, and could change later.
    match text.parse::<SocketAddr>() {
        Ok(address) => Ok(Address::Tcp(address)),
        Err(_) => Err(ConfigError::Address(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(text: &str) -> String {
        format!("{:#}", anyhow::Error::new(parse(text).unwrap_err()))
    }

    #[test]
    fn a_file_of_an_earlier_version_means_what_it_meant() {
        let keys = "paths = [\"/models\"]\nsmallest = \"1MiB\"\nsettle_seconds = 0.5\n";
        let old = parse(keys).unwrap();
        let new = parse(&format!("[page-cache]\n{keys}")).unwrap();
        assert_eq!(old, new);
        let policy = old.page_cache.unwrap();
        assert_eq!(policy.smallest, Bytes::mib(1));
        assert_eq!(policy.settle, Duration::from_millis(500));
        assert_eq!(policy.suffixes.len(), SUFFIXES.len());
        assert_eq!(old.metrics, None);
    }

    #[test]
    fn a_part_that_is_not_configured_is_off() {
        let both = "[page-cache]\npaths = [\"/m\"]\n[metrics]\nlisten = \"127.0.0.1:9835\"\n\
                    compatible = [\"hami\"]\n";
        let both = parse(both).unwrap();
        assert!(both.page_cache.is_some());
        let metrics = Metrics {
            listen: vec![Address::Tcp("127.0.0.1:9835".parse().unwrap())],
            compatible: vec![Dialect::Hami],
        };
        assert_eq!(both.metrics, Some(metrics));
        let only = parse("[metrics]\nlisten = [\"[::1]:1\", \"/run/a.sock\"]").unwrap();
        assert_eq!((only.page_cache, only.guard), (None, None));
        let pages = parse("[meminfo]\n").unwrap();
        assert_eq!((pages.metrics, pages.meminfo), (None, Some(PERIOD)));
        let slower = parse("[meminfo]\ninterval_seconds = 0.5\n").unwrap();
        assert_eq!(slower.meminfo, Some(Duration::from_millis(500)));
        let guard = parse("[guard]\n").unwrap();
        assert_eq!((guard.page_cache, guard.metrics), (None, None));
        assert!(guard.guard.is_some());
        let listen = only.metrics.unwrap().listen;
        assert_eq!(listen.len(), 2);
        assert_eq!(listen[1], Address::Unix("/run/a.sock".into()));
    }

    #[test]
    fn an_error_names_the_key_and_the_fix() {
        for (text, part) in [
            ("", "nothing is configured"),
            ("paths = []", "nothing is configured"),
            ("[metrics]\nlisten = []", "nothing is configured"),
            ("smalest = 1", "unknown field `smalest`"),
            ("[meminfo]\ninterval_seconds = 0.0", "0 is not between"),
            ("[meminfo]\ninterval_seconds = nan", "NaN is not between"),
            ("[guard]\nslack = \"1Q\"", "slack in [guard]"),
            ("[metrics]\nlisten = 1", "listen"),
            (
                "[metrics]\nlisten = \"localhost\"",
                "try \"127.0.0.1:9835\"",
            ),
            (
                "[metrics]\nlisten = \"[::1]:1\"\ncompatible = [\"x\"]",
                "`hami`",
            ),
            ("smallest = \"1MiB\"", "lacks paths"),
            (
                "paths = [\"/m\"]\n[page-cache]\npaths = []",
                "(move them into it)",
            ),
            (
                "paths = [\"/m\"]\nsmallest = \"12Q\"",
                "smallest in [page-cache]",
            ),
            (
                "paths = [\"/m\"]\nsettle_seconds = -1.0",
                "-1 is not a time",
            ),
        ] {
            let failure = failure(text);
            assert!(failure.contains(part), "{text}: {failure}");
        }
    }
}
