//! Checks gpusliced and the MPS daemon.
//! Touches: the configuration of gpusliced; the state of its guard; command lines in /proc.

use super::is_here;
use crate::commands::daemon;
use crate::commands::daemon::guard_state as state;
use crate::commands::doctor::codes::Code;
use crate::commands::doctor::finding::Finding;
use gpuslice_host::base::paths::HostPaths;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The daemon's configuration, below the root.
const CONFIG: &str = "etc/gpuslice/gpusliced.toml";

/// The daemon's name, which is also its first word.
const DAEMON: &str = "gpusliced";

/// The program of MPS that runs as long as MPS is on.
const MPS: &str = "nvidia-cuda-mps-control";

/// The seconds without a sign of life after which the guard counts as hanging. It writes one every
/// five seconds, but a driver may keep it waiting.
const SILENCE: u64 = 60;

/// Adds the findings about daemons.
pub(super) fn check(places: &HostPaths, found: &mut Vec<Finding>) {
    let commands = commands();
    found.extend(gpusliced(&places.root().join(CONFIG), &commands));
    if commands
        .iter()
        .any(|words| is_called(words, DAEMON) && is_guard(words))
    {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let seen = state::read(places).map(|state| state.seen);
        found.extend(silent_guard(seen, now.map_or(0, |since| since.as_secs())));
    }
    let mps = commands.iter().any(|words| is_called(words, MPS));
    if mps && is_here(places) {
        let sentence = format!(
            "{MPS} runs: programs of this host may share GPUs by MPS, which has limits of its own"
        );
        found.push(Finding::new(Code::MpsDaemon, sentence));
    }
}

type Words = Vec<Vec<u8>>;

/// Returns the command lines of all processes.
fn commands() -> Vec<Words> {
    let listed = fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = listed.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines
        .map(|line| line.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect())
        .collect()
}

fn is_called(words: &Words, name: &str) -> bool {
    let program = words.first().map(|word| Path::new(OsStr::from_bytes(word)));
    program.and_then(Path::file_name) == Some(OsStr::new(name))
}

fn is_guard(words: &Words) -> bool {
    words.iter().any(|word| word == b"--guard")
}

/// Reports a guard that runs and was last `seen` working long before `now`, both in seconds since
/// 1970.
fn silent_guard(seen: Option<u64>, now: u64) -> Option<Finding> {
    let silence = now.saturating_sub(seen?);
    let sentence =
        format!("gpusliced --guard runs, but has not updated guard.json for {silence} s");
    (silence > SILENCE).then(|| Finding::new(Code::GuardHangs, sentence))
}

fn gpusliced(config: &Path, commands: &[Words]) -> Vec<Finding> {
    let shown = config.display();
    let Ok(text) = fs::read_to_string(config) else {
        return Vec::new();
    };
    let parts = match daemon::parts(&text) {
        Ok(parts) => parts,
        Err(fault) => {
            let fault = crate::base::text::printable(&fault);
            let sentence = format!("gpusliced cannot start: in {shown}, {fault}");
            return vec![Finding::new(Code::DaemonInvalid, sentence)];
        }
    };
    let runs = |as_guard: bool| {
        let reads = |words: &&Words| is_called(words, DAEMON) && configuration(words) == config;
        let mut own = commands.iter().filter(reads);
        own.any(|words| is_guard(words) == as_guard)
    };
    let mut found = Vec::new();
    if parts.serves && !runs(false) {
        let sentence = format!("{shown} configures gpusliced, which does not run");
        found.push(Finding::new(Code::DaemonNotRunning, sentence));
    }
    if parts.guards && !runs(true) {
        let sentence = format!("{shown} configures [guard], but gpusliced --guard does not run");
        found.push(Finding::new(Code::DaemonNotRunning, sentence));
    }
    found
}

/// Returns the configuration that a gpusliced reads.
fn configuration(words: &Words) -> PathBuf {
    let name = b"--config";
    let mut all = words.iter();
    let given = all.find_map(|word| {
        let rest = word.strip_prefix(name)?;
        Some(rest.strip_prefix(b"=").map(<[u8]>::to_vec))
    });
    let path = given.and_then(|given| given.or_else(|| all.next().cloned()));
    match path {
        Some(path) => PathBuf::from(OsStr::from_bytes(&path)),
        None => Path::new("/").join(CONFIG),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Words {
        line.split(' ')
            .map(|word| word.as_bytes().to_vec())
            .collect()
    }

    #[test]
    fn the_configuration_is_the_one_of_the_command_line() {
        for (line, config) in [
            ("/usr/sbin/gpusliced", "/etc/gpuslice/gpusliced.toml"),
            ("gpusliced --config /a.toml", "/a.toml"),
            ("gpusliced --config=/b.toml", "/b.toml"),
        ] {
            assert_eq!(configuration(&words(line)), Path::new(config), "{line}");
            assert!(is_called(&words(line), "gpusliced"));
        }
    }

    #[test]
    fn a_daemon_that_reads_another_file_does_not_count() {
        let place = tempfile::tempdir().unwrap();
        let config = place.path().join("gpusliced.toml");
        let codes = |commands: &[Words]| {
            let found = gpusliced(&config, commands).into_iter();
            found.map(|found| found.code).collect::<Vec<_>>()
        };
        assert_eq!(codes(&[]), []);
        fs::write(&config, "paths = [\"/models\"]\n").unwrap();
        let own = words(&format!("/usr/bin/gpusliced --config {}", config.display()));
        assert_eq!(codes(std::slice::from_ref(&own)), []);
        assert_eq!(
            codes(&[words("gpusliced"), words("sleep 5")]),
            [Code::DaemonNotRunning]
        );
        fs::write(&config, "path = [\"/models\"]\n").unwrap();
        assert_eq!(codes(&[own]), [Code::DaemonInvalid]);
    }

    #[test]
    fn the_guard_is_a_process_of_its_own() {
        let place = tempfile::tempdir().unwrap();
        let config = place.path().join("gpusliced.toml");
        let line = |guard: &str| words(&format!("gpusliced {guard} --config {}", config.display()));
        let (serves, guards) = (line(""), line("--guard"));
        let sentences = |commands: &[Words]| {
            let found = gpusliced(&config, commands).into_iter();
            found.map(|found| found.sentence).collect::<Vec<_>>()
        };
        fs::write(&config, "[guard]\n[page-cache]\npaths = [\"/models\"]\n").unwrap();
        assert_eq!(sentences(&[]).len(), 2);
        assert_eq!(
            sentences(&[serves.clone(), guards.clone()]),
            Vec::<String>::new()
        );
        let missing = sentences(&[serves]);
        assert_eq!(missing.len(), 1);
        assert!(missing[0].ends_with("configures [guard], but gpusliced --guard does not run"));
        fs::write(&config, "[guard]\n").unwrap();
        assert_eq!(sentences(&[guards]), Vec::<String>::new());
    }

    #[test]
    fn a_guard_that_has_done_nothing_for_long_is_reported() {
        let code = |seen, now| silent_guard(seen, now).map(|found| found.code);
        assert_eq!(code(Some(1000), 1061), Some(Code::GuardHangs));
        // A driver kept it waiting; it has only just started; the clock was set back.
        assert_eq!(code(Some(1000), 1060), None);
        assert_eq!(code(None, 1061), None);
        assert_eq!(code(Some(1000), 5), None);
    }
}
