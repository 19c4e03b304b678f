//! What the guard costs a node: at its usual rate, and near the host's reserve, where it looks each
//! second.

use super::Setting;
use super::node::{GPUS, Node};
use crate::base::child::Running;
use crate::base::{place, processor};
use crate::measure::effort::Plan;
use crate::measure::figure::{Measured, Unit};
use crate::measure::readings::Reading;
use crate::measure::rounds::interleave;
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::{Duration, Instant};

pub(crate) fn share(setting: &Setting) -> Result<Measured> {
    let node = Node::start(setting, setting.effort.of(64, 8))?;
    let low = node.home().join("meminfo");
    let text =
        "MemTotal:       67108864 kB\nMemFree:         4000000 kB\nMemAvailable:    4000000 kB\n";
    std::fs::write(&low, text)?;
    let guards = [
        guard(
            &node,
            "usual",
            "memory = \"act\"",
            Path::new("/proc/meminfo"),
        )?,
        guard(&node, "low", "memory = \"warn\"\nreserve = \"4GiB\"", &low)?,
    ];
    let names = ["the host has memory", "near the reserve"].map(str::to_owned);
    // The first looks of a guard take longer.
    std::thread::sleep(Duration::from_secs(5));
    let plan = Plan {
        rounds: setting.effort.of(3, 1),
        limit: Duration::from_secs(240),
        compares: false,
    };
    let window = Duration::from_secs(setting.effort.of(30, 5));
    let mut measured = interleave(&names, plan, |place| {
        let guard = guards.get(place).context("a guard")?;
        let before = processor::of_process(guard.0.id())?;
        let start = Instant::now();
        // The share is a rate, so it takes time to measure.
        std::thread::sleep(window);
        let used = processor::of_process(guard.0.id())? - before;
        let share = used / start.elapsed().as_secs_f64() * 100.0;
        Ok(vec![Reading::one("the guard", Unit::PercentOfCore, share)])
    })?;
    measured.notes.push(format!(
        "{}, windows of {} s",
        node.description(),
        window.as_secs()
    ));
    Ok(measured)
}

/// Starts a guard of the node with these keys, on a host with this meminfo.
fn guard(node: &Node, name: &str, keys: &str, meminfo: &Path) -> Result<Running> {
    // Its state is not that of this host's guard.
    let root = node.home().join(format!("root-{name}"));
    std::fs::create_dir_all(root.join("run/gpuslice"))?;
    let mut command = node.daemon(name, &format!("[guard]\n{keys}\n"))?;
    command
        .arg("--guard")
        .arg("--meminfo")
        .arg(meminfo)
        .arg("--root")
        .arg(&root)
        .env("GPUSLICE_SIM", GPUS)
        .env("LD_LIBRARY_PATH", place::target()?.join("sim"));
    let mut guard = Running::start(&mut command)?;
    let said = guard.0.stderr.take().context("its messages")?;
    let mut lines = BufReader::new(said).lines().map_while(Result::ok);
    let mut said = String::new();
    let works = lines.any(|line| {
        let begun = line.contains("compares what the driver reports");
        said = line;
        begun
    });
    ensure!(works, "the guard does not work: {said}");
    std::thread::spawn(move || lines.for_each(drop));
    Ok(guard)
}
