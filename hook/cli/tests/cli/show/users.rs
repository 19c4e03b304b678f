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
mount --make-rprivate /
for place in /run /tmp /dev/shm; do mount -t tmpfs -o mode=1777 none $place; done
unset XDG_RUNTIME_DIR XDG_STATE_HOME TMPDIR
cp -rL "$0" /tmp/installed
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
    let Some(out) = on_machine("cat /tmp/theirs; $gpuslice status") else {
        return;
    };
    let (pid, shown) = out.split_once('\n').unwrap();
    let expected = format!(
        "theirs (pid {pid}, user {})\n  {GPU}  limit 4.00 GiB, used 0 B, left 4.00 GiB\n",
        their_name()
    );
    assert_eq!(shown, expected);
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
    let end = format!(", user {})", their_name());
    let mut lines = out.lines();
    assert!(lines.next().unwrap().ends_with(&end), "{out}");
    let why = "  its slice file can be read by its user and by root only";
    assert_eq!((lines.next(), lines.next()), (Some(why), None), "{out}");
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
        out.starts_with("theirs (pid ") && !out.contains("secret"),
        "{out}"
    );
}
