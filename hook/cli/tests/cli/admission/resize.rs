//! `gpuslice resize`: the limit of a running slice changes, in its ledger and in the records of the
//! machine.

use crate::support::machine::{Machine, end};
use crate::support::member::{GPU, Member};
use crate::support::{Installation, eventually, told};
use gpuslice_config::ledger::Kind;
use gpuslice_config::words::units::Bytes;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

static HERE: LazyLock<Installation> = LazyLock::new(|| Installation::new("resize"));

const GIB: u64 = 1 << 30;
const CARD: &str = "GPU 0 (NVIDIA GeForce RTX 3090, 23.69 GiB)";

fn card() -> Machine {
    Machine::new(&HERE, "rtx3090")
}

fn gpuslice(machine: &Machine, words: &[&str]) -> Command {
    let mut command = HERE.gpuslice();
    machine.home.of(&mut command).args(words);
    command
}

fn resize(machine: &Machine, words: &[&str]) -> (String, String, i32) {
    told(&mut gpuslice(machine, &[&["resize"], words].concat()))
}

fn said(text: &str) -> (String, String, i32) {
    (text.to_owned(), String::new(), 0)
}

/// The limit of the only device of a slice, and what is left of it, by `gpuslice status`.
fn limit(machine: &Machine, name: &str) -> (u64, u64) {
    let (out, err, status) = told(&mut gpuslice(machine, &["status", "--json", name]));
    assert_eq!((err.as_str(), status), ("", 0));
    let status: Value = serde_json::from_str(&out).unwrap();
    let device = &status["slices"][0]["devices"][0];
    assert_eq!(device["pending_limit"], Value::Null);
    let number = |key: &str| device[key].as_u64().unwrap();
    (number("limit"), number("left"))
}

fn member(config: &Path) -> Member {
    Member::of(config.to_str().unwrap())
}

#[test]
fn the_limit_follows_and_other_slices_get_what_it_leaves() {
    let machine = card();
    let (child, config) = machine.slice(&["--memory=12GiB", "--name=llama"]);
    let holder = member(&config);
    holder.take(Bytes::gib(3), Kind::Linear);
    let larger = resize(&machine, &["llama", "20GiB"]);
    assert_eq!(
        larger,
        said(&format!("llama: 12.00 GiB -> 20.00 GiB on {CARD}\n"))
    );
    assert_eq!(limit(&machine, "llama"), (20 * GIB, 17 * GIB));
    let (_, err, status) = told(&mut machine.run(&["--memory=4GiB"], "echo started"));
    assert!(
        err.contains("held by llama") && err.contains("20.00 GiB"),
        "{err}"
    );
    assert_eq!(status, 125);
    let smaller = resize(&machine, &["llama", "3GiB", "--device=0"]);
    assert_eq!(
        smaller,
        said(&format!("llama: 20.00 GiB -> 3.00 GiB on {CARD}\n"))
    );
    assert_eq!(limit(&machine, "llama"), (3 * GIB, 0));
    machine.starts(&["--memory=20GiB"]);
    let same = resize(&machine, &["llama", "3GiB", &format!("--device={GPU}")]);
    assert_eq!(
        same,
        said(&format!("llama: 3.00 GiB on {CARD}, as before\n"))
    );
    // This process holds memory of the slice, so the record stays.
    end(child);
}

