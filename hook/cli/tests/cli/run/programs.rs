//! `gpuslice run` names programs that it cannot put into a slice before they start.

use crate::support::{Installation, told};
use gpuslice_test_programs::write_program;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use tempfile::TempDir;

static HERE: LazyLock<Installation> = LazyLock::new(|| Installation::new("programs"));

const SLICED: [&str; 2] = ["--sim=rtx3090", "--memory=8GiB"];

const ALONE: &str = ", so libgpuslice.so is not loaded into it and the slice does not limit it; \
                     dynamic programs that it starts are limited";

/// Makes a folder that other users can enter.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// Builds a program that prints a word, with these compiler options.
fn program(folder: &Path, name: &str, options: &[&str]) -> PathBuf {
    let (source, program) = (folder.join("a.c"), folder.join(name));
    fs::write(
        &source,
        "#include <unistd.h>\nint main(void) { return write(1, \"ran\\n\", 4) != 4; }",
    )
    .unwrap();
    let mut cc = Command::new("cc");
    cc.args(options).arg("-o").args([&program, &source]);
    assert_eq!(told(&mut cc), (String::new(), String::new(), 0));
    program
}

fn start(options: &[&str], program: &Path) -> (String, String, i32) {
    let mut command = HERE.gpuslice();
    command.arg("run").args(SLICED).args(options).arg("--");
    told(command.arg(program))
}

/// Checks that the program is named. It starts without --strict, and does not start with it.
fn named(program: &Path, what: &str) {
    let (_, err, _) = start(&[], program);
    let warning = format!("gpuslice: warning: {what} (--strict refuses to start it)\n");
    assert!(err.starts_with(&warning), "{err}");
    let refusal = format!("gpuslice: {what}; --strict refuses to start it\n");
    assert_eq!(start(&["--strict"], program), (String::new(), refusal, 125));
}

#[test]
fn a_static_program_starts_with_a_line_that_the_slice_does_not_hold() {
    let folder = folder();
    for options in [&["-static"][..], &["-static-pie"]] {
        let program = program(folder.path(), "static", options);
        named(
            &program,
            &format!("{} is statically linked{ALONE}", program.display()),
        );
        let (out, _, status) = start(&[], &program);
        assert_eq!((out.as_str(), status), ("ran\n", 0));
        // Without a limit there is nothing to warn about.
        let mut command = HERE.gpuslice();
        command.args(["run", "--sim=rtx3090", "--"]).arg(&program);
        assert_eq!(told(&mut command), ("ran\n".to_owned(), String::new(), 0));
    }
}

#[test]
fn a_program_of_another_libc_or_another_width_is_named() {
    let folder = folder();
    let musl = program(
        folder.path(),
        "musl",
        &["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"],
    );
    let loader = "is loaded by /lib/ld-musl-x86_64.so.1, not by glibc";
    named(&musl, &format!("{} {loader}{ALONE}", musl.display()));
    let narrow = folder.path().join("narrow");
    let mut bytes = fs::read(&musl).unwrap();
    bytes[4] = 1;
    write_program(&narrow, &bytes);
    named(
        &narrow,
        &format!("{} is a 32-bit program{ALONE}", narrow.display()),
    );
    (bytes[4], bytes[18]) = (2, 243);
    write_program(&narrow, &bytes);
    let machine = "is built for another kind of processor";
    named(&narrow, &format!("{} {machine}{ALONE}", narrow.display()));
}

#[test]
fn a_script_is_followed_to_the_program_that_interprets_it() {
    let folder = folder();
    let interpreter = program(folder.path(), "interpreter", &["-static"]);
    let script = folder.path().join("script");
    for line in [
        format!("#!{} -x\n", interpreter.display()),
        "#!/usr/bin/env interpreter\n".to_owned(),
    ] {
        write_program(&script, line);
        let mut command = HERE.gpuslice();
        let path = format!(
            "{}:{}",
            folder.path().display(),
            std::env::var("PATH").unwrap()
        );
        command
            .arg("run")
            .args(SLICED)
            .args(["--strict", "--", "script"]);
        let (out, err, status) = told(command.env("PATH", path));
        let named = format!("gpuslice: {} is statically linked", interpreter.display());
        assert!(
            err.starts_with(&named) && (out.as_str(), status) == ("", 125),
            "{err}"
        );
    }
}

