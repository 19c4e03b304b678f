//! Ledgers that cannot be used.

use super::bench::{Bench, GPU, Running, copied, is_root, mode, run_by, start, uses_gpu};
use crate::support::member::Member;
use gpuslice_config::ledger::Kind;
use gpuslice_config::words::units::Bytes;
use std::fs;
use std::path::PathBuf;

/// A slice file of its own with a ledger, and a program in it.
struct Own {
    bench: Bench,
    ledger: PathBuf,
    running: Running,
}

impl Own {
    fn new(program: &str) -> Own {
        let bench = Bench::new();
        let home = bench.machine.home.state.path();
        let (file, ledger) = (home.join("own.json"), home.join("ledger"));
        let text = format!(
            r#"{{"version": 1, "name": "own", "memory": 8589934592, "ledger": "{}"}}"#,
            ledger.display()
        );
        fs::write(&file, text).unwrap();
        let config = format!("--config={}", file.display());
        let running = bench.python(&[&config], program);
        Own {
            bench,
            ledger,
            running,
        }
    }

    fn is_broken_by(&self, code: &str) {
        let said = self.bench.about(&self.running);
        said.is_broken_by(code);
        let verdict = format!("slice own is NOT in force for process {}", self.running.pid);
        assert!(said.verdict.starts_with(&verdict), "{}", said.text);
        assert!(
            said.text.contains(self.ledger.to_str().unwrap()),
            "{}",
            said.text
        );
    }
}

fn waits() -> String {
    format!("{GPU}wait()\n")
}

/// A code, and the damage that it stands for.
type Damage<'a> = (&'a str, &'a dyn Fn(&PathBuf));

#[test]
fn a_ledger_that_was_damaged_is_the_cause() {
    let damages: [Damage<'_>; 5] = [
        ("ledger-missing", &|ledger| fs::remove_file(ledger).unwrap()),
        ("ledger-truncated", &|ledger| {
            fs::File::options()
                .write(true)
                .open(ledger)
                .unwrap()
                .set_len(100)
                .unwrap();
        }),
        ("ledger-overwritten", &|ledger| {
            let length = fs::metadata(ledger).unwrap().len();
            fs::write(ledger, vec![0; usize::try_from(length).unwrap()]).unwrap();
        }),
        ("ledger-overwritten", &|ledger| {
            let length = fs::metadata(ledger).unwrap().len();
            fs::write(ledger, vec![b'x'; usize::try_from(length).unwrap()]).unwrap();
        }),
        ("ledger-overwritten", &|ledger| {
            fs::remove_file(ledger).unwrap();
            let made = std::process::Command::new("mkfifo").arg(ledger).status();
            assert!(made.unwrap().success());
        }),
    ];
    for (code, damage) in damages {
        let own = Own::new(&waits());
        own.bench.about(&own.running).is_healthy();
        damage(&own.ledger);
        match fs::metadata(&own.ledger).is_ok_and(|it| !it.is_file()) {
            true => own.is_broken_by("ledger-unreadable"),
            false => own.is_broken_by(code),
        }
    }
}

#[test]
fn a_ledger_of_another_release_is_named() {
    let own = Own::new(&waits());
    let mut bytes = fs::read(&own.ledger).unwrap();
    bytes[8] -= 1;
    fs::write(&own.ledger, bytes).unwrap();
    let said = own.bench.about(&own.running);
    said.is_warned_of("ledger-version");
    assert!(
        said.text.contains("the ledger has version 4, not 5"),
        "{}",
        said.text
    );
}

#[test]
fn impossible_numbers_in_a_ledger_are_the_cause() {
    let own = Own::new(&uses_gpu());
    let member = Member::of_ledger(own.ledger.to_str().unwrap());
    // No machine can be short of an exbibyte.
    member.is_refused(Bytes::new(1 << 60));
    own.is_broken_by("ledger-overwritten");
}

#[test]
fn a_ledger_that_another_replaced_is_the_cause() {
    for copy in [true, false] {
        let (bench, other) = (Bench::new(), Bench::new());
        let running = bench.python(&["--memory=8GiB", "--name=llama"], &waits());
        let foreign = other.python(&["--memory=8GiB"], &waits());
        let ledger = |bench: &Bench, running: &Running| {
            let facts = &bench.about(running).json["facts"];
            PathBuf::from(facts["ledger"].as_str().unwrap())
        };
        let (own, theirs) = (ledger(&bench, &running), ledger(&other, &foreign));
        let text = fs::read(if copy { &own } else { &theirs }).unwrap();
        fs::remove_file(&own).unwrap();
        fs::write(&own, text).unwrap();
        let said = bench.about(&running);
        said.is_broken_by("ledger-replaced");
    }
}

