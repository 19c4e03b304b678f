//! `gpuslice runtime configure --dry-run` reports the changes that the same call would make, and
//! makes none of them.

use crate::support::{Installation, told};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use tempfile::TempDir;

static HERE: LazyLock<Installation> = LazyLock::new(|| {
    let here = Installation::new("runtime");
    for name in ["gpuslice-hook", "gpuslice-runtime"] {
        symlink("/bin/true", here.folder.join(name)).unwrap();
    }
    // A containerd whose effective configuration is its file, and a ctr that prints a
    // specification.
    program("containerd", "cat \"$2\"");
    program("ctr", "echo '{\"ociVersion\":\"1.0.2\"}'");
    here
});

fn tools() -> PathBuf {
    let tools = Path::new(env!("CARGO_TARGET_TMPDIR")).join("runtime-tools");
    fs::create_dir_all(&tools).unwrap();
    tools
}

fn program(name: &str, script: &str) {
    let file = tools().join(name);
    gpuslice_test_programs::write_program(&file, format!("#!/bin/sh\n{script}\n"));
}

/// Makes a folder of configuration files.
fn place() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    let files = [
        ("daemon.json", "{\n  \"debug\": true\n}\n"),
        (
            "config.toml",
            "version = 2\nimports = [\"conf.d/*.toml\"]\n",
        ),
        ("conf.d/other.toml", "version = 2\n"),
        (
            "nvidia.toml",
            "[nvidia-container-runtime]\nruntimes = [\"runc\"]\n",
        ),
    ];
    for (name, text) in files {
        let file = place.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    place
}

fn configure(place: &TempDir, options: &[&str], is_dry: bool) -> Command {
    let mut command = HERE.gpuslice();
    let path = format!("{}:{}", tools().display(), std::env::var("PATH").unwrap());
    command
        .env("PATH", path)
        .current_dir(place.path())
        .args(["runtime", "configure", "--runtime"])
        .args(options)
        .args(is_dry.then_some("--dry-run"));
    command
}

/// Reads every file of a folder.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => _ = found.insert(path.clone(), fs::read(&path).unwrap()),
        }
    }
    found
}

/// The lines that report a change, worded alike for a dry run and a real run.
fn deeds(said: &str) -> Vec<String> {
    let words = [
        "made ",
        "changed ",
        "removed ",
        "next: ",
        "result: ",
        "nothing to change",
    ];
    let real = |line: &str| {
        line.replace("would make ", "made ")
            .replace("would change ", "changed ")
            .replace("would remove ", "removed ")
            .replace(", and keep it as ", ", which is kept as ")
    };
    let lines = said.lines().map(real);
    lines
        .filter(|line| words.iter().any(|word| line.starts_with(word)))
        .collect()
}

#[test]
fn a_dry_run_says_all_that_the_run_then_does_and_its_result() {
    let place = place();
    let engines: [&[&str]; 6] = [
        &["docker", "--config", "daemon.json", "--size", "8GiB"],
        &["containerd", "--config", "config.toml"],
        &["containerd", "--config", "config.toml", "--set-as-default"],
        &[
            "podman",
            "--config",
            "podman.conf.d/99-gpuslice.conf",
            "--hooks-dir",
            "hooks.d",
        ],
        &[
            "crio",
            "--config",
            "crio.conf.d/99-gpuslice.conf",
            "--by",
            "runtime",
        ],
        &["nvidia", "--config", "nvidia.toml"],
    ];
    for engine in engines {
        for more in [&[][..], &[], &["--remove"], &["--remove"]] {
            let options = [engine, more].concat();
            let before = files(place.path());
            let (dry, err, status) = told(&mut configure(&place, &options, true));
            assert_eq!((err.as_str(), status), ("", 0), "{options:?}");
            assert_eq!(files(place.path()), before, "{options:?}");
            assert!(dry.starts_with("dry run: nothing is changed\n"), "{dry}");
            let (real, err, status) = told(&mut configure(&place, &options, false));
            assert_eq!((err.as_str(), status), ("", 0), "{options:?}");
            assert_eq!(deeds(&dry), deeds(&real), "{options:?}\n{dry}");
            assert!(more.len() == 1 || real.contains("result: "), "{real}");
        }
    }
}