#[test]
fn a_program_with_privileges_of_its_own_is_named() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    const WITH_ALL: &str = ", so libgpuslice.so is not loaded into it and the slice limits neither \
                            it nor what it starts";
    let folder = folder();
    let program = program(folder.path(), "privileged", &[]);
    let mode = |mode| fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
    std::os::unix::fs::chown(&program, Some(65534), Some(65534)).unwrap();
    for (bits, what) in [(0o4755, "set-user-ID"), (0o2755, "set-group-ID")] {
        mode(bits);
        named(
            &program,
            &format!("{} is a {what} program{WITH_ALL}", program.display()),
        );
    }
    // A set-user-id bit for the caller's own id gives no privilege, and neither does a set-group-id
    // bit on a file that the group may not execute.
    std::os::unix::fs::chown(&program, Some(0), Some(65534)).unwrap();
    for bits in [0o4755, 0o2745] {
        mode(bits);
        let seen = start(&["--strict"], &program);
        assert_eq!(seen, ("ran\n".to_owned(), String::new(), 0));
    }
}

#[test]
fn a_program_with_file_capabilities_is_named_to_who_is_not_root() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let folder = folder();
    let program = program(folder.path(), "capable", &[]);
    // CAP_NET_BIND_SERVICE, effective and permitted.
    let set = "import os, sys, struct; \
        os.setxattr(sys.argv[1], 'security.capability', struct.pack('<5I', 0x2000001, 1 << 10, 0, 0, 0))";
    let status = Command::new("python3")
        .args(["-c", set])
        .arg(&program)
        .status();
    assert!(status.unwrap().success());
    let gpuslice = installed(folder.path(), &HERE.folder.join("libgpuslice.so"));
    let run = |prefix: &[&str]| {
        let (first, rest) = prefix.split_first().unwrap();
        let mut command = Command::new(first);
        command.args(rest).arg(&gpuslice);
        command
            .arg("run")
            .args(SLICED)
            .args(["--strict", "--"])
            .arg(&program);
        told(command.env_remove("XDG_RUNTIME_DIR"))
    };
    let (_, err, status) = run(&[
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ]);
    let what = format!("gpuslice: {} has file capabilities, so", program.display());
    assert!(err.starts_with(&what) && status == 125, "{err}");
    // Root gains no privilege from file capabilities.
    assert_eq!(run(&["env"]), ("ran\n".to_owned(), String::new(), 0));
}

#[test]
fn a_library_that_the_loader_would_leave_out_stops_the_run() {
    let place = folder();
    let script = "set -e; cd \"$0\"; mkdir -p prefix/bin prefix/lib; mount -t tmpfs -o noexec none prefix/lib
        mkdir prefix/lib/gpuslice; cp -L \"$1\" prefix/bin/gpuslice
        cp -L \"$2\"/libgpuslice.so prefix/lib/gpuslice/; ln -s \"$2\"/../sim prefix/lib/gpuslice/sim
        exec prefix/bin/gpuslice run --sim=rtx3090 --memory=8GiB -- echo started";
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", script]);
    command
        .arg(place.path())
        .arg(HERE.executable())
        .arg(&HERE.folder);
    let library = place.path().join("prefix/lib/gpuslice/libgpuslice.so");
    let message = format!(
        "gpuslice: {} cannot be preloaded: its file system is mounted noexec (Operation not \
         permitted): install gpuslice elsewhere, or mount it with exec\n",
        library.display()
    );
    assert_eq!(told(&mut command), (String::new(), message, 125));
}

