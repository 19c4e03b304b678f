//! A simulated machine that several runs share.
//! Touches: /dev/shm.

use crate::support::{Home, Installation, eventually, spawn, start, told};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A simulated machine, and a home for the runs on it.
pub(crate) struct Machine {
    here: &'static Installation,
    sim: String,
    pub(crate) home: Home,
    pub(crate) state: TempDir,
}

impl Machine {
    /// Makes a machine that no other test uses.
    pub(crate) fn new(here: &'static Installation, sim: &str) -> Machine {
        Machine {
            here,
            sim: format!("--sim={sim}"),
            home: Home::new(),
            state: tempfile::tempdir_in("/dev/shm").unwrap(),
        }
    }

    /// Its name, for a program that is started without `gpuslice run`.
    pub(crate) fn name(&self) -> &str {
        self.sim.trim_start_matches("--sim=")
    }

    /// `gpuslice run` of a shell script on this machine, with these options.
    pub(crate) fn run(&self, options: &[&str], script: &str) -> Command {
        self.run_command(options, &["sh", "-c", script])
    }

    /// `gpuslice run` of a command on this machine, with these options.
    pub(crate) fn run_command(&self, options: &[&str], words: &[&str]) -> Command {
        let mut command = self.here.gpuslice();
        self.home
            .of(&mut command)
            .env("GPUSLICE_SIM_STATE", self.state.path());
        command
            .args(["run", &self.sim])
            .args(options)
            .arg("--")
            .args(words);
        command
    }

    /// Starts a run that lasts until its standard input ends. Returns it with its slice file.
    pub(crate) fn slice(&self, options: &[&str]) -> (Child, PathBuf) {
        let mut command = self.run(options, "echo $GPUSLICE_CONFIG; read line");
        let (child, config) = start(command.stdin(Stdio::piped()));
        (child, config.into())
    }

    /// Starts `count` runs of one size at once. Returns them all, and the number of admitted ones.
    pub(crate) fn start_at_once(&self, count: usize, size: &str) -> (Vec<Child>, usize) {
        let mut children: Vec<Child> = (0..count)
            .map(|_| {
                let mut command = self.run(&[size], "echo started; read line");
                command.stdin(Stdio::piped()).stdout(Stdio::piped());
                spawn(command.stderr(Stdio::null()))
            })
            .collect();
        let started = children.iter_mut().filter_map(|child| {
            let mut line = String::new();
            let out = child.stdout.as_mut().unwrap();
            BufReader::new(out).read_line(&mut line).unwrap();
            (line == "started\n").then_some(())
        });
        let started = started.count();
        (children, started)
    }

    /// Starts a run that ends at once without a message.
    pub(crate) fn starts(&self, options: &[&str]) {
        let (out, err, status) = told(&mut self.run(options, "echo started"));
        assert_eq!((out.as_str(), err.as_str(), status), ("started\n", "", 0));
    }

    /// The records of admitted runs in the folder `tenants` or `promises`.
    pub(crate) fn records(&self, folder: &str) -> Vec<PathBuf> {
        let listed = fs::read_dir(self.state.path().join(folder));
        let listed = listed.into_iter().flatten();
        listed.map(|entry| entry.unwrap().path()).collect()
    }

    /// Waits until no run is recorded.
    pub(crate) fn is_empty(&self, folder: &str) {
        eventually("the records are gone", || self.records(folder).is_empty());
    }
}

/// Ends a run of [`Machine::slice`].
pub(crate) fn end(mut child: Child) {
    drop(child.stdin.take());
    child.wait().unwrap();
}
