//! Slices that are started by hand on one card: which of them fit together, and when memory is
//! free again.

use crate::support::machine::{Machine, end};
use crate::support::{Installation, eventually, spawn, start, told};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

static HERE: LazyLock<Installation> = LazyLock::new(|| Installation::new("tenants"));

const CARD: &str = "GPU 0 (NVIDIA GeForce RTX 3090, 23.69 GiB)";
const HINT: &str =
    "Use --overcommit to start anyway; FREE is then the memory that is actually free on the GPU\n";

fn card() -> Machine {
    Machine::new(&HERE, "rtx3090")
}

#[test]
fn a_second_slice_that_does_not_fit_is_refused_and_names_holders() {
    let machine = card();
    let (child, _) = machine.slice(&["--memory=12GiB", "--name=llama"]);
    let pid = child.id();
    let full = format!(
        "{CARD} has 11.69 GiB left, 12.00 GiB requested; held by llama (pid {pid}) 12.00 GiB"
    );
    let options = ["--memory=12GiB", "--name=qwen"];
    let message = format!("gpuslice: no room for qwen: {full}\n{HINT}");
    let refused = told(&mut machine.run(&options, "echo started"));
    assert_eq!(refused, (String::new(), message, 125));
    machine.starts(&["--memory=11GiB"]);
    for option in ["--overcommit", "--no-enforce"] {
        let started = told(&mut machine.run(&["--memory=12GiB", option], "echo started"));
        let warning = format!(
            "gpuslice: warning: {full}; the run starts all the same, and slices on this GPU can be \
             refused memory below their limits\n"
        );
        assert_eq!(started, ("started\n".to_owned(), warning, 0), "{option}");
    }
    end(child);
    machine.starts(&["--memory=23GiB"]);
}

#[test]
fn a_second_slice_of_one_name_is_told_of_the_first() {
    for sim in ["rtx3090", "gb10"] {
        let machine = Machine::new(&HERE, sim);
        let run = |script: &str| machine.run(&["--memory=8GiB", "--name=llama"], script);
        let (child, _) = start(run("echo started; read line").stdin(Stdio::piped()));
        let warning = format!(
            "gpuslice: warning: another slice is called llama already (pid {}); each has a limit of \
             its own\n",
            child.id()
        );
        assert_eq!(
            told(&mut run("echo started")),
            ("started\n".to_owned(), warning, 0)
        );
        end(child);
    }
}

/// Starts a run, then a bare run in the same process, then a second run in the same process.
fn one_after_the_other(machine: &Machine, first: &[&str], then: &[&str], script: &str) -> Command {
    let gpuslice = HERE.executable().display().to_string();
    let mut words = vec![gpuslice.as_str(), "run", "--bare", "--"];
    words.extend([gpuslice.as_str(), "run"]);
    words.extend(then.iter().copied().chain(["--", "sh", "-c", script]));
    machine.run_command(first, &words)
}

#[test]
fn a_run_inside_a_bare_run_is_not_refused_for_its_own_former_slice() {
    for (sim, first, then) in [
        ("rtx3090", "--memory=20GiB", "--memory=20GiB"),
        ("gb10", "--memory=60GiB", "--memory=60GiB"),
        ("gb10", "--memory=60GiB", "--memory=50GiB"),
    ] {
        let machine = Machine::new(&HERE, sim);
        let folder = if sim == "gb10" { "promises" } else { "tenants" };
        for name in [&[][..], &["--name=llama"]] {
            let [first, then] = [first, then].map(|memory| [&[memory][..], name].concat());
            let script = "echo started; read line";
            let mut command = one_after_the_other(&machine, &first, &then, script);
            let (child, line) = start(command.stdin(Stdio::piped()).stderr(Stdio::inherit()));
            assert_eq!(line, "started", "{sim}");
            // One slice, so one record.
            assert_eq!(machine.records(folder).len(), 1, "{sim}");
            end(child);
            machine.is_empty(folder);
            let mut command = one_after_the_other(&machine, &first, &then, "echo started");
            let seen = told(&mut command);
            assert_eq!(seen, ("started\n".to_owned(), String::new(), 0), "{sim}");
        }
        machine.is_empty(folder);
    }
}

