//! `gpuslice status` and `gpuslice gc` for slices that the OCI hook has created, on a simulated
//! host.

#[allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#[path = "../../../../../tests/containers/src/patience.rs"]
mod patience;

use crate::support::{Home, Installation, member, only, spawn, told};
use gpuslice_config::ledger::{Kind, Ledger, Open};
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::machine::process::InitProcess;
use gpuslice_host::slices::records::{DeviceBudget, Member, Registry, SliceRecord};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};
use std::ffi::CString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const UUID: &str = "GPU-3090aaaa-1111-4222-8333-444455550000";

struct Host {
    root: TempDir,
    home: Home,
    here: Installation,
}

impl Host {
    fn new(name: &str) -> Host {
        Host {
            root: tempfile::tempdir_in("/dev/shm").unwrap(),
            home: Home::new(),
            here: Installation::new(name),
        }
    }

    fn places(&self) -> HostPaths {
        HostPaths::below(self.root.path())
    }

    /// Records a container as the hook does, with `process` as its first process.
    fn container(&self, id: &str, process: &Sleeper) {
        let places = self.places();
        let owner = InitProcess::of(i32::try_from(process.0.id()).unwrap()).unwrap();
        let registry = Registry::lock(&places).unwrap();
        let record = SliceRecord {
            version: SliceRecord::VERSION,
            slice: id.to_owned(),
            name: format!("team/{id}"),
            namespace: None,
            shared: false,
            sandbox: None,
            named: None,
            devices: vec![DeviceBudget {
                uuid: UUID.parse().unwrap(),
                memory: Bytes::gib(8),
                integrated: false,
            }],
            promised: None,
            before_resize: None,
            containers: vec![Member {
                id: id.to_owned(),
                name: id.to_owned(),
                owner,
                bundle: "/bundle".into(),
                drops: Vec::new(),
                no_slice: None,
                not_limited: None,
                claims: None,
                pod: None,
            }],
        };
        registry.write(&record).unwrap();
        let (root, ledger) = (places.container_root(id), places.ledger(id));
        fs::create_dir_all(&root).unwrap();
        fs::create_dir_all(&ledger).unwrap();
        let slice = format!(
            r#"{{"version": 1, "name": "team/{id}", "devices": [{{"uuid": "{UUID}", "memory": 8589934592}}]}}"#
        );
        fs::write(root.join("slice.json"), slice).unwrap();
        if nix::unistd::geteuid().is_root() {
            let flags = nix::mount::MsFlags::empty();
            let none: Option<&str> = None;
            nix::mount::mount(none, &ledger, Some("tmpfs"), flags, none).unwrap();
        }
        let ledger = places.ledger_file(id).display().to_string();
        let ledger = CString::new(ledger).unwrap();
        Ledger::open(
            &ledger,
            Open::Create {
                mode: 0o600,
                devices: 1,
            },
        )
        .unwrap();
    }

    fn told(&self, words: &[&str]) -> (String, String, i32) {
        let mut command = self.here.gpuslice();
        command.args(words).arg("--root").arg(self.root.path());
        told(self.home.of(&mut command))
    }
}

impl Drop for Host {
    /// Removes the mounts of ledgers that no gc has removed.
    fn drop(&mut self) {
        let ledgers = fs::read_dir(self.places().ledgers());
        for entry in ledgers.into_iter().flatten().flatten() {
            let _ = nix::mount::umount2(&entry.path(), nix::mount::MntFlags::MNT_DETACH);
        }
    }
}

/// A process that is killed when its handle is dropped.
struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        patience::kill(&mut self.0);
    }
}

/// Starts a container's first process. It outlasts every test; the test kills it.
fn sleeper() -> Sleeper {
    let mut sleep = Command::new("sleep");
    let sleep = sleep.arg("1000").stdin(Stdio::null());
    Sleeper(
        sleep
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    )
}

fn said(text: &str) -> (String, String, i32) {
    (text.to_owned(), String::new(), 0)
}

/// The messages about the removal of a container that was the last of its slice.
fn gone(id: &str) -> String {
    format!("removed container {id}\nremoved slice {id}\n")
}

