//! Slices and machines in order: nothing is found.

use super::bench::{Bench, GPU, HERE, asked, copied, doctor, is_root, run_by, start, uses_gpu};
use crate::support::told;

#[test]
fn a_program_in_a_slice_is_in_order_also_by_name() {
    let bench = Bench::new();
    let running = bench.python(&["--memory=8GiB", "--name=llama"], &uses_gpu());
    let said = bench.about(&running);
    said.is_healthy();
    let verdict = format!(
        "slice llama is in force for process {} (python3)",
        running.pid
    );
    assert_eq!(said.verdict, verdict);
    let facts = &said.json["facts"];
    assert_eq!(facts["fence"], "library");
    assert_eq!(facts["page_cache"], "keep");
    assert_eq!(facts["build_id"].as_str().unwrap().len(), 40);
    assert!(
        facts["driver"][0]
            .as_str()
            .unwrap()
            .ends_with("libcuda.so.1")
    );
    let named = bench.doctor(&["llama"]);
    named.is_healthy();
    assert_eq!(named.verdict, "slice llama is in force for its process");
}

#[test]
fn a_program_before_its_first_call_is_in_order() {
    let bench = Bench::new();
    let program = format!("{GPU}wait()\n");
    for sim in ["rtx3090", "gb10", "h200-mig", "rtx3090@550"] {
        let bench = match sim {
            "rtx3090" => &bench,
            other => &Bench::of(other),
        };
        let running = bench.python(&["--memory=8GiB"], &program);
        bench.about(&running).is_healthy();
    }
}

#[test]
fn a_server_that_gave_up_root_is_in_order() {
    if !is_root() {
        return;
    }
    let (bench, (_root, release)) = (Bench::new(), copied());
    let open = "chmod -R a+rwX $GPUSLICE_SIM_STATE; exec setpriv --reuid 65534 --regid 65534 \
                --clear-groups /usr/bin/python3 -c \"$0\"";
    let mut command = run_by(&bench, &release, &["sh", "-c", open, &uses_gpu()]);
    let running = start(&mut command);
    let ask = || {
        let mut command = std::process::Command::new(release.join("gpuslice"));
        command.args(["doctor", &running.pid.to_string()]);
        bench.machine.home.of(&mut command);
        command
    };
    asked(ask).is_healthy();
}

#[test]
fn another_users_process_cannot_be_examined() {
    if !is_root() {
        return;
    }
    let (bench, (_root, release)) = (Bench::new(), copied());
    let running = bench.python(&["--memory=8GiB"], &format!("{GPU}wait()\n"));
    let ask = |words: &[&str]| {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command
            .arg(release.join("gpuslice"))
            .args(["doctor", &running.pid.to_string()]);
        command.env_remove("XDG_RUNTIME_DIR").args(words);
        told(&mut command)
    };
    let (out, err, status) = ask(&[]);
    let verdict = format!("process {} (python3) could not be examined\n", running.pid);
    assert_eq!((out, status), (verdict, 2));
    let advice = format!(
        "gpuslice: process {0} (python3) cannot be examined by this user: run gpuslice doctor {0} \
         as root\n",
        running.pid
    );
    assert_eq!(err, advice);
    let (json, _, status) = ask(&["--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["in_force"], status), (&serde_json::Value::Null, 2));
    assert_eq!(json["unexamined"][0], running.pid);
}

#[test]
fn a_subject_that_does_not_exist_is_an_error() {
    let home = crate::support::Home::new();
    for (word, message) in [
        (
            "nosuch",
            "no slice, container or process that is visible here is called \"nosuch\"",
        ),
        ("999999999", "there is no process 999999999"),
    ] {
        let (out, err, status) = told(&mut doctor(&home, &[word]));
        let message = format!("gpuslice: {message}\n");
        assert_eq!((out.as_str(), err, status), ("", message, 125));
    }
    let (_, err, status) = told(&mut doctor(&home, &["llama", "--node"]));
    assert!(status == 125 && err.contains("--node"), "{err}");
    assert!(HERE.folder.exists());
}

#[test]
fn doctor_changes_nothing_also_of_a_run_that_has_ended() {
    let bench = Bench::new();
    let registry = bench.machine.home.runtime.path().join("gpuslice");
    std::fs::create_dir(&registry).unwrap();
    super::bench::mode(&registry, 0o700);
    let link = registry.join("old-999999999");
    std::os::unix::fs::symlink("/dev/shm/gpuslice-nosuch/slice.json", &link).unwrap();
    let said = bench.doctor(&["--node"]);
    assert!(said.verdict.starts_with("this node is "), "{}", said.text);
    bench.doctor(&[]);
    assert!(link.is_symlink());
}
