//! The files that packages ship agree with gpuslice.

use gpuslice_cli::base::hook_entry::{self, When};
use gpuslice_hook::request::annotations::{self, AnnotatedRequest};
use gpuslice_hook::request::identity::Identity;
use gpuslice_host::machine::policy::{self, Policy};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn packaging(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../packaging")
        .join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(packaging(path)).unwrap()
}

#[test]
fn golden_hooks_are_what_runtime_configure_writes() {
    let files = hook_entry::folder_files(hook_entry::INSTALLED, When::Annotated);
    for (name, text) in &files {
        let path = format!("hooks.d/{name}");
        if std::env::var_os("UPDATE_GOLDENS").is_some() {
            fs::write(packaging(&path), text).unwrap();
        }
        assert_eq!(
            &read(&path),
            text,
            "{path} is out of date: run `make goldens`"
        );
    }
    let shipped = fs::read_dir(packaging("hooks.d")).unwrap();
    assert_eq!(shipped.count(), files.len());
}

/// Checks the folder against the schema of oci-hooks(5), version 1.0.0. podman and CRI-O read it
/// with the same library. tests/containers runs podman itself.
#[test]
fn hooks_say_nothing_that_an_engine_would_not_understand() {
    let only = |object: &serde_json::Value, known: &[&str]| {
        let object = object.as_object().unwrap();
        assert!(
            object.keys().all(|key| known.contains(&key.as_str())),
            "{object:?}"
        );
    };
    for when in [When::Annotated, When::Always] {
        for (name, text) in hook_entry::folder_files(hook_entry::INSTALLED, when) {
            assert!(name.ends_with(".json"), "{name} would not be read");
            let file: serde_json::Value = serde_json::from_str(&text).unwrap();
            only(&file, &["version", "hook", "when", "stages"]);
            only(&file["hook"], &["path", "args", "env", "timeout"]);
            only(
                &file["when"],
                &["always", "annotations", "commands", "hasBindMounts"],
            );
            assert_eq!(file["version"], "1.0.0");
            assert!(file["hook"]["path"].as_str().unwrap().starts_with('/'));
            let env = file["hook"]["env"].as_array().unwrap();
            assert!(env.iter().all(|one| one.as_str().unwrap().contains('=')) && !env.is_empty());
            // Each file has one list of arguments, so it has one stage: the last argument names it.
            let stages = file["stages"].as_array().unwrap();
            let arguments = file["hook"]["args"].as_array().unwrap();
            assert_eq!((stages.len(), arguments.last()), (1, stages.first()));
            assert!(["createRuntime", "poststop"].contains(&stages[0].as_str().unwrap()));
            match when {
                When::Always => assert_eq!(file["when"]["always"], true),
                When::Annotated => assert_eq!(file["when"].as_object().unwrap().len(), 1),
            }
        }
    }
}

#[test]
fn the_policy_that_is_shipped_changes_nothing_and_every_key_in_it_is_one() {
    let shipped = read("etc/config.toml");
    assert_eq!(policy::parse(&shipped).unwrap(), Policy::default());
    let setting = |line: &str| {
        let line = line.strip_prefix('#').unwrap_or(line);
        (!line.starts_with(' ')).then(|| line.to_owned())
    };
    let all: Vec<String> = shipped.lines().filter_map(setting).collect();
    let all = policy::parse(&all.join("\n")).unwrap();
    assert!(all.default.is_some() && all.devices.is_some() && all.reserve.is_some());
    assert!(all.library.is_some() && !all.runtime.is_empty() && !all.namespaces.is_empty());
    assert!(all.thresholds.full.is_some() && all.thresholds.freed.is_some());
}

/// The smallest memory that the driver reports for a card sold with 16 GiB (a T4).
const CARD: u64 = 15_360 << 20;