/// Processes of another namespace cannot be seen there, and are not dead.
#[test]
fn gc_in_another_pid_namespace_removes_no_living_container() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not run: a pid namespace needs root");
        return;
    }
    let host = Host::new("containers-gc-elsewhere");
    let living = sleeper();
    host.container("living", &living);
    let mut gc = host.here.gpuslice();
    gc.arg("gc").arg("--root").arg(host.root.path());
    let mut elsewhere = Command::new("unshare");
    elsewhere
        .args(["--pid", "--fork", "--mount-proc"])
        .arg(gc.get_program())
        .args(gc.get_args());
    let (out, err, _) = told(host.home.of(&mut elsewhere));
    assert!(!out.contains("removed"), "{out}{err}");
    assert!(
        format!("{out}{err}").contains("container living stays"),
        "{out}{err}"
    );
    assert!(host.places().slice("living").exists());
}

#[test]
fn a_containers_slice_is_shown_and_collected_when_its_process_is_dead() {
    let host = Host::new("containers");
    let (one, other) = (sleeper(), sleeper());
    host.container("living", &one);
    host.container("dead", &other);
    drop(other);
    let head = format!(
        "team/living (container living, pid {}, ledger not sealed)\n",
        one.0.id()
    );
    let (shown, err, status) = host.told(&["status", "team/living"]);
    assert_eq!((err.as_str(), status), ("", 0));
    assert!(shown.starts_with(&head), "{shown}");
    let device = format!("  {UUID}\n    limit 8.00 GiB, used 0 B, left 8.00 GiB\n");
    assert!(shown.ends_with(&device), "{shown}");
    let (json, _, _) = host.told(&["status", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["slices"][0]["containers"][0]["id"], "living");
    assert_eq!(json["slices"][0]["containers"][0]["pid"], one.0.id());
    // A query removes nothing.
    let slices = || fs::read_dir(host.places().slices()).unwrap().count();
    assert_eq!(slices(), 2);
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not run: gpuslice gc of containers needs root");
        return;
    }
    assert_eq!(host.told(&["gc"]), said(&gone("dead")));
    let left = host.told(&["status", "team/living"]).0;
    assert!(slices() == 1 && left.starts_with(&head), "{left}");
    assert_eq!(host.told(&["gc"]), said("nothing to remove\n"));
    drop(one);
    assert_eq!(host.told(&["gc"]), said(&gone("living")));
    let left = |folder: &Path| fs::read_dir(folder).unwrap().count();
    assert_eq!((slices(), left(&host.places().containers())), (0, 0));
    assert_eq!(left(&host.places().ledgers()), 0);
}

/// Whether a process holds memory of such a slice is unknown. `gpuslice status` did not list it.
#[test]
fn status_does_not_call_a_slice_ended_whose_ledger_is_damaged() {
    let host = Host::new("containers-damaged");
    let first = sleeper();
    host.container("damaged", &first);
    let ledger = host.places().ledger_file("damaged");
    fs::write(&ledger, "").unwrap();
    drop(first);
    let (shown, err, status) = host.told(&["status"]);
    let unread = "gpuslice: slice team/damaged could not be read\n";
    assert_eq!((err.as_str(), status), (unread, 1));
    let line = "! slice team/damaged could not be read: the ledger is 0 bytes long, which is no ledger's \
                length; the first processes of its containers have ended, and whether another process \
                still holds its memory is unknown (gpuslice gc removes the slice if it finds no process \
                of it)\n";
    assert!(shown.ends_with(line), "{shown}");
    // Without a ledger no process holds memory of it.
    fs::remove_file(&ledger).unwrap();
    let (shown, err, status) = host.told(&["status"]);
    assert_eq!((err.as_str(), status), ("", 0));
    assert!(!shown.contains("damaged"), "{shown}");
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not run: gpuslice gc of containers needs root");
        return;
    }
    fs::write(&ledger, "").unwrap();
    assert_eq!(host.told(&["gc"]), said(&gone("damaged")));
}

