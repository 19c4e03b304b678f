//! Tests the reports about a containerd that other tools have configured too. The dumps are taken
//! from containerd 1.7 and 2.3, with the drop-in of nvidia-ctk 1.20.

use super::distribution::Distribution;
use super::*;
use crate::commands::engines::Engine;
use crate::commands::engines::nvidia_host::deaf_handlers;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

fn wanted(config: &Path) -> Configure {
    Configure {
        runtime: Engine::Containerd,
        by: None,
        config: Some(config.to_owned()),
        hooks_dir: "/h".into(),
        always: false,
        size: Vec::new(),
        set_as_default: false,
        hook: None,
        remove: false,
        dry_run: false,
        json: false,
    }
}

const NVIDIAS: &str = r#"version = 2
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
BinaryName = "/usr/bin/nvidia-container-runtime"
"#;

/// A main file with gpuslice's handler that imports nvidia-ctk's file.
fn place(main: &str, imported: &str) -> (TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("config.toml");
    fs::create_dir(place.path().join("conf.d")).unwrap();
    fs::write(place.path().join("conf.d/99-nvidia.toml"), imported).unwrap();
    fs::write(&file, main).unwrap();
    (place, file)
}

fn main_file(version: u8, plugin: &str) -> String {
    let text = format!("version = {version}\nimports = [\"conf.d/*.toml\"]\n");
    let ours = containerd::add(
        Some(&text),
        By::BaseSpec("/etc/containerd/gpuslice-base-spec.json"),
        false,
        Dialects::default(),
    );
    let ours = ours.unwrap();
    assert!(ours.contains(plugin), "{ours}");
    ours
}

fn said(main: &str, imported: &str, dump: Option<&str>) -> Vec<String> {
    let (_place, file) = place(main, imported);
    let imported = imports::of(&file, Some(main));
    let dump = dump.map(|dump| parse(Some(dump)).unwrap());
    gained(&wanted(&file), &file, Some(main), &imported, dump.as_ref())
}

#[test]
fn containerd_2_merges_an_imported_table_and_1_replaces_by_it() {
    let main = main_file(2, "io.containerd.grpc.v1.cri");
    let without = said(&main, NVIDIAS, Some(NVIDIAS));
    assert!(
        without[0].starts_with("no pod gets a slice yet"),
        "{without:?}"
    );
    assert!(without[0].contains("run nvidia-ctk runtime configure --runtime containerd"));
    let merged = main.clone() + NVIDIAS.trim_start_matches("version = 2\n");
    let with = said(&main, NVIDIAS, Some(&merged));
    assert!(
        with[0].starts_with("a pod with runtimeClassName of handler gpuslice"),
        "{with:?}"
    );
    assert!(
        with[1].contains("for pods of handler nvidia use"),
        "{with:?}"
    );
    // containerd cannot be queried, so both possibilities are reported.
    let unknown = said(&main, NVIDIAS, None);
    assert!(
        unknown
            .iter()
            .any(|line| line.contains("containerd could not be asked"))
    );
}

#[test]
fn version_4_is_written_where_version_3_is() {
    let main = main_file(4, "io.containerd.cri.v1.runtime");
    let lines = said(&main, "version = 4\n", Some(&main));
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("a pod with runtimeClassName"));
}

#[test]
fn a_base_specification_is_kept_while_any_file_names_it() {
    let copied = NVIDIAS.replace(
        "runtime_type",
        "base_runtime_spec = \"/etc/containerd/gpuslice-base-spec.json\"\nruntime_type",
    );
    let text = "version = 2\nimports = [\"conf.d/*.toml\"]\n";
    let (place, file) = place(text, &copied);
    let spec = Path::new("/etc/containerd/gpuslice-base-spec.json");
    let drop_in = place
        .path()
        .join("conf.d/99-nvidia.toml")
        .display()
        .to_string();
    assert_eq!(users(&file, Some(text), spec), [drop_in]);
    assert_eq!(
        users(&file, Some(&copied), spec),
        [file.display().to_string()]
    );
    assert_eq!(users(&file, None, spec), [""; 0]);
    let left = left(&file, Some(text), &imports::of(&file, Some(text)));
    assert!(
        left[0].contains("pods of handler nvidia still get slices"),
        "{left:?}"
    );
}

