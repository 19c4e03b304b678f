//! Tests that a drop-in file adds to the engine's configuration and removes nothing from it.

use super::*;
use crate::commands::engines::{Configure, Way};
use tempfile::TempDir;

const HOOKS_D: &str = "/etc/containers/oci/hooks.d";

const BY_HOOKS: Wanted<'static> = Wanted {
    hooks: Some(HOOKS_D),
    runtime: None,
    default: false,
};

const BY_RUNTIME: Wanted<'static> = Wanted {
    hooks: None,
    runtime: Some("/usr/bin/gpuslice-runtime"),
    default: true,
};

fn place(engine: &Engine, files: &[(&str, &str)]) -> (TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join(engine.folder)).unwrap();
    for (name, text) in files {
        fs::write(place.path().join(name), text).unwrap();
    }
    let own = place.path().join(engine.folder).join("99-gpuslice.conf");
    (place, own)
}

fn said(engine: &Engine, files: &[(&str, &str)], wanted: &Wanted<'_>) -> Option<String> {
    let (_place, own) = place(engine, files);
    let said = engine.file(&own, wanted).unwrap();
    said.map(|said| said.strip_prefix(HEADER).unwrap().to_owned())
}

#[test]
fn an_engine_that_reads_the_folder_already_needs_no_file() {
    let usual = Wanted {
        hooks: Some("/usr/share/containers/oci/hooks.d"),
        ..BY_HOOKS
    };
    assert_eq!(said(&PODMAN, &[], &usual), None);
    let theirs = "[crio.runtime]\nhooks_dir = [\"/a\", \"/etc/containers/oci/hooks.d\"]\n";
    assert_eq!(said(&CRIO, &[("crio.conf", theirs)], &BY_HOOKS), None);
}

#[test]
fn the_folders_that_are_read_stay_and_the_last_file_has_the_last_word() {
    assert_eq!(
        said(&CRIO, &[], &BY_HOOKS).unwrap(),
        "[crio.runtime]\nhooks_dir = [\"/usr/share/containers/oci/hooks.d\", \
         \"/etc/containers/oci/hooks.d\"]\n"
    );
    let files = [
        ("containers.conf", "[engine]\nhooks_dir = [\"/first\"]\n"),
        (
            "containers.conf.d/10.conf",
            "[engine]\nhooks_dir = [\"/last\"] # ours\n",
        ),
        ("containers.conf.d/20.conf", "[containers]\n"),
        (
            "containers.conf.d/99-gpuslice.conf",
            "an older one of ours is not asked",
        ),
        ("containers.conf.d/README", "[nor is this\n"),
    ];
    assert_eq!(
        said(&PODMAN, &files, &BY_HOOKS).unwrap(),
        "[engine]\nhooks_dir = [\"/last\", \"/etc/containers/oci/hooks.d\"]\n"
    );
}

#[test]
fn the_wrapper_is_a_runtime_of_each_engine() {
    assert_eq!(
        said(&CRIO, &[], &BY_RUNTIME).unwrap(),
        "[crio.runtime]\ndefault_runtime = \"gpuslice\"\n\n[crio.runtime.runtimes.gpuslice]\n\
         runtime_path = \"/usr/bin/gpuslice-runtime\"\nruntime_type = \"oci\"\n"
    );
    assert_eq!(
        said(&PODMAN, &[], &BY_RUNTIME).unwrap(),
        "[engine]\nruntime = \"gpuslice\"\n\n[engine.runtimes]\n\
         gpuslice = [\"/usr/bin/gpuslice-runtime\"]\n"
    );
}

#[test]
fn a_file_of_others_that_cannot_be_read_is_named() {
    for (text, wrong) in [
        ("[", "not TOML"),
        ("[crio.runtime]\nhooks_dir = 1\n", "not a list"),
    ] {
        let (_place, own) = place(&CRIO, &[("crio.conf", text)]);
        let error = format!("{:#}", CRIO.file(&own, &BY_HOOKS).unwrap_err());
        assert!(
            error.contains("crio.conf") && error.contains(wrong),
            "{error}"
        );
    }
}

/// Removes the configuration of one engine, with these files of the other engine. Returns whether
/// the hook's files still exist, and the message.
fn removed(engine: &Engine, other: &Engine, files: &[(&str, &str)]) -> (bool, String) {
    let (others, beside) = place(other, files);
    let (_place, own) = place(engine, &[]);
    let hooks = own.with_file_name("hooks.d");
    let text = |hooks: &Path| hooks.display().to_string();
    for file in [&beside, &others.path().join("containers.conf")] {
        if let Ok(old) = fs::read_to_string(file) {
            fs::write(file, old.replace("HOOKS_D", &text(&hooks))).unwrap();
        }
    }
    fs::create_dir(&hooks).unwrap();
    let files =
        crate::base::hook_entry::folder_files("/h", crate::base::hook_entry::When::Annotated);
    for (name, said) in &files {
        fs::write(hooks.join(name), said).unwrap();
    }
    let configure = Configure {
        runtime: crate::commands::engines::Engine::Podman,
        by: None,
        config: Some(own),
        hooks_dir: hooks.clone(),
        always: false,
        size: Vec::new(),
        set_as_default: false,
        hook: None,
        remove: true,
        dry_run: false,
        json: false,
    };
    let plan = configure
        .drop_in(engine, (other, &beside), Way::Hooks, "")
        .unwrap();
    for change in plan.changes.iter().filter(|it| it.is_one()) {
        change.apply().unwrap();
    }
    let left = fs::read_dir(&hooks).unwrap().count();
    assert!(left == 0 || left == files.len());
    (left != 0, plan.notes.concat())
}

