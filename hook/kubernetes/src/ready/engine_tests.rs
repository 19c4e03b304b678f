//! Tests the choice of containerd's file, and what the driver reads in it.
//! Touches: folders of its own.

use super::*;
use clap::Parser;

/// A host with these files.
fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
    let host = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = host.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    host
}

/// The answer on a host, for an engine and a kubelet's folder.
fn on(host: &Path, kubelet: &str, engine: &str) -> Result<(), String> {
    let root = host.to_string_lossy().into_owned();
    let plugins = format!("{kubelet}/plugins");
    let options = ["gpuslice-dra", "--host-root", &root, "--plugins", &plugins];
    check(&Settings::parse_from(options), engine)
}

const KUBELET: &str = "/var/lib/kubelet";
const PLAIN: &str = "etc/containerd/config.toml";

/// The answer on a host whose containerd has this configuration.
fn answer(engine: &str, config: Option<&str>, imported: Option<&str>) -> Result<(), String> {
    let config = config.map(|text| (PLAIN, text));
    let imported = imported.map(|text| ("etc/containerd/conf.d/99.toml", text));
    let files: Vec<_> = config.into_iter().chain(imported).collect();
    on(host(&files).path(), KUBELET, engine)
}

const ON: &str = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nenable_cdi = true\n";

#[test]
fn containerd_1_7_is_refused_unless_cdi_is_enabled() {
    let engine = "containerd://1.7.24~ds1";
    let refused = answer(engine, None, None).unwrap_err();
    assert_eq!(
        refused,
        "containerd://1.7.24~ds1 ignores CDI devices, so containers would have the whole GPU: \
         set enable_cdi = true in its CRI plugin and restart it"
    );
    assert_eq!(
        answer(engine, Some("version = 2\n"), None).unwrap_err(),
        "containerd://1.7.24~ds1 ignores CDI devices, according to /etc/containerd/config.toml, so \
         containers would have the whole GPU: set enable_cdi = true in its CRI plugin and restart it"
    );
    assert!(answer(engine, Some("not toml"), None).is_err());
    assert_eq!(answer(engine, Some(ON), None), Ok(()));
    assert!(answer(engine, Some(&ON.replace("true", "false")), None).is_err());
}

#[test]
fn the_file_of_the_engine_that_runs_counts_and_not_that_of_another() {
    const K3S: &str = "var/lib/rancher/k3s/agent/etc/containerd/config.toml";
    const RKE2: &str = "var/lib/rancher/rke2/agent/etc/containerd/config.toml";
    const K0S: &str = "etc/k0s/containerd.toml";
    const MICROK8S: &str = "var/snap/microk8s/current/args/containerd.toml";
    let (k0s, microk8s) = (
        "/var/lib/k0s/kubelet",
        "/var/snap/microk8s/common/var/lib/kubelet",
    );
    let off = ON.replace("true", "false");
    for (file, kubelet, engine, source) in [
        (
            K3S,
            KUBELET,
            "containerd://1.7.23-k3s2",
            " in config.toml.tmpl beside it (or in config-v3.toml.tmpl, if that exists)",
        ),
        (
            RKE2,
            KUBELET,
            "containerd://1.7.23-k3s2",
            " in config.toml.tmpl beside it (or in config-v3.toml.tmpl, if that exists)",
        ),
        (
            K0S,
            k0s,
            "containerd://1.7.25",
            " in a file of /etc/k0s/containerd.d",
        ),
        (
            MICROK8S,
            microk8s,
            "containerd://1.7.27",
            " in containerd-template.toml beside it",
        ),
        (PLAIN, KUBELET, "containerd://1.7.27", ""),
    ] {
        let other = if file == PLAIN { K3S } else { PLAIN };
        let accepted = host(&[(file, ON), (other, &off)]);
        assert_eq!(on(accepted.path(), kubelet, engine), Ok(()), "{file}");
        let refused = host(&[(file, &off), (other, ON)]);
        assert_eq!(
            on(refused.path(), kubelet, engine).unwrap_err(),
            format!(
                "{engine} ignores CDI devices, according to /{file}, so containers would have the whole \
                 GPU: set enable_cdi = true in its CRI plugin{source} and restart it"
            )
        );
        // Without a sign of the engine, the only file counts.
        let alone = host(&[(file, ON)]);
        let answer = on(alone.path(), KUBELET, "containerd://1.7.24");
        assert_eq!(answer, Ok(()), "{file}");
    }
    // k3s does not read the file of another containerd.
    let stray = host(&[(PLAIN, ON)]);
    assert!(on(stray.path(), KUBELET, "containerd://1.7.23-k3s2").is_err());
    // MicroK8s makes the usual folder of the kubelet a link to its own.
    let linked = host(&[(MICROK8S, ON), (PLAIN, &off), ("var/lib/x", "")]);
    let link = linked.path().join("var/lib/kubelet");
    std::os::unix::fs::symlink(microk8s, link).unwrap();
    let answer = on(linked.path(), KUBELET, "containerd://1.7.27");
    assert_eq!(answer, Ok(()));
}

