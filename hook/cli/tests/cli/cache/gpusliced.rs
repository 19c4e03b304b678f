//! `gpusliced`, with programs that no preload reaches and that are killed. The daemon watches a
//! whole filesystem, on which other tests have files. So the file names contain this process's pid.

use crate::support::{spawn, start, told};
use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use tempfile::TempDir;

const SIZE: usize = 8 << 20;

/// Returns a name or a suffix that no other run of these tests uses. The daemon of another run
/// would otherwise drop these files first.
pub(super) fn own(name: &str) -> String {
    format!("{name}{}", std::process::id())
}

/// The daemon, and its messages.
pub(super) struct Daemon {
    pub(super) process: Child,
    said: BufReader<ChildStderr>,
}

impl Daemon {
    fn start(folder: &Path, config: &str) -> Daemon {
        Daemon::start_by(&[], folder, config)
    }

    /// Starts a daemon by the command `by`, which executes its further arguments.
    pub(super) fn start_by(by: &[&str], folder: &Path, config: &str) -> Daemon {
        // The daemon is the same executable under another name.
        let named = folder.join("gpusliced");
        fs::hard_link(env!("CARGO_BIN_EXE_gpuslice"), &named).unwrap();
        let file = folder.join("gpusliced.toml");
        fs::write(&file, config).unwrap();
        let mut words = by.iter().map(OsStr::new).chain([named.as_os_str()]);
        let mut command = Command::new(words.next().unwrap());
        command.args(words).arg("--config").arg(file);
        command.stderr(Stdio::piped());
        let mut process = spawn(&mut command);
        let said = BufReader::new(process.stderr.take().unwrap());
        Daemon { process, said }
    }

    /// Starts a daemon that already watches, for files of at least 4 MiB with this suffix.
    fn watching(folder: &Path, suffix: &str, settle_seconds: f64) -> Daemon {
        let config = format!(
            "paths = [{folder:?}]\nsmallest = \"4MiB\"\nsuffixes = [\"{suffix}\"]\nsettle_seconds = {settle_seconds:?}\n"
        );
        let mut daemon = Daemon::start(folder, &config);
        daemon.until("watching the filesystem of");
        daemon
    }