#[test]
fn what_the_other_engine_reads_stays_when_one_goes() {
    let crio = "[crio.runtime]\nhooks_dir = [\"HOOKS_D\"]\n";
    let podman = "[engine]\nhooks_dir = [\"HOOKS_D\"]\n";
    let crios = "crio.conf.d/99-gpuslice.conf";
    let podmans = "containers.conf.d/99-gpuslice.conf";
    let (kept, said) = removed(&PODMAN, &CRIO, &[(crios, crio)]);
    assert!(kept && said.contains("crio reads them by"), "{said}");
    assert!(said.contains("--runtime crio --remove"), "{said}");
    let (kept, said) = removed(&CRIO, &PODMAN, &[(podmans, podman)]);
    assert!(kept && said.contains("podman reads them by"), "{said}");
    // podman needs no drop-in file for these files, so it is unknown whether it was configured for
    // them.
    let (kept, said) = removed(&CRIO, &PODMAN, &[("containers.conf", podman)]);
    assert!(kept && said.contains("may need these files"), "{said}");
    // A file that cannot be read may name the folder, so the hook's files stay.
    let (kept, _) = removed(&PODMAN, &CRIO, &[(crios, "[")]);
    assert!(kept);
}

#[test]
fn what_nobody_else_reads_goes() {
    let runtime = "[crio.runtime.runtimes.gpuslice]\nruntime_type = \"oci\"\n";
    let crios = [("crio.conf.d/99-gpuslice.conf", runtime)];
    let gone = (false, String::new());
    assert_eq!(removed(&PODMAN, &CRIO, &crios), gone);
    assert_eq!(removed(&PODMAN, &CRIO, &[]), gone);
    assert_eq!(removed(&CRIO, &PODMAN, &[]), gone);
}

#[test]
fn hooks_that_an_engine_reads_by_itself_are_named_after_remove() {
    let (place, own) = place(&PODMAN, &[]);
    let hooks = place.path().join("hooks.d");
    let conf = format!("[engine]\nhooks_dir = [{hooks:?}]\n");
    fs::write(place.path().join("containers.conf"), conf).unwrap();
    assert_eq!(PODMAN.hooks_left(&own).unwrap(), Vec::<String>::new());
    fs::create_dir(&hooks).unwrap();
    for (name, text) in
        crate::base::hook_entry::folder_files("/h", crate::base::hook_entry::When::Annotated)
    {
        fs::write(hooks.join(name), text).unwrap();
    }
    fs::write(hooks.join("other.json"), "{}").unwrap();
    let left = PODMAN.hooks_left(&own).unwrap();
    assert_eq!(left.len(), 2);
    assert!(
        left[0].ends_with("hooks.d/50-gpuslice-createRuntime.json"),
        "{left:?}"
    );
}

#[test]
fn the_default_of_nvidias_runtime_is_not_taken_away() {
    for (engine, file, text) in [
        (
            &CRIO,
            "crio.conf.d/99-nvidia.conf",
            "[crio.runtime]\ndefault_runtime = \"nvidia\"\n",
        ),
        (
            &PODMAN,
            "containers.conf",
            "[engine]\nruntime = \"/usr/bin/nvidia-container-runtime\"\n",
        ),
    ] {
        let (_place, own) = place(engine, &[(file, text)]);
        let error = format!("{:#}", engine.file(&own, &BY_RUNTIME).unwrap_err());
        assert!(error.contains("would have no driver"), "{error}");
        assert!(engine.file(&own, &BY_HOOKS).is_ok());
    }
}

#[test]
fn a_default_runtime_with_a_sandbox_is_not_replaced_without_a_word() {
    let crio = "[crio.runtime]\ndefault_runtime = \"kata\"\n[crio.runtime.runtimes.kata]\n\
                runtime_path = \"/opt/kata/bin/containerd-shim-kata-v2\"\nruntime_type = \"vm\"\n";
    let podman = "[engine]\nruntime = \"kata\"\n[engine.runtimes]\nkata = [\"/nowhere/kata\"]\n";
    for (engine, file, text) in [
        (&CRIO, "crio.conf", crio),
        (&PODMAN, "containers.conf", podman),
    ] {
        let (_place, own) = place(engine, &[(file, text)]);
        let error = format!("{:#}", engine.file(&own, &BY_RUNTIME).unwrap_err());
        assert_eq!(
            error,
            "the default runtime is kata, which gpuslice-runtime would not start: leave out \
             --set-as-default, and choose the runtime gpuslice for the containers that need a slice"
        );
        let named = Wanted {
            default: false,
            ..BY_RUNTIME
        };
        assert!(engine.file(&own, &named).is_ok());
        let (_place, own) = place(engine, &[(file, &text.replace("kata\"\n[", "crun\"\n["))]);
        assert!(engine.file(&own, &BY_RUNTIME).is_ok());
    }
}