/// Installs gpuslice in a folder of its own, with this library and the simulator. Other users can
/// execute it.
fn installed(root: &Path, library: &Path) -> PathBuf {
    let bin = root.join("bin");
    fs::create_dir_all(&bin).unwrap();
    let copy = |from: &Path, to: &Path| {
        let copied = Command::new("cp").arg("-rL").args([from, to]).status();
        assert!(copied.unwrap().success());
    };
    copy(&HERE.executable(), &bin);
    copy(library, &bin.join("libgpuslice.so"));
    copy(&HERE.folder.with_file_name("sim"), root);
    bin.join("gpuslice")
}

/// A command in a slice of that gpuslice.
fn run_by(gpuslice: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(gpuslice);
    for name in ["LD_PRELOAD", "GPUSLICE_CONFIG", "XDG_RUNTIME_DIR"] {
        command.env_remove(name);
    }
    command.arg("run").args(SLICED).args(words);
    command
}

#[test]
fn a_library_that_is_none_of_ours_stops_the_run() {
    let place = folder();
    let ours = HERE.folder.join("libgpuslice.so");
    let changed = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = fs::read(&ours).unwrap();
        change(&mut bytes);
        let path = place.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let foreign = place.path().join("foreign.so");
    let source = place.path().join("a.c");
    fs::write(&source, "int answer(void) { return 42; }").unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-Wl,-soname,libgpuslice.so", "-o"]);
    assert_eq!(told(cc.args([&foreign, &source])).2, 0);
    for (number, (library, why)) in [
        (
            changed("empty", &|bytes| bytes.clear()),
            "it is not a library: install gpuslice again",
        ),
        (
            changed("machine", &|bytes| bytes[18] = 243),
            "it is built for another kind of processor",
        ),
        (
            changed("narrow", &|bytes| bytes[4] = 1),
            "it is a 32-bit library",
        ),
        (
            // The file lacks the last byte of its data, the second segment that is loaded.
            changed("short", &|bytes| {
                let number = |at: usize| {
                    let bytes = bytes[at..at + 8].try_into().unwrap();
                    usize::try_from(u64::from_le_bytes(bytes)).unwrap()
                };
                let end = number(64 + 56 + 8) + number(64 + 56 + 32);
                bytes.truncate(end - 1);
            }),
            "it is cut short: install gpuslice again",
        ),
        (
            foreign,
            "it is another library of that name: install gpuslice again",
        ),
        (
            HERE.executable(),
            "it is another library of that name: install gpuslice again",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let gpuslice = installed(&place.path().join(number.to_string()), &library);
        let library = gpuslice.with_file_name("libgpuslice.so");
        let message = format!(
            "gpuslice: {} cannot be preloaded: {why}\n",
            library.display()
        );
        let refused = (String::new(), message, 125);
        assert_eq!(told(&mut run_by(&gpuslice, &["echo", "started"])), refused);
        let mut bare = Command::new(&gpuslice);
        assert_eq!(told(bare.args(["run", "--", "echo", "started"])), refused);
    }
}

#[test]
fn a_library_whose_path_ld_so_would_read_otherwise_stops_the_run() {
    let place = folder();
    let ours = HERE.folder.join("libgpuslice.so");
    for name in ["a b", "a:b", "a$LIB", "a${ORIGIN}", "$PLATFORM"] {
        let gpuslice = installed(&place.path().join(name), &ours);
        let message = format!(
            "gpuslice: LD_PRELOAD cannot name {}: it has a space, a colon or a variable of ld.so \
             ($ORIGIN, $LIB, $PLATFORM); install gpuslice elsewhere\n",
            gpuslice.with_file_name("libgpuslice.so").display()
        );
        let seen = told(&mut run_by(&gpuslice, &["echo", "started"]));
        assert_eq!(seen, (String::new(), message, 125), "{name}");
    }
    // `$b` is no word that ld.so expands.
    let gpuslice = installed(&place.path().join("a$b"), &ours);
    let script = "grep -q libgpuslice.so /proc/$$/maps && echo loaded";
    let seen = told(&mut run_by(&gpuslice, &["--", "sh", "-c", script]));
    assert_eq!(seen, ("loaded\n".to_owned(), String::new(), 0));
}

#[test]
fn a_library_that_this_user_cannot_read_stops_the_run() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let place = folder();
    let gpuslice = installed(place.path(), &HERE.folder.join("libgpuslice.so"));
    let library = gpuslice.with_file_name("libgpuslice.so");
    let as_another = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        let run = run_by(&gpuslice, &["echo", "started"]);
        command.arg(run.get_program()).args(run.get_args());
        told(command.env_remove("XDG_RUNTIME_DIR"))
    };
    let refused = |library: &Path| {
        let message = format!(
            "gpuslice: {} cannot be preloaded: Permission denied (os error 13)\n",
            library.display()
        );
        (String::new(), message, 125)
    };
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(&library, 0o600);
    assert_eq!(as_another(), refused(&library));
    // The library is where packages put it, but in a folder that only root can search.
    let packaged = place.path().join("lib/gpuslice");
    fs::create_dir_all(&packaged).unwrap();
    fs::rename(&library, packaged.join("libgpuslice.so")).unwrap();
    mode(&packaged.join("libgpuslice.so"), 0o644);
    mode(&packaged, 0o700);
    assert_eq!(as_another(), refused(&packaged.join("libgpuslice.so")));
    mode(&packaged, 0o755);
    assert_eq!(as_another().0, "started\n");
}

