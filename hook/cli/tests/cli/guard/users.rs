//! A user cannot make the guard of root act on what is not theirs.
//! Touches: a machine of its own: namespaces, as root.

use super::{HERE, holder};
use crate::support::told;
use std::process::Command;

/// User 65534 has a slice on a Spark, and a second entry: a slice file with a limit of one byte and
/// the same ledger, whose command is a process of root. What its program holds is beyond that limit.
const SCRIPT: &str = r#"
set -e
cd "$0"  # the project may be below /tmp
exec 4< "$1"
mount --make-rprivate /
for place in /run /dev/shm; do mount -t tmpfs -o mode=1777 none $place; done
unset XDG_RUNTIME_DIR XDG_STATE_HOME TMPDIR
cp -rL . /run/installed
mount -t tmpfs -o mode=1777 none /tmp
mv /run/installed /tmp/installed
cp /proc/self/fd/4 /tmp/holder
cd /
gpuslice=/tmp/installed/release/gpuslice
as() { HOME=/tmp setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
when() { for try in $(seq 1000); do "$@" && return; sleep 0.02; done; echo "never: $*"; cat /tmp/guard; exit 1; }
mkfifo -m 666 /tmp/in; exec 3<>/tmp/in
as timeout 60 $gpuslice run --sim=gb10 --memory=8GiB --name=theirs -- sh -c \
    'echo $GPUSLICE_CONFIG > /tmp/config; echo $$ > /tmp/theirs; exec /tmp/holder 5368709120 < /tmp/in' \
    > /tmp/said 2>&1 &
when grep -q holds /tmp/said
sleep 1000 & victim=$!
registry=$(as find /tmp/gpuslice-65534 /run/user/65534/gpuslice -type l 2>/dev/null | head -1)
sed -e 's/"memory": *[0-9]*/"memory": 1/g' -e 's/"name": *"theirs"/"name": "forged"/' \
    -e 's/"promise": *"[^"]*",//' "$(cat /tmp/config)" > /tmp/forged.json
chown 65534 /tmp/forged.json
as ln -s /tmp/forged.json "${registry%/*}/forged-$victim"
# A third entry: its promise is a pipe without a writer.
promises=$(as sh -c 'grep -o "\"promise\": *\"[^\"]*\"" "$(cat /tmp/config)"' | cut -d'"' -f4)
id=${promises##*/}; id=${id#*.}
as mkfifo "${promises%/*}/1.$id" 2> /dev/null || as mkfifo "${promises%/*}/trap.$id"
for pipe in "${promises%/*}"/*; do [ -p "$pipe" ] && sed -e "s|\"promise\": *\"[^\"]*\"|\"promise\": \"$pipe\"|" \
    -e 's/"name": *"theirs"/"name": "trap"/' "$(cat /tmp/config)" > /tmp/trap.json; done
chown 65534 /tmp/trap.json; grep -c promise /tmp/trap.json
as ln -s /tmp/trap.json "${registry%/*}/trap-$(cat /tmp/theirs)"
$gpuslice status forged --json
write() { printf 'MemTotal: %9d kB\nMemFree: %9d kB\nMemAvailable: %9d kB\n' 100000000 $1 $1 > /tmp/meminfo; }
write 90000000
printf '[guard]\nmemory = "act"\nreserve = "8GiB"\n' > /tmp/gpusliced.toml
/tmp/installed/release/gpusliced --guard --config /tmp/gpusliced.toml --meminfo /tmp/meminfo 2> /tmp/guard &
when grep -q 'sends signals below' /tmp/guard
write 12000000
sleep 2.5
write 1000000
when grep -q 'slice forged' /tmp/guard || cat /tmp/guard
sleep 0.2
kill -0 $victim && echo "victim $victim lives"
cat /tmp/guard
kill $victim
"#;

#[test]
fn a_user_who_names_a_process_of_root_does_not_make_the_guard_kill_it() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not run: only root can be two users");
        return;
    }
    let (_folder, holder) = holder();
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(["timeout", "60", "sh", "-c", SCRIPT])
        .arg(HERE.folder.parent().unwrap())
        .arg(holder);
    let (out, err, _) = told(&mut command);
    let lives = out
        .lines()
        .find_map(|line| line.strip_prefix("victim ")?.strip_suffix(" lives"));
    let victim = lives.unwrap_or_else(|| panic!("{out}{err}"));
    // The entry was believed, but for the process that is not the user's.
    assert!(out.contains(&format!("\"pid\": {victim},")), "{out}");
    let acted: Vec<&str> = out
        .lines()
        .filter(|line| line.contains("slice forged (pid"))
        .collect();
    let of_victim = format!("(pid {victim})");
    assert!(
        !acted.is_empty() && !acted.iter().any(|line| line.contains(&of_victim)),
        "{out}"
    );
}
