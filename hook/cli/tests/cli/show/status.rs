//! `gpuslice status` lists the running slices and the memory of their processes, and no slice that
//! has ended.

use crate::support::member::{GPU, Member, ledger_of, own_name};
use crate::support::{
    Home, Installation, eventually, only, spawn, start, told, with_usual_signals,
};
use gpuslice_config::ledger::{Kind, Ledger, Open};
use gpuslice_config::words::units::Bytes;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

pub(super) static HERE: LazyLock<Installation> = LazyLock::new(|| Installation::new("status"));

pub(super) const LLAMA: [&str; 3] = ["--sim=rtx3090", "--memory=8GiB", "--name=llama"];

/// Starts a command that prints the path of its slice file, and ends when its standard input
/// closes.
pub(super) fn slice(home: &Home, options: &[&str]) -> (Child, String) {
    let mut command = HERE.run(options, "echo $GPUSLICE_CONFIG; read line");
    start(home.of(&mut command).stdin(Stdio::piped()))
}

pub(super) fn end(mut child: Child) {
    drop(child.stdin.take());
    child.wait().unwrap();
}

pub(super) fn status(home: &Home, options: &[&str]) -> String {
    let mut command = HERE.gpuslice();
    let (out, err, status) = told(home.of(&mut command).arg("status").args(options));
    assert_eq!((err.as_str(), status), ("", 0));
    out
}

/// Everything about one slice, without the line that says when it was started.
pub(super) fn details(home: &Home, name: &str) -> String {
    let text = status(home, &[name]);
    let lines = text.split_inclusive('\n');
    let (started, others): (Vec<_>, Vec<_>) =
        lines.partition(|line| line.starts_with("  started  "));
    assert_eq!(started.len(), 1, "{text}");
    others.concat()
}

/// The output and the messages for a slice that cannot be read.
pub(super) fn unread(home: &Home, options: &[&str]) -> (String, String) {
    let mut command = HERE.gpuslice();
    let (out, err, status) = told(home.of(&mut command).arg("status").args(options));
    assert_eq!(status, 1, "{out}{err}");
    (out, err)
}

pub(super) fn own_user() -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap();
    user.unwrap().name
}

pub(super) fn entries(home: &Home) -> usize {
    fs::read_dir(home.runtime.path().join("gpuslice"))
        .unwrap()
        .count()
}

pub(super) const NOTHING: &str = "no slices are running\n";

#[test]
fn nothing_is_running_where_nothing_was_started() {
    let home = Home::new();
    assert_eq!(status(&home, &[]), NOTHING);
    let nothing = "{\n  \"schema\": 1,\n  \"cards\": [],\n  \"slices\": [],\n  \"warnings\": [],\n  \"device_list\": null\n}\n";
    assert_eq!(status(&home, &["--json"]), nothing);
    assert_eq!(fs::read_dir(home.runtime.path()).unwrap().count(), 0);
}

#[test]
fn who_holds_what_is_shown_while_it_is_held() {
    let home = Home::new();
    let (child, config) = slice(&home, &LLAMA);
    let pid = child.id();
    let head = format!(
        "llama (pid {pid})\n  command  sh -c echo $GPUSLICE_CONFIG; read line\n  \
           fence    preload: cooperative\n  file     {config}\n  ledger   {}\n  \
           GPU 0  NVIDIA GeForce RTX 3090  {GPU}\n",
        ledger_of(&config)
    );
    let idle = format!("{head}    limit 8.00 GiB, used 0 B, left 8.00 GiB\n");
    assert_eq!(details(&home, "llama"), idle);
    let member = Member::of(&config);
    member.take(Bytes::gib(3), Kind::Linear);
    member.take(Bytes::mib(256), Kind::Context);
    member.is_refused(Bytes::mib(41));
    member.is_refused(Bytes::mib(143));
    let (own, name) = (std::process::id(), own_name());
    let shown = format!(
        "{head}    limit 8.00 GiB, used 3.25 GiB, left 4.75 GiB\n    \
             refused twice, at worst 143.00 MiB short\n"
    );
    let text = details(&home, "llama");
    let (head, processes) = text.split_at(shown.len());
    assert_eq!(head, shown);
    let words: Vec<Vec<&str>> = processes
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let own_text = own.to_string();
    let row = [
        &own_text, "3.25", "GiB", &name, "context", "256.00", "MiB,", "linear", "3.00", "GiB",
    ];
    assert_eq!(words, [&["PID", "USED", "NAME", "BY", "KIND"][..], &row]);

    let mut json: Value = serde_json::from_str(&status(&home, &["--json"])).unwrap();
    let by_kind = json!({"linear": 3u64 << 30, "context": 256 << 20});
    let used = 13u64 << 28;
    let started = json["slices"][0]["started"].take();
    let started = started.as_str().unwrap();
    assert!(started.len() == 20 && started.ends_with('Z'), "{started}");
    assert!(json["slices"][0]["age"].take().as_u64().unwrap() < 600);
    let machine = json["slices"][0]["machine"].clone();
    assert_eq!(machine["simulated"], "rtx3090");
    let (total, held) = (
        25_438_126_080u64,
        json["cards"][0]["used"].as_u64().unwrap(),
    );
    let cards = json!([{
        "index": 0, "device": GPU, "name": "NVIDIA GeForce RTX 3090", "machine": machine,
        "total": total, "used": held, "in_slices": used, "outside_slices": held.saturating_sub(used),
        "limits_sum": 8u64 << 30, "left_to_give": total - (8 << 30), "unified": false,
    }]);
    let command = json!(["sh", "-c", "echo $GPUSLICE_CONFIG; read line"]);
    let device = json!({
        "device": GPU, "limit": 8u64 << 30, "pending_limit": null, "driver_limit": null, "headroom": 0,
        "headroom_learned": false, "used": used, "left": 19u64 << 28, "driver_used": null,
        "by_kind": by_kind, "refusals": {"count": 2, "worst_short_by": 143 << 20},
        "processes": [{
            "pid": own, "name": name, "used": used, "driver_used": null, "by_kind": by_kind,
        }],
        "without_library": [],
    });
    let slice = json!({
        "name": "llama", "pid": pid, "user": own_user(), "command": command, "started": null,
        "age": null, "machine": machine, "fence": "preload", "file": config,
        "no_slice": null, "ledger": ledger_of(&config), "sealed": null,
        "enforce": true, "total": "slice", "uncounted": 0, "error": null, "promise": null,
        "devices": [device],
    });
    let expected = json!({
        "schema": 1, "cards": cards, "slices": [slice], "warnings": [], "device_list": null,
    });
    assert_eq!(json, expected);
    end(child);
}

