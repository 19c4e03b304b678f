//! Events where several users have slices: root sees all, others their own.
//! Touches: a mount namespace of its own, with another /etc/passwd. Needs root.

use super::HERE;
use crate::support::told;
use serde_json::Value;
use std::process::Command;

/// A machine of its own with a user vllm, who has run "theirs"; root has run "ours".
const MACHINE: &str = r#"
set -e
cd "$0"  # the project may be below /tmp
mount --make-rprivate /
for place in /run /dev/shm /var/log; do mount -t tmpfs -o mode=1777 none $place; done
unset XDG_RUNTIME_DIR XDG_STATE_HOME TMPDIR
cp -rL . /run/installed
mount -t tmpfs -o mode=1777 none /tmp
mv /run/installed /tmp/installed
cd /
gpuslice=/tmp/installed/release/gpuslice
mkdir /tmp/home && chown 4711:4711 /tmp/home
printf 'root:x:0:0::/root:/bin/sh\nvllm:x:4711:4711::/tmp/home:/bin/sh\n' > /tmp/passwd
mount --bind /tmp/passwd /etc/passwd
as() { HOME=/tmp/home setpriv --reuid 4711 --regid 4711 --clear-groups "$@"; }
ended() { for try in $(seq 500); do grep -qs '"end"' $1 && return; sleep 0.02; done; exit 7; }
as $gpuslice run --sim=rtx3090 --memory=4GiB --name=theirs -- true
ended /tmp/home/.local/state/gpuslice/events.jsonl
$gpuslice run --sim=rtx3090 --memory=4GiB --name=ours -- true
ended /var/log/gpuslice/events.jsonl
"#;

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

/// The slices and users of JSON lines.
fn slices(out: &str) -> Vec<(String, String)> {
    let text = |event: &Value, key: &str| event[key].as_str().unwrap().to_owned();
    let events = out.lines().map(|line| serde_json::from_str(line).unwrap());
    events
        .map(|event: Value| (text(&event, "slice"), text(&event, "user")))
        .collect()
}

#[test]
fn root_sees_everybodys_events_and_others_only_their_own() {
    let Some(out) = on_machine("$gpuslice events --json") else {
        return;
    };
    let of = |slice: &str, user: &str| (slice.to_owned(), user.to_owned());
    let (theirs, ours) = (of("theirs", "vllm"), of("ours", "root"));
    let all = [theirs.clone(), theirs.clone(), ours.clone(), ours];
    assert_eq!(slices(&out), all);
    let own = on_machine("as $gpuslice events --json").unwrap();
    assert_eq!(slices(&own), [theirs.clone(), theirs]);
}

#[test]
fn another_user_cannot_speak_for_root_nor_lead_root_to_its_files() {
    let script = r#"
        events=/tmp/home/.local/state/gpuslice/events.jsonl
        sed -i 's/"vllm"/"root"/' $events; chown 4711:4711 $events
        $gpuslice events --json theirs
        echo '{"schema":1,"time":"2026-01-01T00:00:00.000Z","event":"start","slice":"secret"}' > /tmp/secret
        chmod 600 /tmp/secret; ln -sf /tmp/secret $events
        $gpuslice events --json 2>/dev/null || true
        rm $events; mkfifo $events; chown 4711 $events
        timeout 20 $gpuslice events --json 2>/dev/null || [ $? = 1 ]"#;
    let Some(out) = on_machine(script) else {
        return;
    };
    let slices = slices(&out);
    assert_eq!(
        slices[..2],
        [
            ("theirs".to_owned(), "vllm".to_owned()),
            ("theirs".to_owned(), "vllm".to_owned())
        ]
    );
    assert!(
        slices[2..]
            .iter()
            .all(|(slice, user)| slice == "ours" && user == "root"),
        "{out}"
    );
    assert_eq!(slices.len(), 6);
}

#[test]
fn only_the_owner_can_read_events() {
    let script = r#"
        stat -c '%a %u %n' /var/log/gpuslice /var/log/gpuslice/events.jsonl \
            /tmp/home/.local/state/gpuslice /tmp/home/.local/state/gpuslice/events.jsonl
        as cat /var/log/gpuslice/events.jsonl 2>/dev/null && echo readable; true"#;
    let Some(out) = on_machine(script) else {
        return;
    };
    let expected = "755 0 /var/log/gpuslice\n600 0 /var/log/gpuslice/events.jsonl\n\
                    700 4711 /tmp/home/.local/state/gpuslice\n\
                    600 4711 /tmp/home/.local/state/gpuslice/events.jsonl\n";
    assert_eq!(out, expected);
}
