//! `gpuslice status` and `gpuslice report` where several users have slices.

use crate::support::{Installation, told};
use serde_json::{Value, json};
use std::process::Command;
use std::sync::LazyLock;

static HERE: LazyLock<Installation> = LazyLock::new(|| Installation::new("users"));

const GPU: &str = "GPU-3090aaaa-1111-4222-8333-444455550000";

/// Makes a machine in which user 65534 has the slice "theirs", and everybody can execute
/// `$gpuslice`. The command of that slice sleeps until the script ends, at most a minute. The
/// script waits up to ten seconds for the command to start.
const MACHINE: &str = r#"
set -e
cd "$0"  # the project may be below /tmp
mount --make-rprivate /
for place in /run /dev/shm; do mount -t tmpfs -o mode=1777 none $place; done
unset XDG_RUNTIME_DIR XDG_STATE_HOME TMPDIR COLUMNS LC_ALL LC_CTYPE LANG
cp -rL . /run/installed
mount -t tmpfs -o mode=1777 none /tmp
mv /run/installed /tmp/installed
cd /
gpuslice=/tmp/installed/release/gpuslice
as() { user=$1; shift; HOME=/tmp setpriv --reuid $user --regid $user --clear-groups "$@"; }
as 65534 timeout 60 $gpuslice run --sim=rtx3090 --memory=4GiB --name=theirs -- \
    sh -c 'echo $$ > /tmp/theirs; exec sleep 60' < /dev/null > /tmp/said 2>&1 &
for try in $(seq 500); do [ -s /tmp/theirs ] && break; sleep 0.02; done
trap 'kill $(cat /tmp/theirs)' EXIT
"#;

/// Runs a script on that machine and returns its output; `None` if the machine cannot be made.
fn on_machine(script: &str) -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not run: only root can be two users");
        return None;
    }
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(["timeout", "60", "sh", "-c"])
        .arg(format!("{MACHINE}{script}"))
        .arg(HERE.folder.parent().unwrap());
    let (out, err, status) = told(&mut command);
    assert_eq!((err.as_str(), status), ("", 0), "{out}");
    Some(out)
}

/// The name of user 65534 on this machine.
fn their_name() -> String {
    let user = nix::unistd::User::from_uid(65534.into()).unwrap();
    user.map_or("65534".to_owned(), |user| user.name)
}

#[test]
fn root_sees_the_slices_of_all_users_with_their_owner() {
    let Some(out) = on_machine("$gpuslice status; echo =; $gpuslice status theirs") else {
        return;
    };
    // Root may not look into the simulated machine of another user.
    let (shown, details) = out.split_once("=\n").unwrap();
    let mut lines = shown.lines();
    assert_eq!(lines.next(), Some(GPU), "{out}");
    let row: Vec<&str> = lines.nth(1).unwrap().split_whitespace().collect();
    let bar = "----------";
    let (theirs, begin) = (
        their_name(),
        [
            "theirs", "0.00", "/", "4.00", "GiB", "0%", bar, "-", "preload",
        ],
    );
    assert_eq!(row[..9], begin, "{out}");
    assert_eq!(
        (row[9], &row[11..]),
        (theirs.as_str(), &["sleep", "60"][..]),
        "{out}"
    );
    assert!(
        details.contains(&format!(", user {theirs})\n  command  sleep 60\n")),
        "{out}"
    );
    assert!(
        details.contains("    limit 4.00 GiB, used 0 B, left 4.00 GiB\n"),
        "{out}"
    );
    let json = on_machine("$gpuslice status --json").unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["slices"][0]["user"], json!(their_name()));
    let report = on_machine("$gpuslice report $(cat /tmp/theirs)").unwrap();
    assert!(report.starts_with("theirs (pid "), "{report}");
    assert!(report.contains("sleep"), "{report}");
}

#[test]
fn another_user_sees_whose_slices_there_are_and_no_more() {
    let Some(out) = on_machine("as 65533 $gpuslice status") else {
        return;
    };
    let mut lines = out.lines();
    assert_eq!(lines.next(), Some("on unknown GPUs"), "{out}");
    let row: Vec<&str> = lines.nth(1).unwrap().split_whitespace().collect();
    assert_eq!(lines.next(), None, "{out}");
    let (theirs, pid) = (their_name(), row[1]);
    assert_eq!(
        row[..6],
        ["pid", pid, "?", "-", "preload", theirs.as_str()],
        "{out}"
    );
    assert_eq!(row.len(), 7, "{out}");
    let why = "  its slice file can be read by its user and by root only\n";
    let details = on_machine("as 65533 $gpuslice status $(cat /tmp/theirs)").unwrap();
    assert!(
        details.contains(why) && !details.contains("sleep"),
        "{details}"
    );
}