#[test]
fn gc_removes_unreadable_records_only_by_force_of_dead_containers() {
    let host = Host::new("containers-force");
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not run: gpuslice gc of containers needs root");
        return;
    }
    let (living, other, dead) = (sleeper(), sleeper(), sleeper());
    host.container("living", &living);
    host.container("cut", &other);
    host.container("dead", &dead);
    // The record is cut off after the process, as a full disk would leave it.
    let cut = host.places().slice("cut");
    let text = fs::read_to_string(&cut).unwrap();
    let end = text.find(",\"bundle\"").unwrap();
    fs::write(&cut, &text[..end]).unwrap();
    drop(dead);
    let (out, err, status) = host.told(&["gc", "--force"]);
    // The dead container is removed all the same.
    assert_eq!((out, status), (gone("dead"), 125));
    let begins = format!("gpuslice: {} is not a valid slice record (", cut.display());
    let sign = format!("its process {} still runs", other.0.id());
    assert!(err.starts_with(&begins) && err.contains(&sign), "{err}");
    let (shown, _, _) = host.told(&["status"]);
    let line = format!(
        "! slice cut could not be read: {} is not a valid slice record (",
        cut.display()
    );
    assert!(
        shown.contains("  team/living  ") && shown.contains(&line),
        "{shown}"
    );
    drop(other);
    let (_, err, status) = host.told(&["gc"]);
    assert!(
        status == 125 && err.contains("its container shows no sign of life (gpuslice gc --force"),
        "{err}"
    );
    let removed = format!("removed the record {}\n", cut.display());
    assert_eq!(host.told(&["gc", "--force"]), said(&removed));
    assert_eq!(host.told(&["gc"]), said("nothing to remove\n"));
    drop(living);
    assert_eq!(host.told(&["gc"]), said(&gone("living")));
    let left = |folder: &Path| fs::read_dir(folder).unwrap().count();
    assert_eq!(left(&host.places().containers()), 0);
    assert_eq!(left(&host.places().ledgers()), 0);
}

/// Not a test: runs as a process of a container, in a pid namespace of its own.
#[test]
#[ignore = "a process of another test"]
fn a_member_of_a_container() {
    let (Ok(ledger), Ok(gib)) = (std::env::var("MEMBER_OF"), std::env::var("TAKES")) else {
        return;
    };
    let takes = Bytes::gib(gib.parse().unwrap());
    member::Member::of_ledger(&ledger).take(takes, Kind::Linear);
    std::io::Write::write_all(&mut std::io::stdout(), b"\nready\n").unwrap();
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

/// Starts a process that has the pid 1 in its namespace and holds that many GiB of a container's
/// slice. Returns the `unshare` process and the pid here.
fn member_of(ledger: &Path, gib: u64) -> (Sleeper, u32) {
    let mut command = Command::new("unshare");
    command
        .args(["--pid", "--fork", "--kill-child"])
        .arg(std::env::current_exe().unwrap())
        .args(only(module_path!(), "a_member_of_a_container"))
        .env("MEMBER_OF", ledger)
        .env("TAKES", gib.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut member = spawn(&mut command);
    patience::lines(&mut member, "a container's member").until("ready");
    let children = format!("/proc/{0}/task/{0}/children", member.id());
    let here = fs::read_to_string(children)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    (Sleeper(member), here)
}

#[test]
fn each_containers_process_is_shown_in_its_own_slice_alone() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not run: only root can mount the ledgers of containers");
        return;
    }
    // The mounts belong to a thread of their own, because other tests run in the thread that began
    // this one.
    let own = std::thread::spawn(containers_processes_in_mounts_of_their_own);
    own.join().unwrap();
}