#[test]
fn two_runs_of_one_name_are_two_slices_and_each_is_gone_with_its_command() {
    let home = Home::new();
    let (one, first) = slice(&home, &LLAMA);
    let (two, second) = slice(
        &home,
        &[&LLAMA[..], &["--no-enforce", "--headroom=1GiB"]].concat(),
    );
    assert_ne!(first, second);
    let shown = status(&home, &["llama"]);
    for line in [
        format!("llama (pid {})\n", one.id()),
        format!("llama (pid {}, only counted, not enforced)\n", two.id()),
        "  fence    counted: nothing is refused\n".to_owned(),
        "    limit 8.00 GiB, used 0 B, left 8.00 GiB, headroom 1.00 GiB\n".to_owned(),
    ] {
        assert!(shown.contains(&line), "{shown}");
    }
    end(one);
    eventually("one left", || entries(&home) == 1);
    let left = status(&home, &["llama"]);
    assert!(
        left.starts_with(&format!("llama (pid {}", two.id())),
        "{left}"
    );
    assert_eq!(left.matches("llama (pid").count(), 1, "{left}");
    end(two);
    eventually("no slice is left", || entries(&home) == 0);
    assert_eq!(status(&home, &[]), NOTHING);
}

/// Not a test: the next test starts this one in another pid namespace.
#[test]
#[ignore = "a process of another test"]
fn a_member_of_another_namespace() {
    let Ok(config) = std::env::var("MEMBER_OF") else {
        return;
    };
    Member::of(&config).take(Bytes::gib(1), Kind::Linear);
    std::io::Write::write_all(&mut std::io::stdout(), b"\nready\n").unwrap();
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
fn a_process_of_another_pid_namespace_has_its_number_here() {
    let home = Home::new();
    let (child, config) = slice(&home, &LLAMA);
    let mut command = Command::new("unshare");
    command
        .args(["--map-root-user", "--pid", "--fork", "--kill-child"])
        .arg(std::env::current_exe().unwrap())
        .args(only(module_path!(), "a_member_of_another_namespace"))
        .env("MEMBER_OF", &config)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut member = spawn(&mut command);
    let mut out = BufReader::new(member.stdout.take().unwrap());
    assert!(out.by_ref().lines().any(|line| line.unwrap() == "ready"));
    let json: Value = serde_json::from_str(&status(&home, &["--json"])).unwrap();
    let shown = &json["slices"][0]["devices"][0]["processes"];
    let children = format!("/proc/{0}/task/{0}/children", member.id());
    let here: u32 = fs::read_to_string(children)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert_eq!(shown.as_array().unwrap().len(), 1);
    assert_eq!(
        (&shown[0]["pid"], &shown[0]["name"]),
        (&json!(here), &json!(own_name()))
    );
    end(member);
    end(child);
}

#[test]
fn runs_of_slice_files_that_name_one_ledger_share_it() {
    let home = Home::new();
    let (file, ledger) = (
        home.state.path().join("a.json"),
        home.state.path().join("ledger"),
    );
    let text = json!({"version": 1, "name": "team", "memory": 8u64 << 30, "ledger": ledger});
    fs::write(&file, text.to_string()).unwrap();
    let options = ["--sim=rtx3090", "--config", file.to_str().unwrap()];
    let (one, config) = slice(&home, &options);
    assert_eq!(Path::new(&config), file);
    let (two, _) = slice(&home, &options);
    Member::of(&config).take(Bytes::gib(1), Kind::Vmm);
    let shown = status(&home, &["team"]);
    assert!(
        shown.starts_with(&format!("team (pid {})\n", one.id())),
        "{shown}"
    );
    assert_eq!(shown.matches("team").count(), 1, "{shown}");
    assert!(shown.contains("used 1.00 GiB, left 7.00 GiB"), "{shown}");
    end(one);
    assert!(status(&home, &["team"]).starts_with("team\n"));
    end(two);
}

#[test]
fn a_watch_goes_on_until_it_is_interrupted() {
    for (options, lines) in [
        (&["--watch"][..], [NOTHING, "\n", NOTHING]),
        (
            &["--watch", "--json"],
            ["{\"schema\":1,\"cards\":[],\"slices\":[],\"warnings\":[],\"device_list\":null}\n"; 3],
        ),
    ] {
        let home = Home::new();
        let mut command = HERE.gpuslice();
        home.of(&mut command).arg("status").args(options);
        let command = with_usual_signals(&mut command).stdout(Stdio::piped());
        let mut child = spawn(command);
        let mut out = BufReader::new(child.stdout.take().unwrap());
        for expected in lines {
            let mut line = String::new();
            out.read_line(&mut line).unwrap();
            assert_eq!(line, expected);
        }
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        kill(pid, Signal::SIGINT).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(2));
    }
}

