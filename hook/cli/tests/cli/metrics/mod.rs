//! `gpuslice metrics` and the metrics of `gpusliced`.
//! Touches: children in folders of their own; ports of 127.0.0.1; Prometheus and node_exporter, as
//! `tests/setup.sh monitoring` unpacks them.

mod containers;
mod daemon;
mod hostile;
mod monitoring;
mod names;
mod output;
mod pages;
mod prometheus;
mod scale;

use crate::support::{Home, Installation, spawn, start, told};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

static HERE: LazyLock<Installation> = LazyLock::new(|| {
    let here = Installation::new("metrics");
    // The daemon is the same executable by another name.
    fs::hard_link(here.executable(), here.folder.join("gpusliced")).unwrap();
    here
});

const LLAMA: [&str; 3] = ["--sim=rtx3090", "--memory=8GiB", "--name=llama"];

/// A slice that lasts until its standard input ends, and its slice file.
fn slice(home: &Home, options: &[&str]) -> (Child, String) {
    let mut command = HERE.run(options, "echo $GPUSLICE_CONFIG; read line");
    start(home.of(&mut command).stdin(Stdio::piped()))
}

fn end(mut child: Child) {
    drop(child.stdin.take());
    child.wait().unwrap();
}

/// What `gpuslice metrics` prints.
fn metrics(home: &Home, options: &[&str]) -> String {
    let mut command = HERE.gpuslice();
    let (out, err, status) = told(home.of(&mut command).arg("metrics").args(options));
    assert_eq!((err.as_str(), status), ("", 0));
    out
}

/// What `gpuslice status --json` prints.
fn status(home: &Home) -> Value {
    let mut command = HERE.gpuslice();
    let (out, _, _) = told(home.of(&mut command).args(["status", "--json"]));
    serde_json::from_str(&out).unwrap()
}

/// The samples of a text by name and labels. A sample that is there twice is an error.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (key, value) = line.rsplit_once(' ').unwrap();
        let twice = samples.insert(key.to_owned(), value.parse().unwrap());
        assert_eq!(twice, None, "{key} is there twice");
    }
    samples
}

/// The sum of the samples of a metric that have all of these labels; None if there are none.
fn sum(samples: &BTreeMap<String, f64>, name: &str, labels: &[&str]) -> Option<f64> {
    let start = format!("{name}{{");
    let mut found = samples
        .iter()
        .filter(|(key, _)| {
            let is_it = key.starts_with(&start) || *key == name;
            is_it && labels.iter().all(|label| key.contains(label))
        })
        .map(|(_, value)| *value);
    let first = found.next()?;
    Some(found.fold(first, |sum, value| sum + value))
}

/// A program of `tests/setup.sh monitoring`.
fn program(name: &str) -> PathBuf {
    let target = std::env::var_os("GPUSLICE_TARGET").map(PathBuf::from);
    let target =
        target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"));
    let path = target.join("monitoring/usr/bin").join(name);
    assert!(
        path.exists(),
        "run tests/setup.sh monitoring first: {path:?}"
    );
    path
}

/// The daemon, which serves metrics.
struct Daemon {
    process: Child,
    said: BufReader<std::process::ChildStderr>,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Daemon {
    /// Starts it with these lines in `[metrics]`, on a port that the kernel chooses.
    fn start(home: &Home, more: &str) -> Daemon {
        Daemon::of(
            home,
            &format!("[metrics]\nlisten = \"127.0.0.1:0\"\n{more}"),
        )
    }

    /// Starts it with a configuration, whose first address is of the network.
    fn of(home: &Home, config: &str) -> Daemon {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gpusliced.toml");
        fs::write(&file, config).unwrap();
        let mut daemon = std::process::Command::new(HERE.folder.join("gpusliced"));
        for (name, _) in HERE.gpuslice().get_envs() {
            daemon.env_remove(name);
        }
        home.of(&mut daemon).arg("--config").arg(&file);
        let mut process = spawn(daemon.stderr(Stdio::piped()));
        let said = BufReader::new(process.stderr.take().unwrap());
        let mut daemon = Daemon {
            process,
            said,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            _folder: folder,
        };
        let address = loop {
            let line = daemon.line();
            assert!(line.starts_with("gpusliced: "), "it ended: {line}");
            if let Some((_, address)) = line.trim().split_once(": metrics are at http://") {
                break address.to_owned();
            }
        };
        daemon.address = address.strip_suffix("/metrics").unwrap().parse().unwrap();
        daemon
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        stream
    }

    /// Sends bytes, and reads the answer to its end.
    fn ask(&self, request: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8(answer).unwrap()
    }

    /// The body of a page.
    fn get(&self, path: &str) -> String {
        let answer = self.ask(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        let length = format!("Content-Length: {}\r\n", body.len());
        assert!(head.contains(&length), "{head}");
        body.to_owned()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
