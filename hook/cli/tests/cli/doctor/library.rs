//! Libraries that are missing, replaced, or not the installed one.

use super::bench::{
    Bench, GPU, HERE, Running, built, copied, folder, is_root, mode, run_by, start, uses_gpu,
};
use std::fs;
use std::path::Path;

fn waits() -> String {
    format!("{GPU}wait()\n")
}

#[test]
fn a_library_that_was_removed_is_the_cause_for_programs_that_start_later() {
    let (bench, (_root, release)) = (Bench::new(), copied());
    // The shell has loaded the library before it is removed; its child cannot load it.
    let library = release.join("libgpuslice.so");
    let script = format!("rm {}; sleep 1000 & echo $!; wait", library.display());
    let running = start(&mut run_by(&bench, &release, &["sh", "-c", &script]));
    crate::support::eventually("sleep", || comm(running.pid) == "sleep\n");
    let said = bench.about(&running);
    said.is_broken_by("library-missing");
    assert!(
        said.text.contains(library.to_str().unwrap()),
        "{}",
        said.text
    );
}

#[test]
fn a_library_that_was_removed_or_replaced_is_named_to_those_that_have_it() {
    let code = "library-replaced";
    for (replaced, what) in [(false, "was removed since"), (true, "was replaced since")] {
        let (bench, (_root, release)) = (Bench::new(), copied());
        let mut command = run_by(&bench, &release, &["python3", "-c", &uses_gpu()]);
        let running = start(&mut command);
        let library = release.join("libgpuslice.so");
        fs::remove_file(&library).unwrap();
        if replaced {
            fs::copy(HERE.folder.join("libgpuslice.so"), &library).unwrap();
        }
        let said = bench.about(&running);
        said.is_warned_of(code);
        assert!(said.text.contains(what), "{}", said.text);
    }
}

/// Changes one letter of the build id.
fn other_build(library: &Path) {
    let mut bytes = fs::read(library).unwrap();
    let note = *b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";
    let at = bytes.windows(17).position(|part| part.starts_with(&note));
    let note = bytes.get_mut(at.unwrap()..).unwrap();
    note[16] ^= 1;
    fs::remove_file(library).unwrap();
    fs::write(library, bytes).unwrap();
}

#[test]
fn a_library_of_another_build_is_named_with_both_builds() {
    let (bench, (_root, release)) = (Bench::new(), copied());
    other_build(&release.join("libgpuslice.so"));
    let running = start(&mut run_by(
        &bench,
        &release,
        &["python3", "-c", &uses_gpu()],
    ));
    let said = bench.about(&running);
    said.is_warned_of("library-other-build");
    assert_eq!(said.text.matches("(build ").count(), 3, "{}", said.text);
}

#[test]
fn two_copies_of_the_library_are_named() {
    let (bench, (_root, release)) = (Bench::new(), copied());
    let library = release.join("libgpuslice.so");
    let script = format!(
        "LD_PRELOAD=$LD_PRELOAD:{} exec python3 -c \"$0\"",
        library.display()
    );
    let options = ["--memory=8GiB", "--name=llama"];
    let running = bench.words(&options, &["sh", "-c", &script, &waits()]);
    let said = bench.about(&running);
    said.is_warned_of("library-twice");
    assert!(
        said.text.contains(library.to_str().unwrap()),
        "{}",
        said.text
    );
}