#[test]
fn in_a_container_its_own_slice_is_shown() {
    let (root, home) = (tempfile::tempdir().unwrap(), Home::new());
    let ledger = home.state.path().join("ledger");
    let path = std::ffi::CString::new(ledger.to_str().unwrap()).unwrap();
    Ledger::open(
        &path,
        Open::Create {
            mode: 0o600,
            devices: 1,
        },
    )
    .unwrap();
    Member::of_ledger(ledger.to_str().unwrap()).take(Bytes::gib(2), Kind::Pool);
    let container = "set -e; cd $0; mount -t tmpfs none .
        for entry in /*; do
            if [ -L $entry ]; then cp -P $entry .
            elif [ -d $entry ]; then mkdir .$entry; mount --rbind $entry .$entry; fi
        done
        mkdir -p .gpuslice/ledger; touch .gpuslice/ledger/ledger
        mount --bind $1 .gpuslice/ledger/ledger; shift
        echo '{\"version\":1,\"name\":\"pod\",\"memory\":8589934592}' > .gpuslice/slice.json
        exec chroot . \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["--map-root-user", "--mount", "sh", "-c", container])
        .args([root.path(), &ledger, &HERE.executable()])
        .arg("status")
        .env_remove("COLUMNS")
        .env("LC_ALL", "C");
    let (out, err, status) = told(&mut command);
    assert_eq!((err.as_str(), status), ("", 0));
    let lines: Vec<Vec<&str>> = out
        .lines()
        .map(|it| it.split_whitespace().collect())
        .collect();
    let row = [
        "pod",
        "2.00",
        "/",
        "8.00",
        "GiB",
        "25%",
        "###-------",
        "-",
        "preload",
        "-",
        "-",
    ];
    let head = [
        "NAME", "USED", "/", "LIMIT", "REFUSED", "FENCE", "USER", "AGE", "COMMAND",
    ];
    assert_eq!(lines, [&[GPU][..], &head, &row], "{out}");
}

/// Allocates that many GiB of the GPU, prints a line, and holds them until its standard input ends.
const TAKES: &str = r#"
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, place = ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
size = ctypes.c_size_t(int(sys.argv[1]) << 30)
refused = cuda.cuMemAlloc_v2(ctypes.byref(place), size)
sys.stdout.write("refused\n" if refused else "granted\n")
sys.stdout.flush()
sys.stdin.read()
"#;

#[test]
fn a_process_that_holds_device_memory_without_the_library_is_named() {
    let home = Home::new();
    let script = "\"$0\" -c \"$1\" 3 <&0 & env -u LD_PRELOAD \"$0\" -c \"$1\" 10";
    let mut command = HERE.gpuslice();
    home.of(&mut command)
        .args(["run", "--sim=rtx3090", "--memory=4GiB", "--name=esc", "--"])
        .args(["sh", "-c", &format!("{script}; wait"), "python3", TAKES])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = spawn(&mut command);
    let out = BufReader::new(child.stdout.take().unwrap());
    let both: Vec<String> = out.lines().take(2).map(Result::unwrap).collect();
    assert_eq!(both, ["granted", "granted"]);
    let shown = status(&home, &[]);
    let json: Value = serde_json::from_str(&status(&home, &["--json"])).unwrap();
    let device = &json["slices"][0]["devices"][0];
    let escaped = &device["without_library"];
    let (pid, used) = (&escaped[0]["pid"], escaped[0]["used"].as_u64().unwrap());
    assert_eq!(escaped.as_array().unwrap().len(), 1, "{json}");
    assert!((10 << 30..11 << 30).contains(&used), "{json}");
    let holds = format!("holds {} without libgpuslice.so", Bytes::new(used));
    let warning = format!(
        "! process {pid} (python3) of slice esc {holds}: it is neither counted nor limited \
         (gpuslice doctor {pid})\n"
    );
    assert!(shown.ends_with(&warning), "{shown}");
    assert_eq!(shown.matches('!').count(), 1, "{shown}");
    assert!(
        status(&home, &["esc"]).ends_with(&format!("  {warning}")),
        "{shown}"
    );
    let message =
        format!("process {pid} (python3) of slice esc {holds}: it is neither counted nor limited");
    let expected = json!([{
        "kind": "without_library", "message": message, "advice": format!("gpuslice doctor {pid}"),
        "slice": "esc", "pid": pid, "device": GPU,
    }]);
    assert_eq!(json["warnings"], expected);
    // The card holds both; only one is counted.
    let (counted, card) = (&device["used"], &json["cards"][0]);
    let both = counted.as_u64().unwrap() + used;
    assert_eq!(
        json!([counted, used, both]),
        json!([card["in_slices"], card["outside_slices"], card["used"]])
    );
    assert_eq!(device["driver_used"], both);
    // What NVML says of the one that has loaded it is what the ledger says.
    let counted = &device["processes"][0];
    assert_eq!(counted["driver_used"], counted["used"], "{json}");
    let mut command = HERE.gpuslice();
    let (report, err, _) = told(home.of(&mut command).arg("report"));
    let line = format!(
        "    warning: process {pid} (python3) {holds}: it is neither counted nor limited\n"
    );
    assert!(report.contains(&line) && err.is_empty(), "{report}{err}");
    let row = report
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut row = row.filter(|words| words.first() == Some(&pid.to_string().as_str()));
    let (amount, unit) = line
        .split_once("holds ")
        .unwrap()
        .1
        .split_once(' ')
        .unwrap();
    let unit = unit.split_once(' ').unwrap().0;
    assert_eq!(row.next().unwrap()[1..3], [amount, unit], "{report}");
    end(child);
}

#[test]
fn an_edited_slice_file_is_shown_as_pending_and_the_limit_in_force_stays() {
    let home = Home::new();
    let (child, config) = slice(&home, &LLAMA);
    let text = fs::read_to_string(&config).unwrap();
    let edited = text.replace("8589934592", "6442450944");
    assert_ne!(text, edited);
    fs::write(&config, edited).unwrap();
    let shown = status(&home, &["llama"]);
    let line = "limit 8.00 GiB (6.00 GiB for programs that start now), used 0 B, left 8.00 GiB\n";
    assert!(shown.contains(line), "{shown}");
    let json: Value = serde_json::from_str(&status(&home, &["--json"])).unwrap();
    let device = &json["slices"][0]["devices"][0];
    assert_eq!(
        (&device["limit"], &device["pending_limit"]),
        (&json!(8u64 << 30), &json!(6u64 << 30))
    );
    end(child);
}

#[test]
fn one_slice_is_shown_by_its_name_or_by_a_process() {
    let home = Home::new();
    let (one, config) = slice(&home, &LLAMA);
    let (two, _) = slice(&home, &["--sim=rtx3090", "--memory=4GiB", "--name=other"]);
    Member::of(&config).take(Bytes::gib(1), Kind::Linear);
    let llama = details(&home, "llama");
    assert!(
        llama.starts_with("llama (pid ") && !llama.contains("other"),
        "{llama}"
    );
    assert_eq!(details(&home, &one.id().to_string()), llama);
    assert_eq!(details(&home, &std::process::id().to_string()), llama);
    assert!(status(&home, &["other", "--json"]).contains("\"other\""));
    for (name, message) in [
        ("nosuch", "gpuslice: no slice is called \"nosuch\"\n"),
        (
            "1",
            "gpuslice: process 1 is in no slice that is visible from here\n",
        ),
    ] {
        let mut command = HERE.gpuslice();
        let told = told(home.of(&mut command).args(["status", name]));
        assert_eq!(told, (String::new(), message.to_owned(), 125));
    }
    end(one);
    end(two);
}
