//! Dropped model files leave the page cache on every file system that containers have: overlayfs,
//! ext4 and xfs.
//! Touches: mounts, where root may make them; elsewhere the test prints which it could not try.

use gpuslice_suite::cache::{Loaded, Models, resident, slice_file, stays};
use gpuslice_suite::compile::{c, find};
use gpuslice_suite::place;
use gpuslice_suite::run::Run;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted file system, which is unmounted when this value is dropped.
struct Mounted {
    at: PathBuf,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.at).status();
    }
}

fn succeeds(command: &mut Command) -> bool {
    let output = command.output();
    output.is_ok_and(|output| output.status.success())
}

fn mount(at: PathBuf, words: &[&str]) -> Option<Mounted> {
    std::fs::create_dir_all(&at).unwrap();
    succeeds(Command::new("mount").args(words).arg(&at)).then_some(Mounted { at })
}

/// A fresh file system of this kind in a file.
fn on_a_loop(folder: &Path, kind: &str) -> Option<Mounted> {
    let image = folder.join(format!("{kind}.image"));
    let file = std::fs::File::create(&image).unwrap();
    file.set_len(400 << 20).unwrap();
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let made = Command::new(format!("mkfs.{kind}"))
        .env("PATH", path)
        .arg("-q")
        .arg(&image)
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        return None;
    }
    let image = image.display().to_string();
    mount(folder.join(kind), &["-o", "loop", &image])
}

/// An overlay over the folder of the models.
fn overlay(folder: &Path, lower: &Path) -> Option<Mounted> {
    let [upper, work] = ["upper", "work"].map(|name| folder.join(name));
    for made in [&upper, &work] {
        std::fs::create_dir_all(made).unwrap();
    }
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.display(),
        upper.display(),
        work.display()
    );
    mount(
        folder.join("overlay"),
        &["-t", "overlay", "-o", &options, "overlay"],
    )
}

/// Loads a file by read, by mapping and in fragments. Bare, its pages stay; in the slice, no page
/// does.
fn leaves_nothing_on(kind: &str, file: &Path, folder: &Path) {
    let slice = slice_file(folder, "\"page_cache\":\"drop\"");
    let script = place::source("python/loaders.py");
    for how in ["readinto", "mmap-written"] {
        let run = || {
            Run::new(place::venv("python"))
                .arg(&script)
                .arg(how)
                .arg(file)
        };
        let bare = Loaded::by(run());
        assert!(stays(file), "{kind}: {how}, bare");
        let loaded = Loaded::by(run().with_shim().slice(&slice));
        assert_eq!(resident(file), 0, "{kind}: {how}");
        assert_eq!(loaded.said, bare.said, "{kind}: {how}: another checksum");
        bare.end();
        loaded.end();
    }
    let run = Run::new(c("loader")).arg("fragments").arg(file);
    let said = run.with_shim().slice(&slice).answer().clean();
    assert!(
        said.contains("after the last fragment: none\n"),
        "{kind}: {said}"
    );
}

#[test]
fn nothing_is_left_on_overlayfs_ext4_and_xfs() {
    let models = Models::of(256);
    let model = models.cold("model.bin");
    let folder = tempfile::tempdir_in(place::target()).unwrap();
    let mut untried = Vec::new();
    let over = model
        .parent()
        .and_then(|lower| overlay(folder.path(), lower));
    match over {
        None => untried.push("overlayfs"),
        Some(over) => {
            leaves_nothing_on("overlayfs", &over.at.join("model.bin"), folder.path());
            assert_eq!(resident(&model), 0, "the file under the overlay");
        }
    }
    for kind in ["ext4", "xfs"] {
        match on_a_loop(folder.path(), kind) {
            None => untried.push(kind),
            Some(mounted) => {
                let copy = mounted.at.join("model.bin");
                std::fs::copy(&model, &copy).unwrap();
                std::fs::File::open(&copy).unwrap().sync_all().unwrap();
                leaves_nothing_on(kind, &copy, folder.path());
            }
        }
    }
    // Root may be in a container that forbids mounts. Every other test covers the file system of
    // the build output.
    assert!(
        untried.is_empty() || !may_mount(),
        "{untried:?} could not be tried: run tests/clients/setup.sh first"
    );
    for kind in untried {
        eprintln!("not tried, because nothing can be mounted here: {kind}");
    }
}

fn may_mount() -> bool {
    // SAFETY: takes no arguments.
    let root = unsafe { libc::geteuid() } == 0;
    let loops = Path::new("/dev/loop-control").exists() && find("mount").is_some();
    let folder = tempfile::tempdir().unwrap();
    root && loops && mount(folder.path().into(), &["-t", "tmpfs", "tmpfs"]).is_some()
}
