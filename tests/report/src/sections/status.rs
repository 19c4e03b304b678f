//! What commands take: `gpuslice status` on a node with many slices, and `gpuslice run`.

use super::Setting;
use super::node::Node;
use crate::base::child;
use crate::measure::figure::{Measured, Unit};
use crate::measure::readings::Reading;
use crate::measure::rounds::interleave;
use anyhow::{Context, Result, ensure};
use std::process::Command;
use std::time::{Duration, Instant};

/// Runs a command, which must succeed, and measures it by the clock.
fn timed(figure: &str, command: &mut Command) -> Result<(Reading, String)> {
    let start = Instant::now();
    let said = child::output(command, Duration::from_secs(60))?;
    let nanoseconds = start.elapsed().as_secs_f64() * 1e9;
    Ok((Reading::one(figure, Unit::Nanoseconds, nanoseconds), said))
}

pub(crate) fn commands(setting: &Setting) -> Result<Measured> {
    let slices = setting.effort.of(64, 8);
    let node = Node::start(setting, slices)?;
    let mut json = node.gpuslice()?;
    let (_, said) = timed("", json.args(["status", "--json"]))?;
    let listed = said.matches("\"worker-").count();
    ensure!(listed >= slices, "gpuslice status lists {listed} slices");
    let variants: [(&str, &[&str]); 4] = [
        ("/bin/true", &[]),
        ("gpuslice --version", &["--version"]),
        ("gpuslice status", &["status"]),
        ("gpuslice status --json", &["status", "--json"]),
    ];
    let plan = setting.effort.plan(60);
    let names: Vec<String> = variants
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .collect();
    let mut measured = interleave(&names, plan, |place| {
        let (name, words) = variants.get(place).context("a command")?;
        let mut command = match name.starts_with('/') {
            true => Command::new(name),
            false => node.gpuslice()?,
        };
        let (reading, _) = timed("a command", command.args(*words))?;
        Ok(vec![reading])
    })?;
    measured.notes.push(node.description());
    let names = ["/bin/true", "gpuslice run -- /bin/true"].map(str::to_owned);
    measured.join(interleave(&names, plan, |place| {
        let mut command = match place {
            0 => Command::new("/bin/true"),
            _ => node.gpuslice()?,
        };
        if place > 0 {
            let words = ["run", "--sim=2xh200", "--memory=1GiB", "--overcommit", "--"];
            command.args(words).arg("/bin/true");
        }
        let (reading, _) = timed("the start of /bin/true in a slice", &mut command)?;
        Ok(vec![reading])
    })?);
    Ok(measured)
}