#[test]
fn an_ended_slice_with_live_processes_keeps_its_place() {
    for (sim, memory, left) in [
        ("rtx3090", "20GiB", "3.69 GiB"),
        ("gb10", "100GiB", "7.65 GiB"),
    ] {
        let machine = Machine::new(&HERE, sim);
        let folder = if sim == "gb10" { "promises" } else { "tenants" };
        let gpuslice = HERE.executable().display().to_string();
        // The sleepers are killed below, long before their minute is over.
        let next = |size: &str, script: &str| {
            format!(
                "sleep 60 <&- >&- 2>&- & echo $!; exec {gpuslice} run --bare -- \
                 {gpuslice} run --memory={size} -- sh -c '{script}'"
            )
        };
        let kill_left = |out: &str| {
            let pid = out.lines().next().unwrap().parse().unwrap();
            kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        };
        let memory = format!("--memory={memory}");
        let (out, err, status) = told(&mut machine.run(&[&memory], &next("9GiB", "echo started")));
        kill_left(&out);
        assert!(err.contains(left) && status == 125, "{sim}: {out}{err}");
        machine.is_empty(folder);
        // This process outlives its run. It runs beside the next slice, and after it.
        let mut command = machine.run(&[&memory], &next("1GiB", "echo started; exec sleep 60"));
        let mut child = spawn(command.stdout(Stdio::piped()));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "started");
        let refused = || {
            let (_, err, status) = told(&mut machine.run(&["--memory=9GiB"], "echo started"));
            assert_eq!(status, 125, "{sim}: {err}");
        };
        refused();
        child.kill().unwrap();
        child.wait().unwrap();
        refused();
        kill_left(&first);
        machine.is_empty(folder);
    }
}

#[test]
fn an_overcommitted_slice_takes_nothing_from_later_admitted_ones() {
    let machine = card();
    let (first, _) = machine.slice(&["--memory=20GiB"]);
    let (second, _) = machine.slice(&["--memory=20GiB", "--overcommit"]);
    let (third, _) = machine.slice(&["--memory=20GiB", "--overcommit"]);
    assert_eq!(machine.records("tenants").len(), 2);
    end(first);
    // The second run was admitted for the remaining 3.69 GiB.
    machine.starts(&["--memory=20GiB"]);
    let (_, err, status) = told(&mut machine.run(&["--memory=20.5GiB"], "echo started"));
    assert!(err.contains("has 20.00 GiB left") && status == 125, "{err}");
    end(second);
    end(third);
}

#[test]
fn of_many_runs_that_start_at_once_as_many_are_admitted_as_the_card_holds() {
    let machine = card();
    let (children, started) = machine.start_at_once(10, "--memory=4GiB");
    // The card has 23.69 GiB.
    assert_eq!(started, 5);
    children.into_iter().for_each(end);
    machine.is_empty("tenants");
}

#[test]
fn a_run_that_follows_another_at_once_finds_its_place_free() {
    let machine = card();
    for _ in 0..10 {
        machine.starts(&["--memory=20GiB"]);
    }
}

#[test]
fn what_a_command_left_in_the_background_keeps_its_place() {
    let machine = card();
    // The test kills the sleeper. The minute ends it only if the test has failed.
    let script = "sleep 60 <&- >&- 2>&- & echo $!";
    let (out, _, status) = told(&mut machine.run(&["--memory=20GiB"], script));
    assert_eq!(status, 0);
    let left = Pid::from_raw(out.trim().parse().unwrap());
    let (_, err, status) = told(&mut machine.run(&["--memory=20GiB"], "echo started"));
    kill(left, Signal::SIGKILL).unwrap();
    assert_eq!(status, 125, "{err}");
    machine.is_empty("tenants");
}