#[test]
fn a_drop_in_of_k0s_counts_by_the_file_that_k0s_makes() {
    let main = "version = 2\nimports = [\"/run/k0s/containerd-cri.toml\"]\n";
    let made = |text: &str| {
        let files = [
            ("etc/k0s/containerd.toml", main),
            ("run/k0s/containerd-cri.toml", text),
        ];
        let host = host(&files);
        on(host.path(), "/var/lib/k0s/kubelet", "containerd://1.7.25")
    };
    assert_eq!(made(ON), Ok(()));
    assert!(made(&ON.replace("true", "false")).is_err());
}

#[test]
fn an_imported_table_replaces_the_main_one_before_containerd_2() {
    let main = format!("imports = [\"conf.d/*.toml\"]\n{ON}");
    let other = "[plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = \"x\"\n";
    assert!(answer("containerd://1.7.24", Some(&main), Some(other)).is_err());
    assert_eq!(answer("containerd://1.7.24", Some(&main), None), Ok(()));
    let imports = "imports = [\"/etc/containerd/conf.d/*.toml\"]\n";
    assert_eq!(
        answer("containerd://1.7.24", Some(imports), Some(ON)),
        Ok(())
    );
    // containerd 2 merges the tables.
    let off = main.replace("true", "false");
    assert!(answer("containerd://2.1.9", Some(&off), Some(other)).is_err());
}

#[test]
fn a_table_that_containerd_ignores_in_the_files_version_counts_for_nothing() {
    const THREE: &str = "[plugins.\"io.containerd.cri.v1.runtime\"]\nenable_cdi = true\n";
    const ONE: &str = "[plugins.cri]\nenable_cdi = true\n";
    let old = "containerd://1.7.24";
    let both = format!("{THREE}{}", ON.replace("true", "false"));
    let both = format!("version = 2\n{}", both.replace("version = 2\n", ""));
    for (config, is_accepted) in [
        (both.clone(), false),
        (format!("version = 2\n{THREE}"), false),
        (format!("version = 3\n{THREE}"), false),
        (format!("version = 2\n{ONE}"), false),
        (ON.replace("version = 2\n", ""), false),
        (ONE.to_owned(), true),
        (format!("version = 1\n{ONE}"), true),
    ] {
        assert_eq!(
            answer(old, Some(&config), None).is_ok(),
            is_accepted,
            "{config}"
        );
    }
    let off = THREE.replace("true", "false");
    for (config, is_accepted) in [
        (both, false),
        (format!("version = 2\n{off}"), true),
        (format!("version = 3\n{off}"), false),
        (format!("version = 5\n{off}"), false),
        (off, false),
    ] {
        let new = answer("containerd://2.1.9", Some(&config), None);
        assert_eq!(new.is_ok(), is_accepted, "{config}");
    }
}

#[test]
fn engines_that_use_cdi_unasked_are_accepted_and_others_refused() {
    for engine in [
        "containerd://2.1.9",
        "containerd://v2.0.0-rc.1",
        "cri-o://1.30.1",
    ] {
        assert_eq!(answer(engine, None, None), Ok(()), "{engine}");
    }
    for engine in [
        "containerd://1.6.20",
        "cri-o://1.22.0",
        "docker://27.0.1",
        "containerd://",
        "containerd",
        "",
    ] {
        assert!(answer(engine, Some(ON), None).is_err(), "{engine}");
    }
}
