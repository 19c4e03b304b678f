//! The files in packaging/examples are what Kubernetes, Compose, podman and systemd read.

use gpuslice_suite::place;
use gpuslice_suite::run::Machine;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

fn example(name: &str) -> PathBuf {
    place::workspace().join("packaging/examples").join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(example(name)).unwrap()
}

/// Runs `tests/examples/check.py`, in the environment that `tests/setup.sh examples` makes.
fn check(what: &str) {
    let python = place::target().join("examples-venv/bin/python");
    assert!(python.exists(), "run tests/setup.sh examples first");
    let checked = Command::new(python)
        .arg(place::workspace().join("tests/examples/check.py"))
        .arg(what)
        .arg(example(""))
        .env_remove("LD_PRELOAD")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{said}");
}

/// The settings of a unit: section and key, with their values in order.
fn unit(text: &str) -> Vec<(String, String, String)> {
    let (mut section, mut settings) = (String::new(), Vec::new());
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            Some(name) => section = name.to_owned(),
            None => settings.extend(
                line.split_once('=')
                    .map(|(key, value)| (section.clone(), key.to_owned(), value.to_owned())),
            ),
        }
    }
    settings
}

/// Asserts that systemd accepts units. The built `gpuslice` takes the place of the commands that
/// packages install. Systemd reports a line that it skips, but as no error, so any report about
/// these units fails the test.
fn verify(units: &[PathBuf]) {
    let folder = tempfile::tempdir().unwrap();
    let mut copies = Vec::new();
    for path in units {
        let text = std::fs::read_to_string(path).unwrap();
        let gpuslice = format!("ExecStart={}", place::gpuslice().display());
        let text = text.replace("ExecStart=/usr/bin/gpusliced", &gpuslice);
        let text = text.replace("ExecStart=/usr/bin/gpuslice", &gpuslice);
        let copy = folder.path().join(path.file_name().unwrap());
        std::fs::write(&copy, text).unwrap();
        copies.push(copy);
    }
    let verified = Command::new("systemd-analyze")
        .args(["--man=no", "verify"])
        .args(&copies)
        .env("SYSTEMD_UNIT_PATH", format!("{}:", folder.path().display()))
        .env_remove("LD_PRELOAD")
        .output()
        .expect("systemd-analyze: run tests/setup.sh examples first");
    let said = String::from_utf8_lossy(&verified.stderr);
    let of_ours = |line: &&str| line.contains("gpuslice") || line.contains("llama");
    let complaints: Vec<&str> = said.lines().filter(of_ours).collect();
    assert!(verified.status.success() && complaints.is_empty(), "{said}");
}

#[test]
fn kubernetes_knows_every_field_of_the_examples() {
    check("kubernetes");
}

#[test]
fn the_policy_refuses_a_pod_without_the_class_and_a_changed_size() {
    check("policy");
}

#[test]
fn the_claims_of_the_examples_fit_the_gpus_that_they_are_for() {
    check("claims");
}

#[test]
fn compose_knows_every_field_of_the_example() {
    check("compose");
}

/// gpusliced answers other machines and runs as root. What it cannot do, an attacker cannot do by it.
#[test]
fn the_daemons_unit_gives_up_the_rights_that_it_does_not_need() {
    let unit = place::workspace().join("packaging/systemd/gpusliced.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    for line in [
        "CapabilityBoundingSet=CAP_SYS_ADMIN CAP_DAC_READ_SEARCH CAP_FOWNER CAP_LEASE CAP_SYS_PTRACE CAP_SETUID CAP_SETGID",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "ProtectKernelTunables=yes",
        "ProtectKernelModules=yes",
        "ProtectKernelLogs=yes",
        "ProtectControlGroups=yes",
        "ProtectClock=yes",
        "ProtectHostname=yes",
        "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK",
        "RestrictNamespaces=yes",
        "RestrictRealtime=yes",
        "RestrictSUIDSGID=yes",
        "LockPersonality=yes",
        "SystemCallArchitectures=native",
        "TasksMax=64",
    ] {
        assert!(unit.lines().any(|it| it == line), "{line}");
    }
}

#[test]
fn systemd_knows_every_line_of_the_units() {
    let packaged = std::fs::read_dir(place::workspace().join("packaging/systemd")).unwrap();
    let mut units: Vec<PathBuf> = packaged.map(|entry| entry.unwrap().path()).collect();
    units.push(example("llama-server.service"));
    verify(&units);
}

