//! Runs in the journal: a datagram with fields for each event.
//! Touches: a mount namespace of its own, in which /run is the test's. Needs root.

use super::{HERE, awaited};
use crate::support::{Home, told};
use std::collections::BTreeMap;
use std::os::unix::net::UnixDatagram;
use std::process::Command;

#[test]
fn a_run_is_in_the_journal_with_its_fields() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let (home, run) = (Home::new(), tempfile::tempdir_in("/dev/shm").unwrap());
    std::fs::create_dir_all(run.path().join("systemd/journal")).unwrap();
    let journal = UnixDatagram::bind(run.path().join("systemd/journal/socket")).unwrap();
    journal
        .set_read_timeout(Some(std::time::Duration::from_secs(60)))
        .unwrap();
    let next = || {
        let mut bytes = [0; 8192];
        let length = journal.recv(&mut bytes).unwrap();
        let text = std::str::from_utf8(&bytes[..length]).unwrap().to_owned();
        let fields = text.lines().map(|line| {
            let (name, value) = line.split_once('=').unwrap();
            (name.to_owned(), value.to_owned())
        });
        fields.collect::<BTreeMap<String, String>>()
    };
    let mut command = Command::new("unshare");
    home.of(&mut command)
        .args(["--mount", "sh", "-c"])
        .arg(r#"mount --make-rprivate / && mount --bind "$1" /run && shift && exec "$@""#)
        .arg("sh")
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
    let (_, err, status) = told(&mut command);
    assert_eq!((err.as_str(), status), ("", 0));
    let (start, end) = (next(), next());
    awaited(&home, "end");
    for (fields, kind, id) in [
        (&start, "start", "86786b9db8cb476ea04805a2f40ee669"),
        (&end, "end", "b5d7e5a4583a4b0eaa367dcd0fb1fd91"),
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
