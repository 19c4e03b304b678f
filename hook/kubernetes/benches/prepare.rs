//! Measures how long the kubelet waits for a prepared claim, and the driver's memory:
//! `cargo bench -p gpuslice-dra`. It needs root.
//! Touches: temporary folders, child processes, sockets.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::print_stdout,
    dead_code,
    unreachable_pub,
    reason = "the modules are those of the tests, and a bench that cannot be set up has failed"
)]

#[path = "../tests/dra/api_reports.rs"]
mod api_reports;
#[path = "../tests/dra/api_server.rs"]
mod api_server;
#[path = "../tests/dra/claims.rs"]
mod claims;
#[path = "../tests/dra/driver.rs"]
mod driver;
#[path = "../tests/dra/http_server.rs"]
mod http_server;
#[path = "../tests/dra/kubelet.rs"]
mod kubelet;
#[path = "../tests/dra/request.rs"]
mod request;
#[path = "../tests/dra/rules.rs"]
mod rules;

use claims::{CARD, claim, result, uid};
use std::fs;
use std::time::{Duration, Instant};

const COUNT: usize = 2000;

fn main() {
    let (node, kubelet) = driver::Node::registered();
    let memory = |key: &str| {
        let text = fs::read_to_string(format!("/proc/{}/status", node.pid())).unwrap();
        let line = text.lines().find(|line| line.starts_with(key)).unwrap();
        line.to_owned()
    };
    println!("at rest      {}", memory("VmRSS:"));
    let mut times: Vec<Duration> = (0..COUNT)
        .map(|number| {
            let results = [result("r", CARD, "8Gi", &uid(number))];
            node.api.add_claim(claim("c1", &uid(number), &results, &[]));
            let named = kubelet::named("c1", &uid(number));
            let start = Instant::now();
            let answer = kubelet.prepare_one(&named);
            let took = start.elapsed();
            assert_eq!(answer.error, "");
            took
        })
        .collect();
    times.sort_unstable();
    for (name, place) in [("median", 50), ("p99", 99), ("slowest", 100)] {
        println!("{name:12} {:?}", times[(COUNT - 1) * place / 100]);
    }
    println!("at its most  {}", memory("VmHWM:"));
    let program = env!("CARGO_BIN_EXE_gpuslice-dra");
    let size = fs::metadata(program).unwrap().len();
    println!("program      {size} bytes");
}