#[test]
fn a_handler_of_nvidias_that_passes_no_annotations_on_is_named() {
    let (_place, file) = place("version = 2\nimports = [\"conf.d/*.toml\"]\n", NVIDIAS);
    let none = Dialects::default();
    let lines = deaf_handlers(&file, none);
    assert_eq!(lines.len(), 1, "{lines:?}");
    for word in [
        "no pod of containerd's handler nvidia gets a slice by gpuslice.io/*: ",
        "99-nvidia.toml does not pass these annotations on",
        "pod_annotations = [\"gpuslice.io/*\"] and container_annotations = [\"gpuslice.io/*\"] to handler runc",
        "run nvidia-ctk runtime configure --runtime containerd",
    ] {
        assert!(lines[0].contains(word), "{}", lines[0]);
    }
    let lists = "pod_annotations = [\"gpuslice.io/*\"]\ncontainer_annotations = [\"a\", \"gpuslice.io/*\"]\nruntime_type";
    let (_place, file) = place(
        "imports = [\"conf.d/*.toml\"]\n",
        &NVIDIAS.replace("runtime_type", lists),
    );
    assert_eq!(deaf_handlers(&file, none), Vec::<String>::new());
    assert_eq!(
        deaf_handlers(Path::new("/no/such/file"), none),
        Vec::<String>::new()
    );
    // The policy names another system, whose annotations do not reach the hook.
    let hami = Dialects { hami: true, ..none };
    let lines = deaf_handlers(&file, hami);
    let word = "gets a slice by hami.io/vgpu-devices-allocated: ";
    assert!(lines.len() == 1 && lines[0].contains(word), "{lines:?}");
    let word = "= [\"gpuslice.io/*\", \"hami.io/vgpu-devices-allocated\"] to handler runc";
    assert!(lines[0].contains(word), "{lines:?}");
}

#[test]
fn a_file_that_is_made_goes_on_importing_the_folder_beside_it() {
    let (place, file) = place("", NVIDIAS);
    fs::remove_file(&file).unwrap();
    let start = importing(&file).unwrap();
    assert_eq!(imports::of(&file, Some(&start)).len(), 1);
    fs::remove_dir_all(place.path().join("conf.d")).unwrap();
    assert_eq!(importing(&file), None);
}

#[test]
fn containerd_that_passes_cdi_devices_over_is_recognised() {
    let knows = |text: &str| containerd::knows_cdi(&parse(Some(text)).unwrap());
    let old = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\n";
    assert!(!knows(old));
    assert!(!knows(&format!("{old}enable_cdi = false\n")));
    assert!(knows(&format!("{old}enable_cdi = true\n")));
    assert!(knows("version = 4\n"));
    assert!(!knows(
        "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\nenable_cdi = false\n"
    ));
}

/// A distribution in this folder.
fn distribution_in(folder: &str) -> Distribution<'_> {
    let [_, rke2, _] = distribution::ALL;
    Distribution { folder, ..rke2 }
}

#[test]
fn no_file_is_made_beside_the_containerd_of_k3s() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().display().to_string();
    let nowhere = distribution_in("/no/such");
    assert!(distribution::refuse_where_another_is_read(&[nowhere]).is_ok());
    let all = [nowhere, distribution_in(&folder)];
    let error = distribution::refuse_where_another_is_read(&all).unwrap_err();
    let said = error.to_string();
    let file = format!("--config {folder}/config.toml");
    assert!(
        said.contains("RKE2 has a containerd of its own") && said.ends_with(&file),
        "{said}"
    );
}

#[test]
fn lines_in_a_file_that_k3s_overwrites_have_to_go_into_its_template() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().display().to_string();
    let all = [distribution_in(&folder)];
    let made = place.path().join("config.toml");
    let next = |version, is_removal| distribution::next(&all, &made, version, is_removal);
    let overwrites = format!("because RKE2 overwrites {folder}/config.toml at each start");
    let said = next(3, false).unwrap();
    let wanted =
        format!("make {folder}/config-v3.toml.tmpl with the line {{{{ template \"base\" . }}}}");
    assert!(
        said.starts_with(&wanted) && said.contains(&overwrites),
        "{said}"
    );
    let restart = "run systemctl restart rke2-server (on an agent: rke2-agent)";
    assert!(said.ends_with(&format!("; then {restart}")), "{said}");
    assert_eq!(next(3, true).unwrap(), restart);

    let spec = place.path().join("gpuslice-base-spec.json");
    let naming = || distribution::templates_naming(&all, &made, &spec).unwrap();
    let template = place.path().join("config.toml.tmpl");
    fs::write(&template, "{{ template \"base\" . }}\n").unwrap();
    assert!(naming().is_empty());
    let said = next(2, false).unwrap();
    let wanted = format!(
        "copy the lines of handler gpuslice into {}",
        template.display()
    );
    assert!(
        said.starts_with(&wanted) && said.contains(&overwrites),
        "{said}"
    );

    // containerd does not start without a base specification that its file names.
    let line = format!("base_runtime_spec = \"{}\"\n", spec.display());
    fs::write(&template, line).unwrap();
    assert_eq!(naming().as_slice(), std::slice::from_ref(&template));
    let said = next(2, true).unwrap();
    let wanted = format!(
        "remove the lines of handler gpuslice from {}",
        template.display()
    );
    assert!(said.starts_with(&wanted), "{said}");

    // A template that cannot be read may name it.
    fs::create_dir(place.path().join("config-v3.toml.tmpl")).unwrap();
    assert!(distribution::templates_naming(&all, &made, &spec).is_err());

    let other = place.path().join("other.toml");
    assert_eq!(distribution::next(&all, &other, 3, false), None);
    let naming = distribution::templates_naming(&all, &other, &spec);
    assert!(naming.unwrap().is_empty());
}
