//! The places of slices files: which one counts, and which ones are not trusted.

use super::{HERE, Place};
use crate::support::told;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

const OF_USER: &str = "[both]\nmemory = \"1GiB\"\n";
const OF_HOST: &str = "[both]\nmemory = \"2GiB\"\n\n[host]\nmemory = \"3GiB\"\n";

/// Runs a script where `/etc/gpuslice/slices.toml` is the file of this place, and `~/.config` a
/// folder of it. `$G` is gpuslice.
fn with_etc(place: &Place, script: &str) -> (String, String, i32) {
    let mut command = Command::new("unshare");
    let prepare = "mount -t tmpfs tmpfs /etc && mkdir /etc/gpuslice && cp $0 /etc/gpuslice/ && ";
    command
        .args(["-m", "sh", "-c"])
        .arg(format!("{prepare}{script}"))
        .arg(place.file())
        .env("G", HERE.executable());
    for name in ["LD_PRELOAD", "GPUSLICE_CONFIG", "CUDA_VISIBLE_DEVICES"] {
        command.env_remove(name);
    }
    told(place.on(&mut command))
}

fn is_root() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        eprintln!("not run: only root can write to /etc, in a mount namespace too");
    }
    is_root
}

#[test]
fn the_file_of_the_user_counts_before_the_one_of_the_host() {
    if !is_root() {
        return;
    }
    let place = Place::new("rtx3090", OF_HOST);
    let own = place.folder.path().join(".config/gpuslice");
    fs::create_dir_all(&own).unwrap();
    fs::write(own.join("slices.toml"), OF_USER).unwrap();
    let limit = |name: &str, more: &str| {
        let script = format!("{more} $G run --sim rtx3090 --slice {name} --dry-run -- true");
        let (out, err, status) = with_etc(&place, &script);
        assert_eq!((err.as_str(), status), ("", 0), "{out}");
        let line = |start: &str| {
            let mut lines = out.lines().map(str::trim);
            lines
                .find(|line| line.starts_with(start))
                .unwrap()
                .to_owned()
        };
        (line(&format!("{name} (")), line("\"memory\""))
    };
    let host = "/etc/gpuslice/slices.toml";
    let user = own.join("slices.toml").display().to_string();
    let memory = |gib: u64| format!("\"memory\": {},", gib << 30);
    assert_eq!(
        limit("both", ""),
        (format!("both ({user}, line 1)"), memory(1))
    );
    assert_eq!(
        limit("host", ""),
        (format!("host ({host}, line 4)"), memory(3))
    );
    // XDG_CONFIG_HOME replaces ~/.config.
    for elsewhere in ["/nowhere", "/dev/null"] {
        assert_eq!(
            limit("both", &format!("XDG_CONFIG_HOME={elsewhere}")),
            (format!("both ({host}, line 1)"), memory(2))
        );
    }
    // A service that may not enter its home.
    let service = "setpriv --reuid=65534 --clear-groups --inh-caps=-all";
    let closed = format!("mkdir -m 700 /etc/home && XDG_CONFIG_HOME=/etc/home/x {service}");
    assert_eq!(
        limit("both", &closed),
        (format!("both ({host}, line 1)"), memory(2))
    );
    let (out, _, _) = with_etc(&place, "$G plan --sim rtx3090 --json");
    let plan: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(plan["files"], serde_json::json!([user, host]));
    let of = |place: usize| {
        let slice = &plan["slices"][place];
        serde_json::json!([slice["name"], slice["file"]])
    };
    assert_eq!(of(0), serde_json::json!(["both", user]));
    assert_eq!(of(1), serde_json::json!(["host", host]));
}

#[test]
fn a_fault_in_the_file_of_the_user_is_not_skipped() {
    if !is_root() {
        return;
    }
    let place = Place::new("rtx3090", OF_HOST);
    let own = place.folder.path().join(".config/gpuslice");
    fs::create_dir_all(&own).unwrap();
    fs::write(
        own.join("slices.toml"),
        "[both]\nmemory = \"1GiB\"\nmemry = 1\n",
    )
    .unwrap();
    let (out, err, status) = with_etc(&place, "$G run --sim rtx3090 --slice host -- echo started");
    assert_eq!((out.as_str(), status), ("", 125));
    let begin = format!(
        "gpuslice: {}, line 3: [both] has no key \"memry\"",
        own.join("slices.toml").display()
    );
    assert!(err.starts_with(&begin), "{err}");
}

#[test]
fn a_host_file_that_others_may_write_to_is_not_used() {
    if !is_root() {
        return;
    }
    let place = Place::new("rtx3090", OF_HOST);
    let run = "$G run --sim rtx3090 --slice host -- echo started";
    for (change, why) in [
        ("chmod 666", "users other than root may write to it"),
        ("chmod 664", "users other than root may write to it"),
        ("chown 12345", "it belongs to user 12345, not to root"),
    ] {
        let script = format!("{change} /etc/gpuslice/slices.toml && {run}");
        let message =
            format!("gpuslice: cannot use slices file /etc/gpuslice/slices.toml: {why}\n");
        assert_eq!(with_etc(&place, &script), (String::new(), message, 125));
    }
    assert_eq!(
        with_etc(&place, run),
        ("started\n".to_owned(), String::new(), 0)
    );
}

#[test]
fn a_file_of_another_user_runs_nothing_and_can_be_planned() {
    let place = Place::new("rtx3090", OF_HOST);
    let file = place.file();
    let run = || told(&mut place.run("host", &["--", "echo", "started"]));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o646)).unwrap();
    let message = |why: &str| {
        format!(
            "gpuslice: cannot use slices file {}: {why}\n",
            file.display()
        )
    };
    let why = "other users may write to it, and their commands would run";
    assert_eq!(run(), (String::new(), message(why), 125));
    assert_eq!(place.plan(&[]).2, 0);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    if is_root() {
        chown(&file, Some(12345), None).unwrap();
        let why = "it belongs to user 12345, whose commands would run";
        assert_eq!(run(), (String::new(), message(why), 125));
        assert_eq!(place.plan(&[]).2, 0);
    }
}

#[test]
fn no_file_at_all_names_the_places() {
    let place = Place::new("rtx3090", "");
    let home = place.folder.path().display().to_string();
    let mut command = place.gpuslice(&["run", "--slice", "x"]);
    let (_, err, status) = told(&mut command);
    if std::path::Path::new("/etc/gpuslice/slices.toml").exists() {
        return;
    }
    let message = format!(
        "gpuslice: there is no slices file: neither {home}/.config/gpuslice/slices.toml nor \
         /etc/gpuslice/slices.toml exists (gpuslice-slices(5) has an example)\n"
    );
    assert_eq!((err, status), (message, 125));
}

#[test]
fn a_file_that_is_named_and_missing_or_endless_is_refused() {
    let place = Place::new("rtx3090", "");
    for (file, why) in [
        (
            "/nowhere/slices.toml",
            "No such file or directory (os error 2)",
        ),
        ("/dev/zero", "not a regular file"),
        ("/", "not a regular file"),
    ] {
        let (_, err, status) = told(&mut place.gpuslice(&["run", "--file", file, "--slice", "x"]));
        assert_eq!(
            (err, status),
            (
                format!("gpuslice: cannot use slices file {file}: {why}\n"),
                125
            )
        );
    }
    fs::write(place.file(), [0xff, 0xfe]).unwrap();
    let (_, err, _) = told(&mut place.run("x", &[]));
    assert!(err.ends_with(": it is not UTF-8\n"), "{err}");
}
