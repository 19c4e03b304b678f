//! Programs that `gpuslice run` cannot put into a slice are named before they start.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]
mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use support::{Installation, told};
use tempfile::TempDir;

static HERE: LazyLock<Installation> = LazyLock::new(|| Installation::new("programs"));

const SLICED: [&str; 2] = ["--sim=rtx3090", "--memory=8GiB"];

const ALONE: &str = ", so libgpuslice.so is not loaded into it and the slice does not limit it; \
                     dynamic programs that it starts are limited";

/// A folder that other users can enter.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// A program that writes a word, built with these options of the compiler.
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

/// Without --strict the program is named and starts, with it the program does not start.
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
        // Nothing is limited, so nothing is lost.
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
    fs::write(&narrow, &bytes).unwrap();
    fs::set_permissions(&narrow, fs::Permissions::from_mode(0o755)).unwrap();
    named(
        &narrow,
        &format!("{} is a 32-bit program{ALONE}", narrow.display()),
    );
    (bytes[4], bytes[18]) = (2, 243);
    fs::write(&narrow, &bytes).unwrap();
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
        fs::write(&script, line).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
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
    // One's own identity is no privilege, and a group that may not execute it is none either.
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
    // Where other users can start it.
    let installed = folder.path().join("bin");
    fs::create_dir(&installed).unwrap();
    let copy = |from: PathBuf, to: &Path| {
        let copied = Command::new("cp").arg("-rL").arg(from).arg(to).status();
        assert!(copied.unwrap().success());
    };
    copy(HERE.executable(), &installed);
    copy(HERE.folder.join("libgpuslice.so"), &installed);
    copy(HERE.folder.with_file_name("sim"), folder.path());
    let run = |prefix: &[&str]| {
        let (first, rest) = prefix.split_first().unwrap();
        let mut command = Command::new(first);
        command.args(rest).arg(installed.join("gpuslice"));
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
    // Root gains nothing by them.
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

#[test]
fn a_library_that_is_none_stops_the_run() {
    let place = folder();
    let copied = Command::new("cp")
        .arg(HERE.executable())
        .arg(place.path())
        .status();
    assert!(copied.unwrap().success());
    let library = place.path().join("libgpuslice.so");
    let mut other = fs::read(HERE.folder.join("libgpuslice.so")).unwrap();
    other[18] = 243;
    for (bytes, why) in [
        (&b""[..], "it is not a library: install gpuslice again"),
        (&other, "it is built for another kind of processor"),
    ] {
        fs::write(&library, bytes).unwrap();
        let mut command = Command::new(place.path().join("gpuslice"));
        let message = format!(
            "gpuslice: {} cannot be preloaded: {why}\n",
            library.display()
        );
        let seen = told(command.args(["run", "--", "echo", "started"]));
        assert_eq!(seen, (String::new(), message, 125));
    }
}