#[test]
fn the_slices_of_the_example_fit_together_on_a_card_of_16_gib() {
    let pod = read("examples/pod.yaml");
    let lines = pod.lines().filter_map(|line| {
        let (key, value) = line.trim().split_once(": ")?;
        key.starts_with(annotations::PREFIX)
            .then(|| (key.to_owned(), value.to_owned()))
    });
    let lines: std::collections::BTreeMap<String, String> = lines.collect();
    assert_eq!(lines.len(), 2);
    let mut sum = 0;
    for (container, memory) in [("chat", 8_u64), ("embeddings", 4)] {
        assert!(pod.contains(&format!("- name: {container}\n")));
        let who = Identity {
            name: Some(container.to_owned()),
            ..Identity::default()
        };
        let AnnotatedRequest::Slice(request) = annotations::read(&lines, &who).unwrap() else {
            panic!("{container} asks for nothing");
        };
        assert_eq!(request.memory.unwrap().get(), memory << 30);
        sum += memory << 30;
    }
    assert!(sum <= CARD);
    // Only a limit assigns a GPU to a container.
    assert_eq!(pod.matches("nvidia.com/gpu: 1").count(), 2);
}

#[test]
fn the_examples_for_engines_are_what_runtime_configure_knows() {
    for (path, keys) in [
        (
            "examples/containerd.toml",
            ["base_runtime_spec", "pod_annotations"],
        ),
        (
            "examples/nvidia-container-runtime.toml",
            ["runtimes", "nvidia-container-runtime"],
        ),
    ] {
        let text = read(path);
        let _: toml_edit::DocumentMut = text.parse().unwrap();
        assert!(keys.iter().all(|key| text.contains(key)), "{path}");
    }
}

#[test]
fn services_run_what_packages_install() {
    let makefile = read("../Makefile");
    for entry in fs::read_dir(packaging("systemd")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let starts = text
            .lines()
            .filter_map(|line| line.strip_prefix("ExecStart="));
        for start in starts {
            let mut words = start.split(' ');
            let program = words.next().unwrap().strip_prefix("/usr/bin/").unwrap();
            let installed = makefile
                .lines()
                .any(|line| line.contains("$(INTO)/bin") && line.ends_with(program));
            assert!(
                installed,
                "{}: make install knows no {program}",
                path.display()
            );
            if program == "gpuslice" {
                let page = format!("man/gpuslice-{}.1", words.next().unwrap());
                assert!(
                    packaging(&page).exists(),
                    "{}: no such verb",
                    path.display()
                );
            }
        }
    }
}

/// Runs `make` of this tree on the output of a build, in a folder of its own. `cargo` is replaced
/// by a program that fails.
fn make(target: &Path, root: &Path, prefix: &str, rule: &str) -> (bool, String) {
    let output = Command::new("make")
        .current_dir(packaging(".."))
        .args(["--no-print-directory", "CARGO=false"])
        .arg(format!("TARGET={}", target.display()))
        .arg(format!("DESTDIR={}", root.display()))
        .args([&format!("PREFIX={prefix}"), rule])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.success(), said)
}

/// Lists the files below a folder.
fn below(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => all.extend(below(&entry.path())),
            false => all.push(entry.path()),
        }
    }
    all
}