/// On that machine, a driver that all users share, and a slice of user 65534 that was admitted on
/// its GPU and holds memory.
const SHARED_GPU: &str = r#"
mkdir /tmp/driver; umask 0; mkdir /tmp/gpu
for library in libcuda.so.1 libnvidia-ml.so.1; do ln -s /tmp/installed/sim/$library /tmp/driver; done
export LD_LIBRARY_PATH=/tmp/driver GPUSLICE_SIM_STATE=/tmp/gpu
$gpuslice devices --write 2>/dev/null
mkfifo /tmp/holds
as 65534 timeout 60 $gpuslice run --memory=6GiB --name=admitted -- \
    python3 -c "$TAKES" < /dev/zero > /tmp/holds 2>&1 &
read line < /tmp/holds; [ "$line" = granted ]
"#;

/// Takes 3 GiB of the GPU and keeps them until it is killed.
const TAKES: &str = r#"
import ctypes, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
context, place = ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(3 << 30)) == 0
print("granted", flush=True)
time.sleep(60)
"#;

#[test]
fn the_numbers_of_a_gpu_are_the_same_for_every_user() {
    let script = format!(
        "TAKES='{TAKES}'\n{SHARED_GPU}
        $gpuslice status --json; echo =; as 65533 $gpuslice status --json; echo =
        as 65533 $gpuslice status"
    );
    let Some(out) = on_machine(&script) else {
        return;
    };
    let parts: Vec<&str> = out.split("=\n").collect();
    let [root, other] = [0, 1].map(|part| serde_json::from_str::<Value>(parts[part]).unwrap());
    let card = &root["cards"][0];
    assert_eq!(root["cards"].as_array().unwrap().len(), 1, "{root}");
    let (total, held) = (25_438_126_080u64, (3u64 << 30) + (254 << 20));
    assert_eq!(
        json!([
            card["total"],
            card["used"],
            card["in_slices"],
            card["outside_slices"]
        ]),
        json!([total, held, held, 0])
    );
    assert_eq!(
        json!([card["limits_sum"], card["left_to_give"]]),
        json!([6u64 << 30, total - (6 << 30)])
    );
    assert_eq!(root["cards"], other["cards"]);
    // The other user is told the name, the owner and the size, and not the command.
    let find = |all: &Value| {
        let all = all["slices"].as_array().unwrap().clone();
        let mut named = all.into_iter().filter(|one| one["name"] == "admitted");
        named.next().unwrap()
    };
    let (known, told) = (find(&root), find(&other));
    assert_eq!(known["command"][0], "python3");
    assert_eq!(told["command"], Value::Null);
    for key in ["pid", "user", "started", "fence"] {
        assert_eq!(known[key], told[key], "{key}");
    }
    let device = &told["devices"][0];
    assert_eq!(
        json!([device["limit"], device["used"], device["driver_used"]]),
        json!([6u64 << 30, null, held])
    );
    let row = parts[2]
        .lines()
        .find(|line| line.starts_with("  admitted"))
        .unwrap();
    let words: Vec<&str> = row.split_whitespace().collect();
    let theirs = their_name();
    let begin = [
        "admitted",
        "3.25",
        "/",
        "6.00",
        "GiB",
        "54%",
        "#####-----",
        "-",
        "preload",
    ];
    assert_eq!(
        (&words[..9], words[9]),
        (&begin[..], theirs.as_str()),
        "{}",
        parts[2]
    );
    assert_eq!(words.len(), 11, "{}", parts[2]);
}

