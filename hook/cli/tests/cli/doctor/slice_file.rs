//! Slice files that cannot be used, or were edited.

use super::bench::{Bench, GPU, HERE, copied, is_root, mode, run_by, start};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A program with the library preloaded by hand, and with this slice file.
fn by_hand(bench: &Bench, file: &Path) -> Command {
    let mut command = Command::new("python3");
    command
        .args(["-c", &format!("{GPU}use()\nwait()\n")])
        .env("LD_PRELOAD", HERE.folder.join("libgpuslice.so"))
        .env("LD_LIBRARY_PATH", HERE.folder.with_file_name("sim"))
        .env("GPUSLICE_SIM", "rtx3090")
        .env("GPUSLICE_SIM_STATE", bench.machine.state.path())
        .env("GPUSLICE_CONFIG", file)
        .env_remove("GPUSLICE_SLICE");
    command
}

#[test]
fn a_slice_file_that_does_not_exist_refuses_all_memory() {
    let bench = Bench::new();
    let file = bench.machine.home.state.path().join("nosuch.json");
    let running = start(&mut by_hand(&bench, &file));
    let said = bench.about(&running);
    said.is_broken_by("slice-file-missing");
    assert!(
        said.text.contains("all GPU memory is refused"),
        "{}",
        said.text
    );
}

#[test]
fn a_slice_file_with_a_fault_is_named_with_its_line_and_key() {
    let bench = Bench::new();
    let file = bench.machine.home.state.path().join("slice.json");
    for (text, fault) in [
        (
            "{\"version\": 1,\n \"memry\": 8}",
            "line 2: unknown key \"memry\"",
        ),
        ("{\"version\": 1, \"memory\": 85899", "slice.json, line 1"),
        ("", "slice.json, line 1"),
    ] {
        fs::write(&file, text).unwrap();
        let running = start(&mut by_hand(&bench, &file));
        let said = bench.about(&running);
        said.is_broken_by("slice-file-invalid");
        assert!(said.text.contains(fault), "{}", said.text);
    }
}

#[test]
fn a_slice_file_that_the_user_may_not_read_is_the_cause() {
    if !is_root() {
        return;
    }
    let (bench, (_root, release)) = (Bench::new(), copied());
    let script = "chmod -R a+rwX $GPUSLICE_SIM_STATE; exec env -u GPUSLICE_SLICE setpriv --reuid \
                  65534 --regid 65534 --clear-groups /bin/sh -c 'echo $$; read line </dev/zero; sleep 1000'";
    let running = start(&mut run_by(&bench, &release, &["sh", "-c", script]));
    let said = bench.about(&running);
    said.is_broken_by("slice-file-unreadable");
    assert!(said.text.contains("runs as user nobody"), "{}", said.text);
}

#[test]
fn the_slice_as_of_the_start_replaces_a_damaged_file_of_a_run() {
    let bench = Bench::new();
    for (change, code) in [
        ("echo '{' >$GPUSLICE_CONFIG", "slice-file-invalid"),
        ("rm $GPUSLICE_CONFIG", "slice-file-missing"),
        (
            "sed -i s/8589934592/4294967296/g $GPUSLICE_CONFIG",
            "slice-file-edited",
        ),
    ] {
        let script = format!("{change}; echo $$; exec sleep 1000");
        let running = bench.script(&[], &script, "sleep");
        let said = bench.about(&running);
        said.is_warned_of(code);
        let stays = ["stays in force", "the old limit holds"];
        assert!(
            stays.iter().any(|it| said.text.contains(it)),
            "{}",
            said.text
        );
    }
}

#[test]
fn a_slice_that_refuses_nothing_is_named() {
    let bench = Bench::new();
    let running = bench.script(&["--no-enforce"], "echo $$; exec sleep 1000", "sleep");
    let said = bench.about(&running);
    said.is_warned_of("not-enforced");
}

#[test]
fn a_log_file_that_cannot_be_written_loses_its_lines() {
    let bench = Bench::new();
    let place = bench.machine.home.state.path().to_owned();
    let script = |file: &str| {
        format!(
            "GPUSLICE_LOG_FILE={}/{file} sleep 1000 & echo $!; wait",
            place.display()
        )
    };
    let code = "log-not-writable";
    for (file, why) in [("nosuch/log", "does not exist"), ("", "is a folder")] {
        let running = bench.script(&[], &script(file), "sleep");
        let said = bench.about(&running);
        said.is_warned_of(code);
        assert!(said.text.contains(why), "{}", said.text);
    }
    let running = bench.script(&[], &script("log"), "sleep");
    bench.about(&running).is_healthy();
}

#[test]
fn unified_memory_without_the_hosts_meminfo_is_named() {
    let bench = Bench::of("gb10");
    let home = bench.machine.home.state.path();
    let (file, ledger) = (home.join("own.json"), home.join("ledger"));
    let uuid = {
        let running = bench.script(&[], "grep -o 'GPU-[0-9a-f-]*' $GPUSLICE_CONFIG | head -1 >$XDG_STATE_HOME/uuid; echo $$; exec sleep 1000", "sleep");
        drop(running);
        fs::read_to_string(home.join("uuid"))
            .unwrap()
            .trim()
            .to_owned()
    };
    let text = format!(
        r#"{{"version": 1, "name": "own", "ledger": "{}", "meminfo": "/nosuch/meminfo",
            "devices": [{{"uuid": "{uuid}", "memory": 8589934592, "integrated": true}}]}}"#,
        ledger.display()
    );
    fs::write(&file, text).unwrap();
    let config = format!("--config={}", file.display());
    let program = format!("{GPU}use()\nwait()\n");
    let running = bench.python(&[&config], &program);
    let said = bench.about(&running);
    said.is_warned_of("meminfo-missing");
    assert!(said.text.contains("/nosuch/meminfo"), "{}", said.text);
    mode(&file, 0o644);
}

#[test]
fn a_mounted_meminfo_that_is_not_written_any_more_is_named() {
    // Only root can mount it.
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let bench = Bench::of("gb10");
    let place = bench.machine.home.state.path().join("watcher");
    let program = format!(
        "{GPU}import os\nuse()\nfile = open(os.environ['GPUSLICE_CONFIG']).read()\n\
         open('{}', 'w').write(file)\nwait()\n",
        place.display()
    );
    let running = bench.python(&["--memory=8GiB", "--meminfo=mount"], &program);
    bench.about(&running).is_healthy();
    let slice = fs::read_to_string(&place).unwrap();
    let (_, rest) = slice.split_once("\"/proc/").unwrap();
    let watcher: i32 = rest.split('/').next().unwrap().parse().unwrap();
    let send = |signal| {
        let watcher = nix::unistd::Pid::from_raw(watcher);
        nix::sys::signal::kill(watcher, signal).unwrap();
    };
    send(nix::sys::signal::Signal::SIGSTOP);
    let is_old = || !bench.about(&running).codes().is_empty();
    crate::support::eventually("the file is old", is_old);
    bench.about(&running).is_warned_of("meminfo-old");
    send(nix::sys::signal::Signal::SIGCONT);
    let is_new = || bench.about(&running).codes().is_empty();
    crate::support::eventually("the file is new", is_new);
}