#[test]
fn what_a_command_left_in_the_background_keeps_its_place_without_a_watcher() {
    let machine = card();
    let private = machine.home.state.path().join("private");
    let script = format!(
        "dirname $GPUSLICE_CONFIG >{}; sleep 60 <&- >&- 2>&- & echo $!; read line",
        private.display()
    );
    let mut command = machine.run(&["--memory=20GiB"], &script);
    let (mut child, out) = start(command.stdin(Stdio::piped()));
    let left = Pid::from_raw(out.trim().parse().unwrap());
    let folder = fs::read_to_string(&private).unwrap();
    kill(watcher(Path::new(folder.trim())), Signal::SIGKILL).unwrap();
    drop(child.stdin.take());
    child.wait().unwrap();
    let (_, err, status) = told(&mut machine.run(&["--memory=20GiB"], "echo started"));
    assert_eq!(status, 125, "{err}");
    // `gpuslice gc` removes no record that is in use.
    told(machine.home.of(&mut HERE.gpuslice()).arg("gc"));
    let (_, err, status) = told(&mut machine.run(&["--memory=20GiB"], "echo started"));
    kill(left, Signal::SIGKILL).unwrap();
    assert_eq!(status, 125, "{err}");
    eventually("the place is free", || {
        told(&mut machine.run(&["--memory=20GiB"], "echo started")).2 == 0
    });
}

/// The watcher of a run: the process that holds the lock on the run's private folder.
fn watcher(private: &Path) -> Pid {
    let watches = |pid: &Pid| {
        let open = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten();
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let mut targets = open.filter_map(|entry| fs::read_link(entry.path()).ok());
        name == "gpuslice-tidy\n" && targets.any(|target| target == private)
    };
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find_map(|pid| Some(Pid::from_raw(pid)).filter(watches))
        .unwrap()
}

#[test]
fn a_run_whose_watcher_was_killed_keeps_its_place_until_it_ends() {
    let machine = card();
    let (mut child, config) = machine.slice(&["--memory=20GiB"]);
    kill(watcher(config.parent().unwrap()), Signal::SIGKILL).unwrap();
    let (_, err, status) = told(&mut machine.run(&["--memory=20GiB"], "echo started"));
    assert_eq!(status, 125, "{err}");
    child.kill().unwrap();
    child.wait().unwrap();
    // The watcher is dead, so the next run removes the record.
    machine.starts(&["--memory=20GiB"]);
    assert!(machine.records("tenants").len() <= 1);
}

#[test]
fn a_command_that_cannot_be_started_takes_no_place() {
    let machine = card();
    let mut command = machine.run_command(&["--memory=20GiB"], &["/nowhere"]);
    assert_eq!(told(&mut command).2, 127);
    assert!(machine.records("tenants").is_empty());
}

#[test]
fn runs_on_different_cards_of_one_machine_do_not_meet() {
    let machine = Machine::new(&HERE, "2xh200");
    let on = |options: &[&str], visible: Option<&str>| {
        let mut command = machine.run(options, "echo started; read line");
        if let Some(visible) = visible {
            command.env("CUDA_VISIBLE_DEVICES", visible);
        }
        command
    };
    let memory = &["--memory=100GiB"][..];
    let (first, _) = start(on(memory, Some("0")).stdin(Stdio::piped()));
    let (second, _) = start(on(memory, Some("1")).stdin(Stdio::piped()));
    let mut status = HERE.gpuslice();
    let (out, _, _) = told(machine.home.of(&mut status).args(["status", "--json"]));
    let status: serde_json::Value = serde_json::from_str(&out).unwrap();
    let cards = status["cards"].as_array().unwrap();
    assert_eq!(cards.len(), 2, "{out}");
    for card in cards {
        let left = card["total"].as_u64().unwrap() - (100 << 30);
        assert_eq!(card["left_to_give"], left, "{card}");
    }
    for (options, visible) in [
        (memory, Some("1")),
        (memory, None),
        (&["--device=0=100GiB"], None),
    ] {
        let (out, err, status) = told(&mut on(options, visible));
        assert_eq!((out.as_str(), status), ("", 125), "{err}");
    }
    let (_, err, _) = told(&mut on(memory, None));
    let hint = "its memory counts on 2 GPUs: --device GPU=SIZE or CUDA_VISIBLE_DEVICES names those \
                that it uses\n";
    assert!(err.contains(hint), "{err}");
    end(first);
    // The program sees both cards, and the slice limits one.
    let (first, line) = start(on(&["--device=0=100GiB"], None).stdin(Stdio::piped()));
    assert_eq!(line, "started");
    end(first);
    end(second);
}