#[test]
fn root_reads_nothing_that_another_users_link_leads_to() {
    // A registry whose links lead to a pipe and to a file that only root can read.
    let script = r#"
        echo '{"version":1,"name":"secret","memory":1}' > /run/secret.json
        chmod 600 /run/secret.json; mkfifo -m 666 /tmp/pipe
        ln -s /run/secret.json /tmp/gpuslice-65534/secret-$$
        ln -s /tmp/pipe /tmp/gpuslice-65534/pipe-$$
        chown -h 65534:65534 /tmp/gpuslice-65534/*
        timeout 20 $gpuslice status"#;
    let Some(out) = on_machine(script) else {
        return;
    };
    assert!(
        out.contains("  theirs  ") && !out.contains("secret"),
        "{out}"
    );
}

/// Every process can name the file of root's run in its environment.
#[test]
fn a_strangers_process_is_not_in_the_report_of_roots_slice() {
    let script = r#"
        (as 0 timeout 60 $gpuslice run --sim=rtx3090 --memory=4GiB --name=ours -- \
            sh -c 'echo $GPUSLICE_CONFIG > /tmp/config; echo $$ > /tmp/ours; exec sleep 60') \
            < /dev/null > /dev/null 2>&1 &
        for try in $(seq 500); do [ -s /tmp/ours ] && break; sleep 0.02; done
        as 65534 env GPUSLICE_CONFIG=$(cat /tmp/config) \
            sh -c 'echo $$ > /tmp/stranger; exec sleep 60' < /dev/null > /dev/null 2>&1 &
        for try in $(seq 500); do [ -s /tmp/stranger ] && break; sleep 0.02; done
        echo $(cat /tmp/stranger /tmp/ours)
        $gpuslice report ours --json
        kill $(cat /tmp/stranger /tmp/ours)"#;
    let Some(out) = on_machine(script) else {
        return;
    };
    let (pids, report) = out.split_once('\n').unwrap();
    let (stranger, own) = pids.split_once(' ').unwrap();
    let report: Value = serde_json::from_str(report).unwrap();
    let listed = report["slices"][0]["processes"].as_array().unwrap().iter();
    let listed: Vec<String> = listed.map(|one| one["pid"].to_string()).collect();
    assert!(listed.contains(&own.to_owned()), "{report}");
    assert!(!listed.contains(&stranger.to_owned()), "{report}");
}

/// The folder of a simulated machine may be another user's.
#[test]
fn a_state_folder_that_may_not_be_entered_is_named() {
    let script = r#"
        mkdir -m 700 /tmp/private
        as 65534 env GPUSLICE_SIM_STATE=/tmp/private $gpuslice run --sim=rtx3090 --memory=4GiB -- true 2>&1 ||
            echo $?"#;
    let Some(out) = on_machine(script) else {
        return;
    };
    assert!(out.contains("cannot start the simulated machine"), "{out}");
    assert!(out.contains("Permission denied"), "{out}");
    assert!(!out.contains("cuInit") && out.ends_with("125\n"), "{out}");
}

/// Two runs of user 65534 that are recorded in the folder of that user only, because root has not
/// created the folder of the machine yet.
const RECORDED_BY_USER: &str = r#"
mkdir /tmp/driver; umask 0; mkdir /tmp/gpu
for library in libcuda.so.1 libnvidia-ml.so.1; do ln -s /tmp/installed/sim/$library /tmp/driver; done
export LD_LIBRARY_PATH=/tmp/driver GPUSLICE_SIM_STATE=/tmp/gpu
rm -rf /run/gpuslice
for slice in small=6 large=12; do
    as 65534 timeout 60 $gpuslice run --memory=${slice#*=}GiB --name=${slice%=*} -- \
        sh -c 'echo $$ > /tmp/$0; exec sleep 60' ${slice%=*} < /dev/null > /tmp/said 2>&1 &
    for try in $(seq 500); do [ -s /tmp/${slice%=*} ] && break; sleep 0.02; done
done
trap 'kill $(cat /tmp/theirs /tmp/small /tmp/large)' EXIT
memory() { grep -ho '"memory":[0-9]*' /tmp/gpuslice-65534/tenants/run.$(cat /tmp/small).*; }
"#;

#[test]
fn root_resizes_a_run_beside_the_other_runs_that_its_user_has_recorded() {
    let script = format!(
        "{RECORDED_BY_USER}
        memory; ls /run/gpuslice/tenants 2>/dev/null || true
        $gpuslice resize small 14GiB 2>&1 || echo $?; memory
        $gpuslice resize small 10GiB; memory"
    );
    let Some(out) = on_machine(&script) else {
        return;
    };
    let lines: Vec<&str> = out.lines().collect();
    let memory = |gib: u64| format!("\"memory\":{}", gib << 30);
    assert_eq!(lines[0], memory(6), "{out}");
    let refused = "gpuslice: no room: GPU 0 (NVIDIA GeForce RTX 3090, 23.69 GiB) has 11.69 GiB left, 14.00 GiB \
                   requested; held by large (pid ";
    assert!(lines[1].starts_with(refused), "{out}");
    assert_eq!((lines[2], lines[3]), ("1", memory(6).as_str()), "{out}");
    let resized = "small: 6.00 GiB -> 10.00 GiB on GPU 0 (NVIDIA GeForce RTX 3090, 23.69 GiB)";
    assert_eq!(
        (lines[4], lines[5]),
        (resized, memory(10).as_str()),
        "{out}"
    );
}