fn containers_processes_in_mounts_of_their_own() {
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let (none, flags) = (None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE);
    mount(none, "/", none, flags, none).unwrap();
    let host = Host::new("containers-processes");
    let sleepers = [sleeper(), sleeper(), sleeper()];
    let names = ["conta", "contb", "contc"];
    let members: Vec<(Sleeper, u32)> = (1..)
        .zip(names.iter().zip(&sleepers))
        .map(|(gib, (name, first))| {
            host.container(name, first);
            member_of(&host.places().ledger_file(name), gib)
        })
        .collect();
    let inode = |name: &str| fs::metadata(host.places().ledger_file(name)).unwrap().ino();
    assert_eq!(
        inode("conta"),
        inode("contb"),
        "the two ledgers need one inode number"
    );
    let (json, _, _) = host.told(&["status", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let shown = |slice: usize| {
        let processes = json["slices"][slice]["devices"][0]["processes"].as_array();
        let processes = processes.unwrap().iter();
        let named = processes.map(|one| json!([one["pid"], one["used"]]));
        named.collect::<Vec<_>>()
    };
    for (gib, (slice, (_, pid))) in (1u64..).zip(members.iter().enumerate()) {
        assert_eq!(shown(slice), [json!([pid, gib << 30])], "{json}");
    }
}

impl Host {
    /// Adds keys to a record, as the hook writes them.
    fn records(&self, id: &str, change: impl FnOnce(&mut Value)) {
        let path = self.places().slice(id);
        let mut record = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        change(&mut record);
        fs::write(path, record.to_string()).unwrap();
    }
}

#[test]
fn a_container_that_started_without_its_slice_is_shown_as_such() {
    let host = Host::new("containers-musl");
    let (one, other) = (sleeper(), sleeper());
    host.container("musl", &one);
    host.container("usual", &other);
    host.records("musl", |record| {
        record["containers"][0]["no_slice"] = json!("its libc is musl");
        record["sealed"] = json!(true);
    });
    host.records("usual", |record| record["sealed"] = json!(false));
    let (shown, err, status) = host.told(&["status"]);
    assert_eq!((err.as_str(), status), ("", 0));
    let row = |name: &str| {
        let line = shown
            .lines()
            .find(|line| line.starts_with(&format!("  {name} ")));
        let words = line.unwrap().split_whitespace().map(str::to_owned);
        words.collect::<Vec<String>>()
    };
    assert_eq!(
        row("team/musl")[1..7],
        ["-", "/", "8.00", "GiB", "-", "none"],
        "{shown}"
    );
    assert_eq!(
        row("team/usual")[1..6],
        ["0.00", "/", "8.00", "GiB", "0%"],
        "{shown}"
    );
    let warning =
        "! container musl (team/musl) has no slice: its libc is musl (gpuslice doctor musl)\n";
    assert!(shown.ends_with(warning), "{shown}");
    for (name, head, device) in [
        (
            "musl",
            format!("(container musl, pid {}, ledger sealed)", one.0.id()),
            "limit 8.00 GiB, not in force",
        ),
        (
            "usual",
            format!("(container usual, pid {}, ledger not sealed)", other.0.id()),
            "limit 8.00 GiB, used 0 B, left 8.00 GiB",
        ),
    ] {
        let (shown, _, _) = host.told(&["status", &format!("team/{name}")]);
        assert!(
            shown.starts_with(&format!("team/{name} {head}\n")),
            "{shown}"
        );
        assert!(
            shown.contains(&format!("  {UUID}\n    {device}\n")),
            "{shown}"
        );
    }
    let (json, _, _) = host.told(&["status", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let told = |slice: usize| {
        let slice = &json["slices"][slice];
        let container = &slice["containers"][0]["no_slice"];
        json!([slice["no_slice"], container, slice["sealed"]])
    };
    assert_eq!(
        told(0),
        json!(["its libc is musl", "its libc is musl", true])
    );
    assert_eq!(told(1), json!([null, null, false]));
    drop((one, other));
    host.told(&["gc"]);
}

#[test]
fn a_record_of_an_unknown_shape_is_read_as_far_as_it_is_known() {
    let host = Host::new("containers-shape");
    let one = sleeper();
    host.container("other", &one);
    host.records("other", |record| {
        record["no_slice"] = json!({"why": 7});
        record["sealed"] = json!("perhaps");
    });
    let (shown, err, status) = host.told(&["status", "team/other"]);
    assert_eq!((err.as_str(), status), ("", 0));
    let warning =
        "! container other (team/other) has no slice: the hook recorded no reason (gpuslice";
    assert!(shown.contains(warning), "{shown}");
    assert!(shown.contains("ledger not sealed"), "{shown}");
    drop(one);
    host.told(&["gc"]);
}

#[test]
fn impossible_numbers_of_a_damaged_ledger_are_not_shown() {
    let host = Host::new("containers-impossible");
    let one = sleeper();
    host.container("damaged", &one);
    let ledger = host.places().ledger_file("damaged");
    let member = member::Member::of_ledger(ledger.to_str().unwrap());
    member.take(Bytes::gib(1), Kind::Linear);
    // No machine can be short of an exbibyte.
    member.is_refused(Bytes::new(1 << 60));
    let (shown, err, status) = host.told(&["status", "team/damaged"]);
    let said = "gpuslice: slice team/damaged could not be read\n";
    assert_eq!((err.as_str(), status), (said, 1));
    assert!(shown.contains(", used ?\n"), "{shown}");
    let line = "could not be read: the ledger is damaged: impossible numbers in it are not shown (gpuslice";
    assert!(shown.contains(line), "{shown}");
    assert!(
        !shown.contains("refused") && !shown.contains("TiB"),
        "{shown}"
    );
    drop(one);
    host.told(&["gc"]);
}
