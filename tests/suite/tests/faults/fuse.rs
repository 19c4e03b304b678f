//! File systems in user space that are slow, that hang, and whose server is dead.
//! Touches: hosts of their own, with FUSE mounts. Needs root and /dev/fuse.

use super::bench::host::{Host, ends, succeeds};
use super::bench::life::{self, Judge};
use super::row::{Outcome, Row, injections, is_root, kinds, not_run, right};
use gpuslice_suite::compile;
use gpuslice_suite::run::Run;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

/// The folder of the mount, and its one file.
const FOLDER: &str = "/mnt/fuse";
const MODEL: &str = "/mnt/fuse/model.safetensors";
/// The checksum and the length that cksum prints for 4 MiB of zeros.
const CHECKSUM: &str = "3413741448 4194304";

/// A mount and its server.
struct Mount<'a> {
    host: &'a Host,
    server: Child,
}

impl Mount<'_> {
    /// Mounts a file system whose reads take so many ms, or "hang".
    fn new<'a>(host: &'a Host, how: &str) -> Option<Mount<'a>> {
        let program = compile::c("fuse_folder");
        let _ = std::fs::create_dir(host.path(FOLDER));
        let mut command = host.run(program).args([FOLDER, how]).into_command();
        let mut server = command.stdout(Stdio::piped()).spawn().expect("nsenter");
        let mut line = String::new();
        let out = server.stdout.take().expect("a pipe");
        let _ = BufReader::new(out).read_line(&mut line);
        let mount = Mount { host, server };
        (line == "serving\n").then_some(mount)
    }

    /// Kills the server. The mount stays, dead.
    fn dies(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        self.dies();
        let script = format!("umount -l {FOLDER}; rmdir {FOLDER}");
        let _ = self.host.run("sh").args(["-c", &script]).answer();
    }
}

/// A run in a slice that reads the model.
fn reader(host: &Host, page_cache: &str) -> Run {
    let page_cache = format!("--page-cache={page_cache}");
    let run = host.gpuslice(&["run", "--sim", "rtx3090", "--memory=8GiB", &page_cache]);
    run.args(["--", "cksum", MODEL])
}

fn slow(host: &Host, page_cache: &str) -> Outcome {
    let _mount = Mount::new(host, "5").expect("a mount");
    let said = succeeds(reader(host, page_cache))?;
    right(said.stdout.starts_with(CHECKSUM), || format!("{said:?}"))?;
    succeeds(host.gpuslice(&["drop-cache", MODEL])).map(drop)
}

/// A program hangs in a read. Others go on; when the server dies, the program gets an error.
fn hangs(host: &Host, page_cache: &str) -> Outcome {
    let mut mount = Mount::new(host, "hang").expect("a mount");
    let mut command = reader(host, page_cache).into_command();
    let mut child = command
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("a run");
    let beside = ends(host.life(Judge::Strictly)).and_then(|life| Judge::Strictly.answer(&life));
    let shown = host.status();
    let collected = succeeds(host.gpuslice(&["gc"]));
    mount.dies();
    let ended = child.wait().expect("its end");
    right(ended.code() == Some(1), || {
        format!("the reader ends with {ended}")
    })?;
    beside?;
    shown?;
    collected.map(drop)
}

/// The server is dead before the command starts.
fn dead(host: &Host, how: usize) -> Outcome {
    let mut mount = Mount::new(host, "0").expect("a mount");
    mount.dies();
    let life = host.life(Judge::Strictly);
    let life = match how {
        0 => {
            let said = ends(reader(host, "drop"))?;
            right(said.end == "exit 1", || format!("{said:?}"))?;
            life
        }
        1 => life
            .env("GPUSLICE_LOG", "info")
            .env("GPUSLICE_LOG_FILE", MODEL),
        2 => life.env("XDG_RUNTIME_DIR", FOLDER),
        3 => life.env("XDG_STATE_HOME", FOLDER),
        4 => life.env("TMPDIR", FOLDER),
        5 => life.env("HOME", FOLDER).env("XDG_CONFIG_HOME", FOLDER),
        _ => {
            let config = format!("{FOLDER}/slice.json");
            let said = ends(host.gpuslice(&["run", "--config", &config, "--", "true"]))?;
            right(
                said.end == "exit 125" && said.stderr.starts_with("gpuslice: "),
                || format!("{said:?}"),
            )?;
            life
        }
    };
    let said = ends(life)?;
    // The watcher of the run would find the folder below the mount.
    host.is_idle()?;
    right(said.end == life::LIVED, || format!("case {how}: {said:?}"))
}

/// A process names a slice file that hangs. Commands of others do not wait for it.
fn named_by_a_process(host: &Host) -> Outcome {
    let mut mount = Mount::new(host, "hang-all").expect("a mount");
    let sleep = host.run("sleep").arg("1000").env("GPUSLICE_CONFIG", MODEL);
    let mut sleeper = sleep.into_command().spawn().expect("a process");
    let beside = ends(host.life(Judge::Strictly)).and_then(|life| Judge::Strictly.answer(&life));
    let shown = host.status();
    let collected = succeeds(host.gpuslice(&["gc"]));
    let _ = sleeper.kill();
    let _ = sleeper.wait();
    mount.dies();
    beside?;
    shown?;
    collected.map(drop)
}

fn row(
    name: &'static str,
    title: &'static str,
    ways: usize,
    by_default: usize,
    act: impl Fn(&Host, usize) -> Outcome,
) {
    if !is_root() || !Path::new("/dev/fuse").exists() {
        return not_run(name, title, "needs root and /dev/fuse");
    }
    let host = Host::new();
    if Mount::new(&host, "0").is_none() {
        return not_run(name, title, "no FUSE file system can be mounted here");
    }
    let mut row = Row::new(name, title);
    for way in kinds(ways, injections(by_default)) {
        row.inject(format!("way {way}"), || {
            act(&host, way)?;
            host.is_as_new()
        });
    }
    row.finish();
}

const WAYS: [&str; 3] = ["keep", "drop", "drop-behind"];

#[test]
fn model_files_on_a_slow_fuse_are_read_whole() {
    row(
        "fuse-slow",
        "A slow FUSE file system below model files",
        3,
        2,
        |host, way| slow(host, WAYS[2 - way]),
    );
}

#[test]
fn beside_a_program_that_hangs_in_a_fuse_others_go_on() {
    row(
        "fuse-hangs",
        "A FUSE file system hangs below model and slice files",
        4,
        2,
        |host, way| match way {
            0 => named_by_a_process(host),
            other => hangs(host, WAYS[other % 3]),
        },
    );
}

#[test]
fn a_dead_fuse_stops_no_run_that_does_not_need_it() {
    row(
        "fuse-dead",
        "The server of a FUSE file system is dead",
        7,
        4,
        dead,
    );
}