#[test]
fn programs_of_the_slice_and_later_ones_report_the_limit_in_force() {
    let machine = card();
    let gpuslice = HERE.executable().display().to_string();
    let out = machine.state.path().join("documents").display().to_string();
    // The second program starts after the change, and reads a slice file with the first limit.
    let script = format!(
        "echo started; read line; ({gpuslice} check --json; {gpuslice} devices --json) >{out}; {gpuslice} run \
         -- {gpuslice} check >&2"
    );
    let mut command = machine.run(&["--memory=12GiB", "--name=llama"], &script);
    let (child, _) = crate::support::start(command.stdin(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(resize(&machine, &["llama", "20GiB"]).2, 0);
    let done = child.wait_with_output().unwrap();
    assert_eq!(
        done.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let text = std::fs::read_to_string(&out).unwrap();
    let documents = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    let documents: Vec<Value> = documents.map(Result::unwrap).collect();
    let check = &documents[0];
    assert_eq!(check["slice"]["devices"][0]["limit"], 20 * GIB);
    assert_eq!(check["consistent"], true);
    let totals = check["rows"].as_array().unwrap().iter();
    // Answers of 32 bits are 4 GiB less a byte.
    let totals = totals.filter_map(|row| row["total"].as_u64());
    let totals: Vec<u64> = totals.filter(|total| *total >= 4 * GIB).collect();
    assert!(totals.len() > 50 && totals.iter().all(|total| *total == 20 * GIB));
    assert_eq!(documents[1]["devices"][0]["limit"], 20 * GIB);
    machine.is_empty("tenants");
}

#[test]
fn a_size_that_does_not_fit_changes_nothing_and_names_the_holders() {
    let machine = card();
    let (child, config) = machine.slice(&["--memory=12GiB", "--name=llama"]);
    let (other, _) = machine.slice(&["--memory=8GiB", "--name=qwen"]);
    let (out, err, status) = resize(&machine, &["llama", "16GiB"]);
    let message = format!(
        "gpuslice: no room: {CARD} has 15.69 GiB left, 16.00 GiB requested; held by qwen (pid {}) \
         8.00 GiB\n",
        other.id()
    );
    assert_eq!((out.as_str(), err, status), ("", message, 1));
    let (_, err, status) = resize(&machine, &["llama", "24GiB"]);
    let message = format!("gpuslice: {CARD} has less: give at most 24259MiB\n");
    assert_eq!((err, status), (message, 1));
    let holder = member(&config);
    holder.take(Bytes::gib(5), Kind::Linear);
    let (out, err, status) = resize(&machine, &["llama", "4GiB"]);
    let own = crate::support::member::own_name();
    let message = format!(
        "gpuslice: the slice holds 5.00 GiB on {CARD}, more than 4.00 GiB:\n  {own} (pid {})  5.00 \
         GiB\n--wait TIME lowers the limit as the slice's programs free memory\n",
        std::process::id()
    );
    assert_eq!((out.as_str(), err, status), ("", message, 1));
    assert_eq!(limit(&machine, "llama"), (12 * GIB, 7 * GIB));
    end(child);
    end(other);
}

#[test]
fn with_wait_the_limit_comes_down_as_memory_is_given_back() {
    let machine = card();
    let (child, config) = machine.slice(&["--memory=12GiB", "--name=llama"]);
    let holder = member(&config);
    for _ in 0..6 {
        holder.take(Bytes::gib(1), Kind::Linear);
    }
    let mut command = gpuslice(
        &machine,
        &["resize", "llama", "2GiB", "--wait=1min", "--json"],
    );
    let waiting = command.stdout(Stdio::piped()).spawn().unwrap();
    let reaches = |wanted: u64| {
        let start = Instant::now();
        while limit(&machine, "llama").0 != wanted * GIB {
            assert!(start.elapsed() < Duration::from_secs(30), "{wanted}");
        }
    };
    reaches(6);
    holder.give_back(Bytes::gib(2), Kind::Linear);
    reaches(4);
    holder.give_back(Bytes::gib(3), Kind::Linear);
    let done = waiting.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    let expected = json!({
        "schema": 1, "name": "llama", "pid": child.id(), "resized": true, "error": null,
        "devices": [{
            "device": GPU, "index": 0, "former_limit": 12 * GIB, "limit": 2 * GIB,
            "restart_limit": 12 * GIB, "used": GIB,
        }],
    });
    assert_eq!((report, done.status.code()), (expected, Some(0)));
    machine.starts(&["--memory=21GiB"]);
    end(child);
}

#[test]
fn when_the_time_is_over_the_limit_stays_at_what_is_held() {
    let machine = card();
    let (child, config) = machine.slice(&["--memory=12GiB", "--name=llama"]);
    member(&config).take(Bytes::gib(5), Kind::Linear);
    let (out, err, status) = resize(&machine, &["llama", "4GiB", "--wait=1"]);
    assert_eq!(out, format!("llama: 12.00 GiB -> 5.00 GiB on {CARD}\n"));
    assert!(
        err.ends_with("the time is up: the limit stays at the lowest value that it has reached\n"),
        "{err}"
    );
    assert_eq!((status, limit(&machine, "llama")), (1, (5 * GIB, 0)));
    machine.starts(&["--memory=18GiB"]);
    end(child);
}

/// The memory in the only record of the machine.
fn recorded(machine: &Machine) -> u64 {
    let records = machine.records("tenants");
    let [record] = &records[..] else {
        panic!("{records:?}");
    };
    let text = std::fs::read(record).unwrap();
    let record: Value = serde_json::from_slice(&text).unwrap();
    record["devices"][0]["memory"].as_u64().unwrap()
}

/// Kills `gpuslice resize` of a slice of 12 GiB at any moment. `recorded` is what other slices count.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "the sizes and pauses of the rounds"
)]
fn killed_at_any_moment(machine: &Machine, recorded: impl Fn() -> u64) {
    let (child, config) = machine.slice(&["--memory=12GiB", "--name=llama"]);
    let config = config.to_str().unwrap();
    let ledger = crate::support::member::ledger_of(config);
    let in_force = || {
        let mut bytes = vec![0; gpuslice_config::ledger::MAX_SIZE];
        let path = std::ffi::CString::new(ledger.as_str()).unwrap();
        let snapshot = gpuslice_config::ledger::Snapshot::read(&path, &mut bytes).unwrap();
        let limit = snapshot.limits().next();
        limit.map_or(12 * GIB, |(_, limit)| limit.get())
    };
    let mut sizes = std::collections::BTreeSet::new();
    let start = Instant::now();
    assert_eq!(resize(machine, &["llama", "11GiB"]).2, 0);
    let took = start.elapsed();
    // More rounds, with later kills, where the machine has become slower than it was.
    let mut round = 0u32;
    while round < 60 || sizes.len() < 3 {
        assert!(round < 1000, "some commands are carried out: {sizes:?}");
        round += 1;
        let size = format!("{}GiB", 2 + round * 7 % 20);
        let mut command = gpuslice(machine, &["resize", "llama", &size]);
        let mut resizing = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The moments of the kill cover one and a half times the whole command, which takes some 20 ms
        // on a quiet machine.
        std::thread::sleep(took * round / 40);
        resizing.kill().unwrap();
        resizing.wait().unwrap();
        let (limit, record) = (in_force(), recorded());
        assert!(limit <= record, "round {round}: {limit} of {record}");
        sizes.insert(limit);
    }
    assert_eq!(resize(machine, &["llama", "5GiB"]).2, 0);
    assert_eq!((in_force(), recorded()), (5 * GIB, 5 * GIB));
    end(child);
}

#[test]
fn a_killed_command_never_leaves_a_limit_above_the_record() {
    let machine = card();
    killed_at_any_moment(&machine, || recorded(&machine));
    machine.is_empty("tenants");
}

#[test]
fn a_killed_command_never_leaves_a_limit_above_the_one_promise() {
    let machine = Machine::new(&HERE, "gb10");
    killed_at_any_moment(&machine, || {
        let [promised] = promised(&machine, "llama")[..] else {
            panic!("{:?}", machine.records("promises"));
        };
        promised
    });
    machine.is_empty("promises");
}

#[test]
fn what_cannot_be_resized_is_refused_with_its_reason() {
    let machine = card();
    let (one, _) = machine.slice(&["--memory=2GiB", "--name=twin"]);
    let (two, config) = machine.slice(&["--memory=2GiB", "--name=headed", "--headroom=1GiB"]);
    let refused = |words: &[&str], wanted: &str| {
        let (out, err, status) = resize(&machine, words);
        assert_eq!((out.as_str(), status), ("", 125), "{words:?}: {err}");
        assert!(err.contains(wanted), "{words:?}: {err}");
    };
    refused(&["nothing", "2GiB"], "no slice is called \"nothing\"");
    refused(&["twin", "2"], "too little for any program");
    refused(
        &["twin", "2GiB", "--device=1"],
        "the slice limits no GPU 1 of this machine",
    );
    refused(
        &["headed", "1GiB"],
        "1.00 GiB is not more than the slice's headroom of 1.00 GiB",
    );
    // The slice is of another release: its limit cannot be changed.
    let ledger = crate::support::member::ledger_of(config.to_str().unwrap());
    let whole = std::fs::read(&ledger).unwrap();
    let mut older = whole.clone();
    older[8] -= 1;
    std::fs::write(&ledger, older).unwrap();
    refused(&["headed", "2GiB"], "the ledger has version 4, not 5");
    std::fs::write(&ledger, whole).unwrap();
    let pid = one.id().to_string();
    let named = resize(&machine, &[&pid, "3GiB"]);
    assert_eq!(
        named,
        said(&format!("twin: 2.00 GiB -> 3.00 GiB on {CARD}\n"))
    );
    end(one);
    end(two);
}

#[test]
fn the_maximum_is_the_total_that_programs_see_and_the_end_of_resizes() {
    let machine = card();
    let gpuslice = HERE.executable().display().to_string();
    let out = machine.state.path().join("documents").display().to_string();
    let script = format!(
        "echo started; {gpuslice} check --json >{out}; echo >{out}.1; read line; {gpuslice} check --json \
         >{out}.2"
    );
    let options = ["--memory=8GiB", "--maximum=16GiB", "--name=llama"];
    let mut command = machine.run(&options, &script);
    let (child, _) = crate::support::start(command.stdin(Stdio::piped()));
    crate::support::eventually("the first check", || {
        Path::new(&format!("{out}.1")).exists()
    });
    let shows = |file: &str, limit: u64| {
        let check: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        assert_eq!(check["consistent"], true, "{check}");
        assert_eq!(check["slice"]["devices"][0]["limit"], limit);
        let rows = check["rows"].as_array().unwrap();
        // Answers of 32 bits are 4 GiB less a byte.
        let amounts = |key: &str| -> Vec<u64> {
            let amounts = rows.iter().filter_map(|row| row[key].as_u64());
            amounts.filter(|amount| *amount >= 4 * GIB).collect()
        };
        let (totals, frees) = (amounts("total"), amounts("free"));
        assert!(totals.len() > 50 && totals.iter().all(|total| *total == 16 * GIB));
        assert!(frees.len() > 10 && frees.iter().all(|free| *free < limit));
    };
    shows(&out, 8 * GIB);
    let (_, err, status) = resize(&machine, &["llama", "17GiB"]);
    assert!(
        err.contains("17.00 GiB is more than the slice's maximum of 16.00 GiB"),
        "{err}"
    );
    assert_eq!(status, 125);
    assert_eq!(resize(&machine, &["llama", "12GiB"]).2, 0);
    end(child);
    shows(&format!("{out}.2"), 12 * GIB);
    let (_, err, status) = told(&mut machine.run(&["--memory=8GiB", "--maximum=4GiB"], "true"));
    assert!(
        err.contains("the limit of 8.00 GiB is more than --maximum 4.00 GiB"),
        "{err}"
    );
    assert_eq!(status, 125);
}

/// The promised memory of a slice of unified memory, by the names of the promises.
fn promised(machine: &Machine, name: &str) -> Vec<u64> {
    let records = machine.records("promises");
    let names = records
        .iter()
        .map(|file| file.file_name().unwrap().to_str().unwrap());
    let own = names.filter(|file| file.ends_with(&format!(".{name}")));
    own.map(|file| file.split('.').next().unwrap().parse().unwrap())
        .collect()
}

#[test]
fn on_unified_memory_the_promise_follows_the_limit() {
    let machine = Machine::new(&HERE, "gb10");
    let (child, config) = machine.slice(&["--memory=40GiB", "--name=llama"]);
    let (out, err, status) = resize(&machine, &["llama", "200GiB"]);
    assert!(err.contains("has less: give at most"), "{out}{err}");
    assert_eq!(status, 1);
    let (_, err, _) = told(&mut machine.run(&["--memory=100GiB", "--name=second"], "echo started"));
    assert!(err.contains("llama") && err.contains("40.00 GiB"), "{err}");
    assert_eq!(resize(&machine, &["llama", "70GiB"]).2, 0);
    assert_eq!(promised(&machine, "llama"), [70 * GIB]);
    assert_eq!(limit(&machine, "llama").0, 70 * GIB);
    // The guard and other readers are given the promise's own name.
    let (out, ..) = told(&mut gpuslice(&machine, &["status", "--json", "llama"]));
    let status: Value = serde_json::from_str(&out).unwrap();
    let promise = &status["slices"][0]["promise"];
    assert_eq!(promise["budget"], 70 * GIB);
    assert!(Path::new(promise["file"].as_str().unwrap()).exists());
    let (second, _) = machine.slice(&["--memory=20GiB", "--name=second"]);
    let (_, err, status) = resize(&machine, &["llama", "110GiB"]);
    assert!(
        err.contains("does not fit on this host") && err.contains("second (pid "),
        "{err}"
    );
    assert_eq!((status, promised(&machine, "llama")), (1, vec![70 * GIB]));
    assert_eq!(resize(&machine, &["llama", "8GiB"]).2, 0);
    assert_eq!(promised(&machine, "llama"), [8 * GIB]);
    machine.starts(&["--memory=60GiB"]);
    // The watcher knows the promise by the name of the start.
    end(child);
    end(second);
    machine.is_empty("promises");
    eventually("the folder is removed", || !config.exists());
}

#[test]
fn programs_of_a_resized_slice_publish_what_they_spend() {
    let machine = Machine::new(&HERE, "gb10");
    let gpuslice = HERE.executable().display().to_string();
    let out = machine.state.path().join("document").display().to_string();
    let script = format!("echo started; read line; {gpuslice} check --json >{out}");
    let mut command = machine.run(&["--memory=40GiB", "--name=llama"], &script);
    let (child, _) = crate::support::start(command.stdin(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(resize(&machine, &["llama", "50GiB"]).2, 0);
    let [promise] = &machine.records("promises")[..] else {
        panic!("one promise");
    };
    assert_eq!(std::fs::read(promise).unwrap()[..8], [0; 8]);
    let done = child.wait_with_output().unwrap();
    let messages = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!messages.contains("cannot be written"), "{messages}");
    let check: Value = serde_json::from_slice(&std::fs::read(out).unwrap()).unwrap();
    assert_eq!(check["consistent"], true, "{check}");
    assert_eq!(check["slice"]["devices"][0]["limit"], 50 * GIB);
    machine.is_empty("promises");
}

#[test]
fn a_change_is_an_event() {
    let machine = card();
    let (child, _) = machine.slice(&["--memory=12GiB", "--name=llama"]);
    assert_eq!(resize(&machine, &["llama", "6GiB"]).2, 0);
    let (out, ..) = told(&mut gpuslice(&machine, &["events", "--json"]));
    let events = out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut resizes = events.filter(|event| event["event"] == "resize");
    let event = resizes.next().unwrap();
    assert_eq!(
        event["message"],
        "resized from 12.00 GiB to 6.00 GiB on GPU 0"
    );
    assert_eq!(
        (&event["limit"], &event["slice"]),
        (&json!(6 * GIB), &json!("llama"))
    );
    assert!(resizes.next().is_none());
    end(child);
}