    /// Reads until a line contains `part`. Returns the lines before it, and the line itself.
    pub(super) fn until(&mut self, part: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let read = self.said.read_line(&mut line).unwrap();
            assert!(
                read > 0,
                "the daemon ended before it printed \"{part}\": {lines:?}"
            );
            lines.push(line);
            if lines.last().is_some_and(|line| line.contains(part)) {
                return lines;
            }
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(super) fn folder() -> TempDir {
    // The folder is on a device, and the executable can be linked into it.
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

pub(super) fn write(path: &Path) {
    fs::write(path, (0u8..251).cycle().take(SIZE).collect::<Vec<u8>>()).unwrap();
}

fn read(path: &Path) {
    let mut all = Vec::new();
    File::open(path).unwrap().read_to_end(&mut all).unwrap();
    assert_eq!(all.len(), SIZE);
}

fn resident(path: &Path) -> u64 {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuslice"));
    let (out, err, status) = told(command.args(["residency", "--json"]).arg(path));
    assert_eq!((err.as_str(), status), ("", 0));
    let said: serde_json::Value = serde_json::from_str(&out).unwrap();
    said.get("before").unwrap().as_u64().unwrap()
}

/// Whether the file is still cached. The kernel may have evicted some of its pages.
fn is_cached(path: &Path) -> bool {
    resident(path) > SIZE as u64 / 2
}

/// How a scanner opens files. Children of other tests must not inherit the descriptors, because
/// they would keep the files open.
fn opened() -> EventFFlags {
    EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC
}

#[test]
fn a_static_program_that_is_killed_leaves_nothing_in_the_page_cache() {
    let folder = folder();
    let holder = folder.path().join("holder");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/holder.c");
    let mut compile = Command::new("cc");
    let (_, said, status) = told(
        compile
            .args(["-static", "-O1", "-o"])
            .arg(&holder)
            .arg(source),
    );
    assert_eq!(status, 0, "{said}");
    let mut daemon = Daemon::watching(folder.path(), &own("weights"), 0.2);

    // A file that was written and closed is dropped, but only after it is on the device.
    let model = folder.path().join(own("model.weights"));
    write(&model);
    daemon.until(&(own("/model.weights") + ", 0 B left"));
    assert_eq!(resident(&model), 0);

    // While the static program has the file mapped, other programs that read and close it change
    // nothing.
    let (mut child, said) = start(Command::new(&holder).arg(&model).stdin(Stdio::piped()));
    assert_eq!(said, "ready");
    read(&model);
    let marker = folder.path().join(own("marker.weights"));
    write(&marker);
    // The marker was closed after the model and is dropped, so the daemon has already handled the
    // model.
    let on_the_way = daemon.until(&(own("/marker.weights") + ", 0 B left"));
    let of_the_model = |line: &&String| line.contains(&own("/model.weights"));
    assert_eq!(on_the_way.iter().find(of_the_model), None);
    assert!(is_cached(&model));

    child.kill().unwrap();
    child.wait().unwrap();
    daemon.until(&(own("/model.weights") + ", 0 B left"));
    assert_eq!(resident(&model), 0);
    read(&model);
    daemon.until(&(own("/model.weights") + ", 0 B left"));
}

#[test]
fn a_pipe_that_nobody_writes_to_does_not_stop_the_daemon() {
    let folder = folder();
    let suffix = own("piped");
    let mut daemon = Daemon::watching(folder.path(), &suffix, 0.0);
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    drop(File::options().read(true).write(true).open(&pipe).unwrap());
    let model = folder.path().join(format!("model.{suffix}"));
    write(&model);
    daemon.until("model");
}

#[test]
fn other_files_and_small_ones_stay() {
    let folder = folder();
    let mut daemon = Daemon::watching(folder.path(), &own("tensors"), 0.0);
    let at = |name: &str| folder.path().join(name);
    write(&at("other.gguf"));
    fs::write(at(&own("small.tensors")), vec![1; 1 << 20]).unwrap();
    write(&at(&own("model.tensors")));
    let said = daemon.until(&(own("/model.tensors") + ", 0 B left"));
    let dropped = said.iter().filter(|line| line.contains("dropped"));
    assert_eq!(dropped.count(), 1, "{said:?}");
    assert!(is_cached(&at("other.gguf")));
    assert!(resident(&at(&own("small.tensors"))) > 0);
}

#[test]
fn who_also_watches_and_lets_go_later_keeps_nothing_in_the_page_cache() {
    let folder = folder();
    let mut daemon = Daemon::watching(folder.path(), &own("scanned"), 0.0);
    // A scanner gets an open descriptor for each file that it is notified of. No event reports when
    // it closes that descriptor.
    let group = InitFlags::FAN_CLASS_NOTIF | InitFlags::FAN_CLOEXEC;
    let scanner = Fanotify::init(group, opened()).unwrap();
    let whole = MarkFlags::FAN_MARK_ADD;
    let model = folder.path().join(own("model.scanned"));
    write(&model);
    daemon.until(&(own("/model.scanned") + ", 0 B left"));
    let mask = MaskFlags::FAN_CLOSE;
    (scanner.mark(whole, mask, nix::fcntl::AT_FDCWD, Some(&model))).unwrap();
    // The scanner has the file open before the daemon learns that the file was closed.
    let pid = Pid::from_raw(i32::try_from(daemon.process.id()).unwrap());
    kill(pid, Signal::SIGSTOP).unwrap();
    let stopped = waitpid(pid, Some(WaitPidFlag::WUNTRACED)).unwrap();
    assert_eq!(stopped, WaitStatus::Stopped(pid, Signal::SIGSTOP));
    read(&model);
    let open_in_it = scanner.read_events().unwrap();
    assert_eq!(open_in_it.len(), 1);
    // The marker is closed after the model. When the marker is dropped, the daemon has handled the
    // model.
    let marker = folder.path().join(own("marker.scanned"));
    write(&marker);
    kill(pid, Signal::SIGCONT).unwrap();
    let on_the_way = daemon.until(&(own("/marker.scanned") + ", 0 B left"));
    let of_the_model = |line: &&String| line.contains(&own("/model.scanned"));
    assert_eq!(on_the_way.iter().find(of_the_model), None);
    // The daemon tries again for some seconds, but not forever.
    drop(open_in_it);
    daemon.until(&(own("/model.scanned") + ", 0 B left"));
    assert_eq!(resident(&model), 0);
}

#[test]
fn more_closes_than_the_kernel_remembers_leave_no_model_behind() {
    let folder = folder();
    let mut daemon = Daemon::watching(folder.path(), &own("overflown"), 0.0);
    let pid = Pid::from_raw(i32::try_from(daemon.process.id()).unwrap());
    kill(pid, Signal::SIGSTOP).unwrap();
    let limit = fs::read_to_string("/proc/sys/fs/fanotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    for number in 0..=limit {
        File::create(folder.path().join(number.to_string())).unwrap();
    }
    let model = folder.path().join(own("model.overflown"));
    write(&model);
    kill(pid, Signal::SIGCONT).unwrap();
    daemon.until("the kernel's event queue overflowed");
    daemon.until(&(own("/model.overflown") + ", 0 B left"));
    assert_eq!(resident(&model), 0);
}

#[test]
fn a_configuration_with_an_unknown_key_is_refused_by_name() {
    let folder = folder();
    let mut daemon = Daemon::start(folder.path(), "paths = []\nsmalest = \"1MiB\"\n");
    let said = daemon.until("unknown field `smalest`");
    assert!(
        said.concat()
            .starts_with("gpusliced: invalid configuration "),
        "{said:?}"
    );
    assert_eq!(daemon.process.wait().unwrap().code(), Some(125));
}

#[test]
fn a_file_that_a_container_knows_by_another_path_is_tried_again() {
    let folder = folder();
    let suffix = format!("contained{}", std::process::id());
    let mut daemon = Daemon::watching(folder.path(), &suffix, 0.0);
    let group = InitFlags::FAN_CLASS_NOTIF | InitFlags::FAN_CLOEXEC;
    let scanner = Fanotify::init(group, opened()).unwrap();
    let model = folder.path().join(format!("model.{suffix}"));
    let dropped = |name: &str| format!("/{name}.{suffix}, 0 B left");
    write(&model);
    daemon.until(&dropped("model"));
    let (add, mask) = (MarkFlags::FAN_MARK_ADD, MaskFlags::FAN_CLOSE);
    (scanner.mark(add, mask, nix::fcntl::AT_FDCWD, Some(&model))).unwrap();
    let pid = Pid::from_raw(i32::try_from(daemon.process.id()).unwrap());
    kill(pid, Signal::SIGSTOP).unwrap();
    let script = "mount --make-rprivate / && mount --bind \"$0\" /mnt && cat \"/mnt/$1\" | wc -c";
    let mut reader = Command::new("unshare");
    reader
        .args(["--mount", "sh", "-c", script])
        .arg(folder.path());
    let (out, err, status) = told(reader.arg(model.file_name().unwrap()));
    assert_eq!((out, err, status), (format!("{SIZE}\n"), String::new(), 0));
    let open_in_it = scanner.read_events().unwrap();
    kill(pid, Signal::SIGCONT).unwrap();
    // The marker is closed after the model and is dropped. So the daemon has tried the model once,
    // and the model was in use.
    write(&folder.path().join(format!("marker.{suffix}")));
    let on_the_way = daemon.until(&dropped("marker"));
    let of_the_model = |line: &&String| line.contains(&format!("/model.{suffix}"));
    assert_eq!(on_the_way.iter().find(of_the_model), None);
    drop(open_in_it);
    daemon.until(&dropped("model"));
    assert_eq!(resident(&model), 0);
}
