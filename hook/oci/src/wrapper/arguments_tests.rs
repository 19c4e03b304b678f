//! The creation of containers is recognised, and the runtime receives its own arguments.

use super::*;

fn of(line: &str) -> RuntimeCall {
    read(line.split_whitespace().map(OsString::from))
}

fn bundle(line: &str) -> Option<String> {
    let request = of(line);
    assert_eq!(
        request.passed_on,
        line.split_whitespace().collect::<Vec<_>>(),
        "all of it is the runtime's"
    );
    let config = request.config()?;
    Some(config.to_str().unwrap().to_owned())
}

#[test]
fn the_calls_of_every_engine_name_their_bundle() {
    for (line, config) in [
        // containerd
        (
            "--root /run/containerd/runc/k8s.io --log /t/log.json --log-format json create \
             --bundle /t/x --pid-file /t/x/init.pid x",
            "/t/x/config.json",
        ),
        // Docker
        (
            "--root=/var/run/docker --log=/l --log-format=json --systemd-cgroup create \
             --bundle=/b --console-socket /s x",
            "/b/config.json",
        ),
        // conmon
        (
            "--systemd-cgroup create --bundle /b --pid-file /p --no-pivot x",
            "/b/config.json",
        ),
        // by hand
        ("run -b B x", "B/config.json"),
        ("create x", "./config.json"),
        // crun
        ("--debug run -bB -f other.json x", "B/other.json"),
        (
            "--cgroup-manager cgroupfs run --config=/etc/c.json x",
            "/etc/c.json",
        ),
        // Go's flags with one dash, and the last of two
        ("-root /r create -bundle /a -bundle=/b x", "/b/config.json"),
        ("restore --image-path /i --bundle /b x", "/b/config.json"),
    ] {
        assert_eq!(bundle(line).as_deref(), Some(config), "{line}");
    }
}

#[test]
fn what_makes_no_container_is_passed_on() {
    for line in [
        "",
        "--version",
        "features",
        "--root create state x",
        "--log run list",
        "start create",
        "exec --process /p x run",
        "delete --force run",
        "--log-level=create kill x 9",
        "spec --bundle /b",
    ] {
        assert_eq!(bundle(line), None, "{line}");
    }
}

#[test]
fn an_option_that_is_new_does_not_hide_the_bundle() {
    for line in [
        "--new value create --bundle /b x",
        "--new create --newer value --bundle /b x",
        "--new=value create --new value x --bundle /b",
    ] {
        assert_eq!(bundle(line).as_deref(), Some("/b/config.json"), "{line}");
    }
}

#[test]
fn our_own_options_do_not_reach_the_runtime() {
    let request = of(
        "--gpuslice-memory=8GiB --gpuslice-root /r --gpuslice-runtime /usr/bin/crun --log /l \
         --log-format json create --bundle /b x",
    );
    assert_eq!(request.config().unwrap(), Path::new("/b/config.json"));
    assert_eq!(request.log.as_deref(), Some(Path::new("/l")));
    assert!(request.log_is_json);
    assert_eq!(request.own, ["--memory", "8GiB", "--root", "/r"]);
    assert_eq!(request.paths.root(), Path::new("/r"));
    assert_eq!(request.runtime.as_deref(), Some(Path::new("/usr/bin/crun")));
    let passed_on = "--log /l --log-format json create --bundle /b x";
    assert_eq!(
        request.passed_on,
        passed_on.split_whitespace().collect::<Vec<_>>()
    );
}

#[test]
fn an_option_that_only_looks_like_ours_takes_no_verb_with_it() {
    let request = of("--gpuslice-bogus create --bundle /b x");
    assert_eq!(request.unknown.as_deref(), Some("--gpuslice-bogus"));
    assert_eq!(request.config().unwrap(), Path::new("/b/config.json"));
    assert_eq!(of("--gpuslice-memory=8GiB list").unknown, None);
}

#[test]
fn nothing_is_taken_out_of_a_containers_command() {
    for line in [
        "exec c1 prog --gpuslice-memory=8GiB --x",
        "exec c1 tool --gpuslice-frob",
        "exec c1 sh -c x --gpuslice-runtime /usr/bin/evil",
        "exec -- c1 run --gpuslice-memory 8GiB",
        "create -b B -- x --gpuslice-root /r",
    ] {
        let request = of(line);
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(request.passed_on, words, "{line}");
        assert_eq!(request.unknown, None, "{line}");
        assert!(
            request.own.is_empty() && request.runtime.is_none(),
            "{line}"
        );
    }
}

#[test]
fn an_unknown_option_whose_value_is_a_verb_does_not_hide_create() {
    for line in [
        "--newopt state create --bundle /b c",
        "--newopt state --other kill create --bundle /b c",
        "--newopt state --log /l --systemd-cgroup run --bundle /b c",
        "-- create --bundle /b c",
    ] {
        assert_eq!(bundle(line).as_deref(), Some("/b/config.json"), "{line}");
    }
    for line in [
        "--newopt exec c1 run",
        "--newopt state c1 create",
        "--debug state create",
        "--systemd-cgroup delete run",
    ] {
        assert_eq!(bundle(line), None, "{line}");
    }
}

#[test]
fn help_is_the_wrappers_own_only_before_a_verb() {
    for line in ["--help", "-h", "--debug --help", "--help create"] {
        assert!(of(line).help, "{line}");
    }
    for line in ["help", "create --help", "exec c1 ls -h", ""] {
        assert!(!of(line).help, "{line}");
    }
}