/// Other users' runs and containers count a run by its record in /run/gpuslice/tenants.
#[test]
fn a_service_writes_its_record_where_other_users_see_it() {
    let packaged = place::workspace().join("packaging/systemd/gpuslice@.service");
    let packaged = std::fs::read_to_string(packaged).unwrap();
    let units = [packaged, read("llama-server.service")];
    let values = |text: &String, wanted: &str| {
        let settings = unit(text).into_iter();
        let values = settings.filter(|(_, key, _)| key == wanted);
        let values: Vec<String> = values.map(|(_, _, value)| value).collect();
        values.join(" ")
    };
    for text in &units {
        // It makes the folder in the host's mount namespace.
        let after = values(text, "After");
        let mut after = after.split(' ');
        assert!(
            after.any(|unit| unit == "gpuslice-devices.service"),
            "{text}"
        );
        if values(text, "ProtectSystem") == "strict" {
            let writable = values(text, "ReadWritePaths");
            assert_eq!(writable, "-/run/gpuslice/tenants", "{text}");
        }
    }
}

#[test]
fn the_service_of_the_example_runs_in_its_slice() {
    let settings = unit(&read("llama-server.service"));
    let (_, _, start) = settings
        .iter()
        .find(|(_, key, _)| key == "ExecStart")
        .unwrap();
    let (options, _) = start.split_once(" -- ").unwrap();
    let options = options.strip_prefix("/usr/bin/gpuslice run ").unwrap();
    let machine = Machine::new("rtx3090");
    let ran = Command::new(place::gpuslice())
        .args(["run", "--sim", "rtx3090"])
        .args(options.split(' '))
        .arg("--")
        .arg(place::gpuslice())
        .args(["check", "--json"])
        .env("GPUSLICE_SIM_STATE", machine.state())
        .env_remove("LD_PRELOAD")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(
        ran.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["slice"]["name"], "llama-server", "{report}");
    assert!(said.contains(&(8_u64 << 30).to_string()), "{said}");
}

/// The keys of podman-systemd.unit(5) of podman 4.4. This podman is the first with quadlets, and
/// the oldest that the file's comment names. tests/containers starts the container.
const QUADLET: &[&str] = &[
    "AddCapability",
    "AddDevice",
    "Annotation",
    "ContainerName",
    "DropCapability",
    "Environment",
    "EnvironmentFile",
    "EnvironmentHost",
    "Exec",
    "ExposeHostPort",
    "Group",
    "Image",
    "Label",
    "Network",
    "NoNewPrivileges",
    "Notify",
    "PodmanArgs",
    "PublishPort",
    "ReadOnly",
    "RemapGid",
    "RemapUid",
    "RemapUidSize",
    "RemapUsers",
    "RunInit",
    "SeccompProfile",
    "SecurityLabelDisable",
    "SecurityLabelFileType",
    "SecurityLabelLevel",
    "SecurityLabelType",
    "Timezone",
    "User",
    "VolatileTmp",
    "Volume",
];

#[test]
fn podman_knows_every_key_of_the_quadlet() {
    let settings = unit(&read("llama-server.container"));
    let mut others = BTreeMap::<String, String>::new();
    for (section, key, value) in settings {
        match section.as_str() {
            "Container" => assert!(QUADLET.contains(&key.as_str()), "{key}"),
            _ => *others.entry(section).or_default() += &format!("{key}={value}\n"),
        }
    }
    // The other keys are systemd's own, and go into the unit that podman makes.
    others
        .entry("Service".to_owned())
        .or_default()
        .push_str("ExecStart=/usr/bin/gpuslice\n");
    let sections = others
        .iter()
        .map(|(name, lines)| format!("[{name}]\n{lines}\n"));
    let folder = tempfile::tempdir().unwrap();
    let rest = folder.path().join("llama-server.service");
    std::fs::write(&rest, sections.collect::<String>()).unwrap();
    verify(&[rest]);
}

#[test]
fn every_example_is_named_on_the_page() {
    let page = read("README.md");
    for entry in std::fs::read_dir(example("")).unwrap() {
        let name = entry.unwrap().file_name();
        let name = Path::new(&name).display().to_string();
        assert!(
            name == "README.md" || page.contains(&format!("`{name}`")),
            "{name}"
        );
    }
}