#[test]
fn instances_of_a_card_are_cards_of_their_own() {
    let machine = Machine::new(&HERE, "h200-mig");
    let list = told(
        HERE.gpuslice()
            .args(["devices", "--sim=h200-mig", "--json"]),
    )
    .0;
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let instances = list["devices"][0]["mig"].as_array().unwrap();
    let uuid = |index: usize| instances[index]["device"].as_str().unwrap();
    let on = |index: usize| {
        let device = format!("--device={}={}", uuid(index), instances[index]["total"]);
        let mut command = machine.run(&[&device], "echo started; read line");
        command.env("CUDA_VISIBLE_DEVICES", uuid(index));
        command
    };
    let (first, _) = start(on(0).stdin(Stdio::piped()));
    let (second, line) = start(on(1).stdin(Stdio::piped()));
    assert_eq!(line, "started");
    let (_, err, status) = told(&mut on(0));
    assert!(err.contains(uuid(0)) && status == 125, "{err}");
    end(first);
    end(second);
}

/// Runs a script as root with processes and a /run of its own. `gpuslice` is where every user can
/// execute it.
fn of_its_own(script: &str) -> Option<(String, String, i32)> {
    if !nix::unistd::geteuid().is_root() {
        return None;
    }
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let bin = place.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let copy = |from: PathBuf, to: &Path| {
        assert!(
            Command::new("cp")
                .arg("-rL")
                .arg(from)
                .arg(to)
                .status()
                .unwrap()
                .success()
        );
    };
    copy(HERE.executable(), &bin);
    copy(HERE.folder.join("libgpuslice.so"), &bin);
    copy(HERE.folder.with_file_name("sim"), place.path());
    let prelude = "mount -t tmpfs -o mode=755 none /run; mount -t tmpfs -o mode=1777 none /dev/shm
        export PATH=$0/bin:$PATH LD_LIBRARY_PATH=$0/sim GPUSLICE_SIM=rtx3090
        as() { uid=$1; shift; setpriv --reuid=$uid --regid=$uid --clear-groups \"$@\"; }
        # Starts a run in the background, and returns when its command runs.
        # The run ends with the namespace.
        stays() { mkfifo -m 666 $0/$1; as $2 gpuslice run --memory $3 --name $1 -- sh -c \"echo > $0/$1; exec sleep 60\" & read line < $0/$1; }
        ";
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "bash",
        "-c",
    ]);
    command.arg(format!("{prelude}{script}")).arg(place.path());
    for name in [
        "XDG_RUNTIME_DIR",
        "CUDA_VISIBLE_DEVICES",
        "LD_PRELOAD",
        "GPUSLICE_SIM_STATE",
    ] {
        command.env_remove(name);
    }
    Some(told(&mut command))
}

#[test]
fn runs_of_other_users_and_containers_hold_their_part_of_the_card() {
    let script = "gpuslice run --memory 1GiB -- true
        chmod 777 $0; stat -c %a /run/gpuslice /run/gpuslice/tenants; stat -f -c %T /run/gpuslice/tenants
        stays llama 65534 8GiB; stays qwen 65533 8GiB
        cat > /run/gpuslice/tenants/container.abc <<< '{\"version\":1,\"name\":\"team/pod\",\"devices\":[{\"uuid\":\"GPU-3090aaaa-1111-4222-8333-444455550000\",\"memory\":4294967296,\"integrated\":false}]}'
        for uid in 0 65534; do as $uid gpuslice run --memory 8GiB --name new -- true; done 2>&1";
    let Some((out, err, _)) = of_its_own(script) else {
        return;
    };
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[..3], ["711", "1777", "tmpfs"], "{out}{err}");
    let without = |line: &str, words: &[&str]| {
        let start = format!(
            "gpuslice: no room for new: {CARD} has 3.69 GiB left, 8.00 GiB requested; held by "
        );
        assert!(line.starts_with(&start), "{line}");
        for word in words {
            assert!(line.contains(word), "{line}");
        }
    };
    without(
        lines[3],
        &[
            "team/pod 4.00 GiB",
            ", uid 65534) 8.00 GiB",
            ", uid 65533) 8.00 GiB",
        ],
    );
    without(
        lines[5],
        &["team/pod 4.00 GiB", "llama (pid ", ", uid 65533) 8.00 GiB"],
    );
    assert!(!lines[5].contains("uid 65534"), "{}", lines[5]);
}