#[test]
fn make_install_builds_nothing_and_switches_no_hook_on() {
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("target");
    fs::create_dir_all(target.join("sim/550")).unwrap();
    fs::create_dir_all(target.join("release")).unwrap();
    let root = place.path().join("root");
    let (done, said) = make(&target, &root, "/usr", "install");
    assert!(
        !done && said.contains("is not built: run make first"),
        "{said}"
    );
    for file in [
        "release/gpuslice",
        "release/gpuslice-hook",
        "release/libgpuslice.so",
        "sim/gpuslice-sim",
        "sim/nvidia_icd.json",
        "sim/libcuda.so.1",
        "sim/550/libcuda.so.1",
    ] {
        fs::write(target.join(file), "").unwrap();
    }
    for prefix in ["/usr", "/usr/local", "/opt/gpuslice"] {
        let root = place.path().join(prefix.replace('/', "-"));
        let (done, said) = make(&target, &root, prefix, "install");
        assert!(done, "{said}");
        let at = |path: &str| root.join(prefix.trim_start_matches('/')).join(path);
        // A machine with a GPU does not need the simulated driver.
        assert!(!at("lib/gpuslice/sim").exists());
        let (done, said) = make(&target, &root, prefix, "install-sim");
        assert!(done, "{said}");
        let installed = below(&root);
        assert!(at("lib/gpuslice/sim/550/libcuda.so.1").is_file());
        let hook = at("share/gpuslice/hooks.d/50-gpuslice-createRuntime.json");
        let text = fs::read_to_string(&hook).unwrap();
        assert!(
            text.contains(&format!("\"{prefix}/bin/gpuslice-hook\"")),
            "{text}"
        );
        // podman and CRI-O read such a folder without being configured.
        let read = |path: &PathBuf| path.to_string_lossy().contains("oci/hooks.d");
        assert!(!installed.iter().any(read), "{installed:?}");
        for path in &installed {
            let is_read = path.extension().is_some_and(|it| {
                ["service", "json", "toml", "timer"]
                    .iter()
                    .any(|known| it == *known)
            });
            let text = fs::read_to_string(path).unwrap_or_default();
            let other = ["/usr/bin/gpuslice", "/usr/lib/gpuslice"];
            let names = other.iter().any(|other| text.contains(other));
            assert!(prefix == "/usr" || !is_read || !names, "{}", path.display());
        }
        let unit = fs::read_to_string(at("lib/systemd/system/gpuslice-gc.service")).unwrap();
        assert!(
            unit.contains(&format!("ExecStart={prefix}/bin/gpuslice gc")),
            "{unit}"
        );
        // The hook looks below /usr unless the policy says otherwise.
        let text = fs::read_to_string(root.join("etc/gpuslice/config.toml")).unwrap();
        let policy = policy::parse(&text).unwrap();
        let library = PathBuf::from(format!("{prefix}/lib/gpuslice/libgpuslice.so"));
        let command = PathBuf::from(format!("{prefix}/bin/gpuslice"));
        match prefix {
            "/usr" => assert_eq!(policy, Policy::default()),
            _ => assert_eq!(
                (policy.library, policy.command),
                (Some(library), Some(command))
            ),
        }
        let (done, said) = make(&target, &root, prefix, "uninstall");
        assert!(done, "{said}");
        assert_eq!(below(&root), [root.join("etc/gpuslice/config.toml")]);
    }
}

#[test]
fn the_daemons_example_is_installed_and_understood() {
    let example = read("examples/gpusliced.toml");
    let table: toml::Table = example.parse().unwrap();
    assert_eq!(table.keys().collect::<Vec<_>>(), ["metrics"]);
    // With the lines that are commented out, it has every key. The daemon reads both.
    let setting = |line: &str| {
        let line = line.strip_prefix('#').unwrap_or(line);
        (!line.starts_with(' ')).then(|| line.to_owned())
    };
    let all: Vec<String> = example.lines().filter_map(setting).collect();
    let all = all.join("\n");
    let table: toml::Table = all.parse().unwrap();
    let keys = |name: &str| {
        let keys = table[name].as_table().unwrap().keys();
        keys.cloned().collect::<Vec<_>>()
    };
    assert_eq!(keys("metrics"), ["compatible", "listen"]);
    assert_eq!(
        keys("page-cache"),
        ["paths", "settle_seconds", "smallest", "suffixes"]
    );
    assert_eq!(
        keys("guard"),
        [
            "bypass",
            "host",
            "memory",
            "reserve",
            "slack",
            "step_seconds"
        ]
    );
    for text in [&example, &all] {
        assert_eq!(gpuslice_cli::commands::daemon::check(text), Ok(()));
    }
    let makefile = read("../Makefile");
    assert!(makefile.contains("packaging/examples/*"));
    // Without a configuration the unit must fail visibly. A condition would skip it silently.
    assert!(!read("systemd/gpusliced.service").contains("Condition"));
}
