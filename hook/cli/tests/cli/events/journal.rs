//! Runs in the journal of a real journald: an entry with fields for each event.
//! Touches: a mount namespace of its own, in which /run is the test's. Needs root.

use super::{HERE, awaited};
use crate::support::{Home, told};
use std::collections::BTreeMap;
use std::process::Command;

/// Starts journald on a /run of its own, runs gpuslice, and prints its entries as JSON.
const JOURNALD: &str = r#"
    mount --make-rprivate / && mount --bind "$1" /run || exit 90
    mkdir -p /run/systemd/journal /run/systemd/journald.conf.d
    printf '[Journal]\nReadKMsg=no\nAudit=no\n' >/run/systemd/journald.conf.d/test.conf
    /lib/systemd/systemd-journald 2>/dev/null &
    journald=$!
    trap 'kill $journald; wait $journald' EXIT
    for tenth in $(seq 300); do [ -S /run/systemd/journal/socket ] && break; sleep 0.1; done
    shift
    "$@" || exit
    entries() { journalctl --directory /run/log/journal --identifier gpuslice --output json; }
    for tenth in $(seq 300); do [ "$(entries | wc -l)" -ge 2 ] && break; sleep 0.1; done
    entries
"#;

#[test]
fn a_run_is_in_the_journal_with_its_fields() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let (home, run) = (Home::new(), tempfile::tempdir_in("/dev/shm").unwrap());
    let mut command = Command::new("unshare");
    home.of(&mut command)
        .args(["--mount", "sh", "-c", JOURNALD, "sh"])
        .arg(run.path())
        .arg(HERE.executable())
        .args([
            "run",
            "--sim=rtx3090",
            "--memory=2GiB",
            "--name=llama",
            "--",
            "true",
        ]);
    let (out, err, status) = told(&mut command);
    assert_eq!((err.as_str(), status), ("", 0));
    awaited(&home, "end");
    let entries: Vec<BTreeMap<String, String>> = out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let [start, end] = entries.as_slice() else {
        panic!("a start and an end: {out}");
    };
    for (fields, kind, id) in [
        (start, "start", "86786b9db8cb476ea04805a2f40ee669"),
        (end, "end", "b5d7e5a4583a4b0eaa367dcd0fb1fd91"),
    ] {
        assert_eq!(
            (
                fields["GPUSLICE_EVENT"].as_str(),
                fields["MESSAGE_ID"].as_str()
            ),
            (kind, id)
        );
        assert_eq!(fields["PRIORITY"], "6");
        assert_eq!(fields["SYSLOG_IDENTIFIER"], "gpuslice");
        assert_eq!(fields["GPUSLICE_EVENT_SLICE"], "llama");
        assert_eq!(fields["GPUSLICE_EVENT_LIMIT"], (2u64 << 30).to_string());
        assert_eq!(fields["GPUSLICE_EVENT_SIMULATED"], "true");
    }
    assert_eq!(start["MESSAGE"], "llama started with 2.00 GiB");
    assert_eq!(end["GPUSLICE_EVENT_PEAK"], "0");
    assert!(end["GPUSLICE_EVENT_DURATION"].parse::<f64>().unwrap() > 0.0);
}