/// The library uses the slice that the environment names, and so do the commands.
#[test]
fn after_a_change_of_user_commands_know_the_slice_that_they_are_in() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let place = folder();
    let gpuslice = installed(place.path(), &HERE.folder.join("libgpuslice.so"));
    let path = gpuslice.to_str().unwrap();
    let words = [
        "--",
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        path,
        "run",
        "--",
    ];
    let mut run = run_by(&gpuslice, &[&words[..], &["echo", "ran"]].concat());
    let every_user_may_use_the_simulator = || {
        nix::sys::stat::umask(nix::sys::stat::Mode::empty());
        Ok(())
    };
    // SAFETY: umask is safe after a fork.
    unsafe { run.pre_exec(every_user_may_use_the_simulator) };
    let (out, err, code) = told(&mut run);
    assert_eq!((out.as_str(), code), ("ran\n", 0), "{err}");
}

#[test]
fn a_program_that_changes_user_is_named_if_the_library_is_unreadable() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let place = folder();
    let private = place.path().join("private");
    let gpuslice = installed(&private, &HERE.folder.join("libgpuslice.so"));
    let library = gpuslice.with_file_name("libgpuslice.so");
    let setpriv = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "true",
    ];
    let script = ["sh", "-c", "exec setpriv --reuid=65534 --clear-groups true"];
    let run = |options: &[&str], words: &[&str]| {
        told(&mut run_by(&gpuslice, &[options, &["--"], words].concat()))
    };
    let quiet = (String::new(), String::new(), 0);
    assert_eq!(run(&["--strict"], &setpriv), quiet);
    for (path, mode) in [(&private, 0o700), (&library, 0o600)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let gap = format!(
            "setpriv may change the user, and other users cannot read {}, which the mode of {} \
             forbids: install it where every user can read it",
            library.display(),
            path.display()
        );
        for words in [&setpriv[..], &script] {
            let (_, err, _) = run(&[], words);
            let warning = format!("gpuslice: warning: {gap} (--strict refuses to start it)\n");
            assert!(err.starts_with(&warning), "{err}");
            let refusal = format!("gpuslice: {gap}; --strict refuses to start it\n");
            assert_eq!(run(&["--strict"], words), (String::new(), refusal, 125));
        }
        assert_eq!(run(&["--strict"], &["true"]), quiet);
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}
