//! A node with many slices, of four processes each, which hold memory of two simulated GPUs.
//! Touches: the built gpuslice and simulated driver; runs whose folders are in the workshop.

use super::Setting;
use crate::base::child::Running;
use crate::base::place;
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PROCESSES: usize = 4;
/// The simulated machine.
pub(crate) const GPUS: &str = "2xh200";

/// The node. Its slices end when this is dropped.
pub(crate) struct Node {
    home: PathBuf,
    slices: Vec<Running>,
}

impl Node {
    /// Starts slices, and waits until all of their processes hold memory.
    pub(crate) fn start(setting: &Setting, slices: usize) -> Result<Node> {
        let mut node = Node {
            home: setting.workshop.fresh("node")?,
            slices: Vec::new(),
        };
        let holder = setting.workshop.program("start");
        let script = format!("for one in $(seq {PROCESSES}); do \"$0\" hold <&3 & done 3<&0; wait");
        for number in 0..slices {
            let mut command = node.gpuslice()?;
            command
                .args(["run", "--memory=4GiB", "--overcommit"])
                .args([format!("--sim={GPUS}"), format!("--name=worker-{number}")])
                .args(["--", "sh", "-c", &script])
                .arg(&holder)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null());
            let mut run = Running::start(&mut command)?;
            let out = BufReader::new(run.0.stdout.take().context("its output")?);
            let said = out.lines().take(PROCESSES).filter(Result::is_ok).count();
            ensure!(said == PROCESSES, "a slice of the node did not start");
            node.slices.push(run);
        }
        Ok(node)
    }

    /// What a report says about it.
    pub(crate) fn description(&self) -> String {
        let slices = self.slices.len();
        format!(
            "{slices} slices and {} processes on two simulated H200",
            slices.saturating_mul(PROCESSES)
        )
    }

    /// A command for this node's slices.
    pub(crate) fn of<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("XDG_RUNTIME_DIR", &self.home)
            .env("XDG_STATE_HOME", &self.home)
            .env("GPUSLICE_SIM_STATE", self.machine())
    }

    /// `gpuslice` for this node's slices.
    pub(crate) fn gpuslice(&self) -> Result<Command> {
        let mut command = Command::new(place::target()?.join("release/gpuslice"));
        self.of(&mut command);
        Ok(command)
    }

    /// `gpusliced` of this node, with a configuration in a folder of its own.
    pub(crate) fn daemon(&self, folder: &str, config: &str) -> Result<Command> {
        let folder = self.home.join(folder);
        std::fs::create_dir_all(&folder)?;
        // The daemon is the same executable by another name.
        let (program, file) = (folder.join("gpusliced"), folder.join("gpusliced.toml"));
        std::os::unix::fs::symlink(place::target()?.join("release/gpuslice"), &program)?;
        std::fs::write(&file, config)?;
        let mut command = Command::new(program);
        self.of(&mut command).arg("--config").arg(file);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        Ok(command)
    }

    /// The folder of the simulated machine.
    pub(crate) fn machine(&self) -> PathBuf {
        self.home.join("machine")
    }

    /// The folder of the node's files.
    pub(crate) fn home(&self) -> &Path {
        &self.home
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Processes end with their input, and runs with their processes.
        for slice in &mut self.slices {
            drop(slice.0.stdin.take());
        }
        let start = Instant::now();
        for slice in &mut self.slices {
            while matches!(slice.0.try_wait(), Ok(None))
                && start.elapsed() < Duration::from_secs(20)
            {
                // No event reports the end of a child that others may wait for.
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}