#[test]
fn a_run_whose_folder_was_removed_is_still_in_force() {
    let bench = Bench::new();
    let running = bench.python(&["--memory=8GiB", "--name=llama"], &uses_gpu());
    let said = bench.about(&running);
    let file = PathBuf::from(said.json["facts"]["slice_file"].as_str().unwrap());
    fs::remove_dir_all(file.parent().unwrap()).unwrap();
    bench.about(&running).is_warned_of("slice-file-missing");
}

#[test]
fn a_run_whose_watcher_was_killed_is_warned_of() {
    let bench = Bench::new();
    let running = bench.python(&["--memory=8GiB", "--name=llama"], &uses_gpu());
    let said = bench.about(&running);
    let file = PathBuf::from(said.json["facts"]["slice_file"].as_str().unwrap());
    let text = fs::read_to_string(file).unwrap();
    let (_, rest) = text.split_once("/proc/").unwrap();
    let watcher = rest.split('/').next().unwrap().parse().unwrap();
    let watcher = nix::unistd::Pid::from_raw(watcher);
    nix::sys::signal::kill(watcher, nix::sys::signal::Signal::SIGKILL).unwrap();
    let gone = PathBuf::from(format!("/proc/{watcher}"));
    crate::support::eventually("the watcher is gone", || !gone.exists());
    bench.about(&running).is_warned_of("watcher-gone");
    fs::remove_dir_all(
        PathBuf::from(said.json["facts"]["slice_file"].as_str().unwrap())
            .parent()
            .unwrap(),
    )
    .unwrap();
}

#[test]
fn a_ledger_that_another_user_may_not_open_is_the_cause() {
    if !is_root() {
        return;
    }
    let (bench, (_root, release)) = (Bench::new(), copied());
    let script = "chmod -R a+rwX $GPUSLICE_SIM_STATE; chmod 600 ${GPUSLICE_CONFIG%/*}/ledger*
                  exec setpriv --reuid 65534 --regid 65534 --clear-groups /usr/bin/python3 -c \"$0\"";
    let mut command = run_by(&bench, &release, &["sh", "-c", script, &uses_gpu()]);
    let running = start(&mut command);
    let said = bench.about(&running);
    said.is_broken_by("other-user");
    assert!(
        said.text
            .contains("user nobody, who may not open the ledger"),
        "{}",
        said.text
    );
}

#[test]
fn a_run_without_a_tmpfs_has_no_ledger() {
    if !is_root() {
        return;
    }
    // Neither /dev/shm nor the folders that the environment names are a tmpfs.
    let bench = Bench::new();
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    mode(disk.path(), 0o700);
    let run = bench.machine.run_command(
        &["--memory=8GiB", "--name=llama"],
        &["sh", "-c", "echo $$; exec sleep 1000"],
    );
    let script = "mount --bind \"$TMPDIR\" /dev/shm; exec \"$0\" \"$@\"";
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]);
    command.arg(run.get_program()).args(run.get_args());
    for variable in ["LD_PRELOAD", "GPUSLICE_CONFIG", "LD_LIBRARY_PATH"] {
        command.env_remove(variable);
    }
    command
        .env("TMPDIR", disk.path())
        .env("XDG_RUNTIME_DIR", disk.path())
        .env("XDG_STATE_HOME", disk.path())
        .env("GPUSLICE_SIM_STATE", disk.path());
    let running = start(&mut command);
    let said = bench.about(&running);
    said.is_broken_by("no-ledger");
    assert!(said.text.contains("nothing is refused"), "{}", said.text);
}

#[test]
fn a_ledger_without_a_free_place_is_named() {
    let own = Own::new(&waits());
    // The counter of requests that found no place, which the library adds to.
    let ledger = own.ledger.to_str().unwrap();
    let member = Member::of_ledger(ledger);
    member.take(Bytes::mib(1), Kind::Linear);
    uncount(&own.ledger);
    own.bench.about(&own.running).is_warned_of("ledger-full");
}

/// Counts one request that found no place, at the place of the header that the counter has.
fn uncount(ledger: &PathBuf) {
    use gpuslice_config::ledger::{MAX_SIZE, Snapshot};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::FileExt;
    let name = std::ffi::CString::new(ledger.as_os_str().as_bytes()).unwrap();
    let counted = || {
        let mut bytes = vec![0; MAX_SIZE];
        Snapshot::read(&name, &mut bytes).map_or(0, |snapshot| snapshot.uncounted())
    };
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(ledger)
        .unwrap();
    for at in (0..4096u64).step_by(8) {
        let mut old = [0; 8];
        file.read_exact_at(&mut old, at).unwrap();
        if old != [0; 8] {
            continue;
        }
        file.write_all_at(&3u64.to_ne_bytes(), at).unwrap();
        if counted() == 3 {
            return;
        }
        file.write_all_at(&old, at).unwrap();
    }
    panic!("the header has no counter");
}
