//! What a scrape of `gpusliced` takes.
//! Touches: a port of 127.0.0.1 that the kernel chooses.

use super::Setting;
use super::node::Node;
use crate::base::child::Running;
use crate::base::processor;
use crate::measure::effort::Plan;
use crate::measure::figure::{Measured, Unit};
use crate::measure::readings::Reading;
use crate::measure::rounds::interleave;
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

pub(crate) fn scrapes(setting: &Setting) -> Result<Measured> {
    let node = Node::start(setting, setting.effort.of(64, 8))?;
    let mut command = node.daemon("metrics", "[metrics]\nlisten = \"127.0.0.1:0\"\n")?;
    let mut daemon = Running::start(&mut command)?;
    let address = address(&mut daemon)?;
    // The first scrape asks the driver which GPUs there are.
    scrape(address)?;
    let plan = Plan {
        rounds: setting.effort.of(40, 3),
        limit: Duration::from_secs(60),
        compares: false,
    };
    let names = ["gpusliced".to_owned()];
    let mut measured = interleave(&names, plan, |_| {
        // A collection is valid for a second, so that a scrape after it collects anew.
        std::thread::sleep(Duration::from_millis(1100));
        let before = processor::of_process(daemon.0.id())?;
        let start = Instant::now();
        let text = scrape(address)?;
        let clock = start.elapsed().as_secs_f64() * 1e9;
        let used = (processor::of_process(daemon.0.id())? - before) * 1e9;
        let series = text
            .lines()
            .filter(|line| line.starts_with("gpuslice"))
            .count();
        ensure!(series > 0, "the metrics have no series");
        Ok(vec![
            Reading::one("a scrape", Unit::Nanoseconds, clock),
            Reading::one("a scrape, processor time", Unit::Nanoseconds, used),
            Reading::one("series", Unit::Number, series as f64),
        ])
    })?;
    measured.notes.push(node.description());
    Ok(measured)
}

/// The address that the daemon names when it listens. Its further lines go nowhere.
fn address(daemon: &mut Running) -> Result<SocketAddr> {
    let said = daemon.0.stderr.take().context("its messages")?;
    let mut lines = BufReader::new(said).lines().map_while(Result::ok);
    let found = lines.find_map(|line| {
        let (_, address) = line.split_once(": metrics are at http://")?;
        address.trim_end().strip_suffix("/metrics")?.parse().ok()
    });
    std::thread::spawn(move || lines.for_each(drop));
    found.context("gpusliced does not serve metrics")
}

fn scrape(address: SocketAddr) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(
        answer.starts_with("HTTP/1.1 200 "),
        "no metrics: {answer:.80}"
    );
    Ok(answer)
}