/// A library with a `dlsym` of its own, as overlays and other interposers have.
const LOOKS_UP: &str = "
    #define _GNU_SOURCE
    #include <dlfcn.h>
    void *dlsym(void *handle, const char *name) { return dlvsym(handle, name, \"GLIBC_2.2.5\"); }";

#[test]
fn a_dlsym_in_front_of_the_librarys_is_named() {
    let (bench, folder) = (Bench::new(), folder());
    let front = built(folder.path(), "cc", &["-shared", "-fPIC"], LOOKS_UP);
    let plain = folder.path().join("plain");
    fs::create_dir(&plain).unwrap();
    let plain = built(&plain, "cc", &["-shared", "-fPIC"], "int in_front;");
    let options = ["--memory=8GiB", "--name=llama"];
    let run = |list: &str| {
        let script = format!("LD_PRELOAD={list} exec sleep 1000 & echo $!; wait");
        bench.words(&options, &["sh", "-c", &script])
    };
    let (front, plain) = (front.display(), plain.display());
    let running = run(&format!("{plain}:{front}:$LD_PRELOAD"));
    crate::support::eventually("sleep", || comm(running.pid) == "sleep\n");
    let said = bench.about(&running);
    said.is_warned_of("dlsym-in-front");
    let named = format!("names {front} in front of libgpuslice.so");
    assert!(said.text.contains(&named), "{}", said.text);
    for list in [
        format!("$LD_PRELOAD:{front}"),
        format!("{plain}:$LD_PRELOAD"),
    ] {
        let running = run(&list);
        crate::support::eventually("sleep", || comm(running.pid) == "sleep\n");
        bench.about(&running).is_healthy();
    }
}

fn comm(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default()
}

#[test]
fn a_library_that_the_user_may_not_read_is_the_cause() {
    if !is_root() {
        return;
    }
    let (bench, (_root, release)) = (Bench::new(), copied());
    mode(&release.join("libgpuslice.so"), 0o600);
    let script = "exec setpriv --reuid 65534 --regid 65534 --clear-groups /bin/sh -c \
                  'echo $$; exec /bin/sleep 1000'";
    let running = start(&mut run_by(&bench, &release, &["sh", "-c", script]));
    let said = bench.about(&running);
    said.is_broken_by("other-user");
    assert!(
        said.text.contains("runs as user nobody, who may not read"),
        "{}",
        said.text
    );
}

#[test]
fn a_mount_namespace_without_the_library_is_the_cause() {
    if !is_root() {
        return;
    }
    let (bench, (_root, release)) = (Bench::new(), copied());
    let script = format!(
        "exec unshare --mount sh -c 'mount -t tmpfs none {}; echo $$; exec /bin/sleep 1000'",
        release.display()
    );
    let running = start(&mut run_by(&bench, &release, &["sh", "-c", &script]));
    crate::support::eventually("sleep", || comm(running.pid) == "sleep\n");
    let said = bench.about(&running);
    said.is_broken_by("mount-namespace");
    assert!(
        said.text.contains("libgpuslice.so does not exist"),
        "{}",
        said.text
    );
}

#[test]
fn a_mount_namespace_without_the_slices_files_is_the_cause() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let options = ["--memory=8GiB", "--name=llama"];
    let start = |namespaces: &str| {
        let script = format!(
            "exec unshare --mount {namespaces} sh -c 'mount -t tmpfs none /dev/shm; echo $$; exec sleep 1000'"
        );
        let running = bench.words(&options, &["sh", "-c", &script]);
        crate::support::eventually("sleep", || sleeper(&running, namespaces).is_some());
        let pid = sleeper(&running, namespaces).unwrap();
        let said = bench.doctor(&[&pid.to_string()]);
        drop(running);
        said
    };
    // The program finds the ledger by the watcher as long as its /proc shows the watcher.
    start("").is_warned_of("mount-namespace");
    let said = start("--pid --fork --kill-child --mount-proc");
    said.is_broken_by("mount-namespace");
    assert!(said.text.contains("/ledger."), "{}", said.text);
}

/// The process `sleep` that a script has become: in a pid namespace of its own it has another
/// number there than here.
fn sleeper(running: &Running, namespaces: &str) -> Option<u32> {
    let is_sleep = |pid: &u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name == "sleep\n")
    };
    if namespaces.is_empty() {
        return Some(running.pid).filter(is_sleep);
    }
    let listed = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(|pid| is_sleep(pid) && running.has(*pid))
}

#[test]
fn a_library_that_ld_so_could_not_map_is_the_cause() {
    let (bench, (_root, release)) = (Bench::new(), copied());
    // A file with the right name that is no library any more when the child starts.
    let library = release.join("libgpuslice.so");
    let script = format!(
        "rm {0}; echo text >{0}; sleep 1000 & echo $!; wait",
        library.display()
    );
    let running = start(&mut run_by(&bench, &release, &["sh", "-c", &script]));
    crate::support::eventually("sleep", || comm(running.pid) == "sleep\n");
    bench.about(&running).is_broken_by("library-not-loaded");
}