#[test]
fn a_dry_run_fails_where_the_run_could_not_write() {
    let place = place();
    let folder = place.path().display();
    let script = "mount --bind . . && mount -o remount,bind,ro . && cd \"$PWD\" && exec \"$@\"";
    let configure = configure(&place, &["docker", "--config", "daemon.json"], true);
    let mut command = Command::new("unshare");
    command
        .current_dir(place.path())
        .args(["--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .arg(configure.get_program())
        .args(configure.get_args());
    let (out, err, status) = told(&mut command);
    let said = format!(
        "gpuslice: cannot write {folder}/daemon.json: Read-only file system (os error 30)\n"
    );
    assert_eq!((err, status), (said, 125), "{out}");
    // The dry run shows the changes that precede the failure.
    assert!(
        out.contains(&format!("+++ {folder}/daemon.json\n")),
        "{out}"
    );
    assert!(!out.contains("result: "), "{out}");
}

/// `--remove` removed its own files, and podman went on to read the hook in another folder.
#[test]
fn remove_names_the_hooks_that_an_engine_still_reads() {
    let place = place();
    let theirs = place.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    let list = format!("hooks_dir = [\"{}\"]\n", theirs.display());
    for (file, table) in [("containers.conf", "engine"), ("crio.conf", "crio.runtime")] {
        fs::write(place.path().join(file), format!("[{table}]\n{list}")).unwrap();
    }
    let engines = [
        ["podman", "--config", "containers.conf.d/99-gpuslice.conf"],
        ["crio", "--config", "crio.conf.d/99-gpuslice.conf"],
    ];
    for engine in engines {
        for is_dry in [true, false] {
            let configured = |more: &[&str]| {
                let options = [&engine[..], more].concat();
                let (out, err, status) = told(&mut configure(&place, &options, is_dry));
                assert_eq!((err.as_str(), status), ("", 0), "{options:?}");
                out
            };
            let said = configured(&["--remove", "--hooks-dir", "ours"]);
            assert!(!said.contains("still get slices"), "{said}");
            let file = theirs.join("50-gpuslice.json");
            fs::write(&file, "{\"hook\": {\"path\": \"/opt/gpuslice-hook\"}}").unwrap();
            let said = configured(&["--remove", "--hooks-dir", "ours"]);
            let file_name = file.display();
            let line =
                format!("annotated containers still get slices, by {file_name}: remove it\n");
            assert!(said.contains(&line), "{said}");
            fs::remove_file(&file).unwrap();
        }
    }
}

/// The toolkit and `configure` find the toolkit's file by the same variables.
#[test]
fn the_toolkits_file_is_the_one_that_the_environment_names() {
    const TOOLKITS: &str = "[nvidia-container-runtime]\nruntimes = [\"runc\"]\n";
    for (variable, value, file) in [
        ("NVIDIA_CTK_CONFIG_FILE_PATH", "ctk.toml", "ctk.toml"),
        // The toolkit reads the file that is named, also when it is made later.
        ("NVIDIA_CTK_CONFIG_FILE_PATH", "new.toml", "new.toml"),
        (
            "XDG_CONFIG_HOME",
            "xdg",
            "xdg/nvidia-container-runtime/config.toml",
        ),
    ] {
        let place = place();
        fs::create_dir_all(place.path().join("xdg/nvidia-container-runtime")).unwrap();
        for name in ["ctk.toml", "xdg/nvidia-container-runtime/config.toml"] {
            fs::write(place.path().join(name), TOOLKITS).unwrap();
        }
        let before = files(place.path());
        let mut command = configure(&place, &["nvidia"], false);
        command.env(variable, place.path().join(value));
        let (out, err, status) = told(&mut command);
        assert_eq!((err.as_str(), status), ("", 0), "{variable}: {out}");
        let after = files(place.path());
        let is_changed = |(path, text): &(&PathBuf, &Vec<u8>)| before.get(*path) != Some(*text);
        let changed = after.iter().filter(is_changed).map(|it| it.0);
        let is_copy = |path: &&PathBuf| path.to_string_lossy().ends_with(".before-gpuslice");
        let changed: Vec<&PathBuf> = changed.filter(|path| !is_copy(path)).collect();
        assert_eq!(changed, [&place.path().join(file)], "{variable}: {out}");
        let text = fs::read_to_string(place.path().join(file)).unwrap();
        assert!(text.contains("gpuslice-runtime"), "{text}");
    }
}

/// The dry run printed all lines of containerd's own specification, for two hooks.
#[test]
fn a_dry_run_shows_only_what_is_added_to_a_base_specification() {
    let place = place();
    let member = |number| format!("  \"other{number}\": {number},\n");
    let members: String = (0..200).map(member).collect();
    let spec = format!("{{\n{members}  \"ociVersion\": \"1.0.2\"\n}}\n");
    let file = place.path().join("spec.json");
    fs::write(&file, &spec).unwrap();
    let text = format!(
        "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\ndefault_runtime_name = \"runc\"\n\
         [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n\
         runtime_type = \"io.containerd.runc.v2\"\nbase_runtime_spec = \"{}\"\n",
        file.display()
    );
    fs::write(place.path().join("config.toml"), text).unwrap();
    let options = ["containerd", "--config", "config.toml"];
    let (said, err, status) = told(&mut configure(&place, &options, true));
    assert_eq!((err.as_str(), status), ("", 0), "{said}");
    assert!(
        said.contains(&format!("--- {}\n", file.display())),
        "{said}"
    );
    for stage in ["createRuntime", "poststop"] {
        assert!(said.contains(&format!("\"{stage}\":[")), "{said}");
    }
    assert!(!said.contains("other7\""), "{said}");
    assert!(said.lines().count() < 60, "{said}");
}