#[test]
fn a_strangers_forged_records_count_for_nobody_and_roots_gc_removes_them() {
    let script = "gpuslice run --memory 1GiB -- true
        # The watcher of a run that has just ended removes its own record.
        has() { for i in $(seq 600); do [ $(ls | wc -l) = $1 ] && break; sleep 0.1; done; ls | wc -l; }
        cd /run/gpuslice/tenants; has 0 > /dev/null; chmod 777 $0; stays llama 65534 8GiB
        text='{\"version\":1,\"name\":\"forged\",\"devices\":[{\"uuid\":\"GPU-3090aaaa-1111-4222-8333-444455550000\",\"memory\":25000000000,\"integrated\":false}]}'
        of() { sed 's/.*) //' /proc/$1/stat | cut -d' ' -f20; }
        as 65533 sh -c \"echo '$text' > run.1.$(of 1); echo '$text' > container.x; echo '$text' > run.77.77
            ln -s /etc/passwd run.1.1; touch junk; ln /run/gpuslice/tenants/run.* . ; rm -f run.* ; mv container.x /run/gpuslice/tenants/run.2.2\" 2>/dev/null
        as 65533 sh -c \"echo '$text' > run.1.$(of 1); ln -s /etc/passwd run.1.2; echo > junk\"
        ls | wc -l
        as 65532 gpuslice run --memory 15GiB -- echo started
        gpuslice gc > /dev/null; has 1
        # A user who holds the lock on the folder delays other runs by two seconds.
        as 65533 flock /run/gpuslice/tenants sleep 30 &
        as 65532 gpuslice run --memory 15GiB -- echo started
        as 65532 gpuslice run --memory 16GiB -- echo started";
    let Some((out, err, status)) = of_its_own(script) else {
        return;
    };
    let expected = ["5", "started", "1", "started"];
    assert_eq!(out.lines().collect::<Vec<_>>(), expected, "{err}");
    assert!(
        err.contains("held by llama (pid ") && status == 125,
        "{err}"
    );
}

#[test]
fn without_roots_folder_the_runs_of_one_user_see_each_other() {
    let script = "chmod 777 $0; stays llama 65534 20GiB
        as 65534 gpuslice run --memory 20GiB -- echo started 2>&1 | head -1
        as 65533 gpuslice run --memory 20GiB -- echo started";
    let Some((out, err, _)) = of_its_own(script) else {
        return;
    };
    assert!(out.starts_with("gpuslice: no room for run-"), "{out}{err}");
    assert!(out.ends_with("\nstarted\n"), "{out}{err}");
}

#[test]
fn a_stranger_does_not_keep_roots_run_by_naming_its_folder() {
    // The test waits one second. A watcher that misses the process in `left` removes the folder in
    // that second. The strangers end with the namespace.
    let script = "exec 3>&2; unset GPUSLICE_SIM; config() { gpuslice run --sim rtx3090 --memory 8GiB --name $1 -- sh -c \"$2\"; }
        set -- $(config left 'setpriv --reuid=65533 --regid=65533 --clear-groups sleep 60 <&- >&- 2>&- & echo $!; dirname $GPUSLICE_CONFIG')
        left=$1 folder=$2
        other=$(config right 'dirname $GPUSLICE_CONFIG; sleep 1')
        as 65534 env X=$other sleep 30 & as 65534 env X=$folder sleep 30 &
        sleep 1; [ -e $folder ] && echo kept; kill $left
        gone() { for i in $(seq 100); do [ -e $1 ] || { echo gone; return; }; sleep 0.1; done; echo stays; }
        gone $other; gone $folder";
    let Some((out, err, _)) = of_its_own(script) else {
        return;
    };
    // A process that root's run has started keeps the folder, even if it continues as another user.
    assert_eq!(out, "kept\ngone\ngone\n", "{err}");
}