#[test]
fn a_later_file_that_replaces_the_list_is_named() {
    let later = "[crio.runtime]\nhooks_dir = [\"/theirs\"]\n";
    let (_place, own) = place(&CRIO, &[("crio.conf.d/99-z.conf", later)]);
    let named = CRIO.replaced_by(&own, HOOKS_D).unwrap();
    assert_eq!(named, Some(own.with_file_name("99-z.conf")));
    assert_eq!(CRIO.replaced_by(&own, "/theirs").unwrap(), None);
    let (_place, own) = place(&CRIO, &[("crio.conf.d/10.conf", later)]);
    assert_eq!(CRIO.replaced_by(&own, HOOKS_D).unwrap(), None);
}

#[test]
fn files_of_any_name_are_read_as_cri_o_reads_them() {
    let hooks = "[crio.runtime]\nhooks_dir = [\"/theirs\"]\n";
    let (_place, own) = place(&CRIO, &[("crio.conf.d/99-z.toml", hooks)]);
    let named = CRIO.replaced_by(&own, HOOKS_D).unwrap();
    assert_eq!(named, Some(own.with_file_name("99-z.toml")));
    let (place, own) = place(&CRIO, &[]);
    let below = place.path().join("crio.conf.d/99-more/a");
    fs::create_dir(below.parent().unwrap()).unwrap();
    fs::write(&below, "[crio.runtime]\ndefault_runtime = \"crun\"\n").unwrap();
    let crun = Some((below, "crun".to_owned()));
    assert_eq!(CRIO.default_replaced_by(&own).unwrap(), crun);
}

#[test]
fn a_later_file_with_another_default_runtime_is_named() {
    let later = "[crio.runtime]\ndefault_runtime = \"crun\"\n";
    let (_place, own) = place(&CRIO, &[("crio.conf.d/99-z.conf", later)]);
    let named = CRIO.default_replaced_by(&own).unwrap();
    assert_eq!(
        named,
        Some((own.with_file_name("99-z.conf"), "crun".to_owned()))
    );
    let (_place, own) = place(&CRIO, &[("crio.conf.d/10.conf", later)]);
    assert_eq!(CRIO.default_replaced_by(&own).unwrap(), None);
}

#[test]
fn a_policy_for_containers_that_the_hook_does_not_see_is_named() {
    let place = tempfile::tempdir().unwrap();
    let paths = HostPaths::below(place.path());
    let said = || left_out(&paths, "of the runtime gpuslice", "add --set-as-default").unwrap();
    assert_eq!(said(), None);
    fs::create_dir_all(place.path().join("etc/gpuslice")).unwrap();
    let policy =
        "deny-unannotated = true\n[maximum]\ncontainer = \"8GiB\"\n[dialects]\nkai = true\n";
    fs::write(place.path().join("etc/gpuslice/config.toml"), policy).unwrap();
    assert_eq!(
        said().unwrap(),
        "the hook runs only for containers of the runtime gpuslice, so the policy's \
         [maximum], deny-unannotated, [dialects] does not apply to others: add --set-as-default"
    );
}

#[test]
fn a_file_of_the_engine_itself_is_neither_replaced_nor_removed() {
    let theirs = "[crio.runtime]\ndefault_runtime = \"runc\"\n";
    let (place, own) = place(&CRIO, &[("crio.conf", theirs)]);
    let error = CRIO.refuse_others(&place.path().join("crio.conf"));
    let said = error.unwrap_err().to_string();
    assert!(
        said.contains("crio.conf was not made by gpuslice, and would be replaced"),
        "{said}"
    );
    assert!(CRIO.refuse_others(&own).is_ok(), "there is none yet");
    fs::write(&own, format!("{HEADER}[crio]\n")).unwrap();
    assert!(CRIO.refuse_others(&own).is_ok());
    let path = place.path().join("crio.conf");
    for remove in [false, true] {
        let configure = Configure {
            runtime: crate::commands::engines::Engine::Crio,
            by: None,
            config: Some(path.clone()),
            hooks_dir: place.path().join("hooks.d"),
            always: false,
            size: Vec::new(),
            set_as_default: false,
            hook: None,
            remove,
            dry_run: false,
            json: false,
        };
        let plan = configure.drop_in(&CRIO, (&PODMAN, &own), Way::Hooks, "");
        let said = plan.map(|_| ()).unwrap_err().to_string();
        assert!(
            said.contains("--config names gpuslice's own file"),
            "{said}"
        );
    }
}
