//! The library under old C libraries, those of Ubuntu 16.04 to 20.04 and of Debian 11: every way to
//! the driver, a namespace of dlmopen, and functions that later C libraries added.
//! Touches: packages of those releases, which `tests/userlands/setup.sh` downloads once; the
//! simulated driver, linked for them.
#![cfg(target_arch = "x86_64")]

use gpuslice_suite::compile::compile;
use gpuslice_suite::place;
use gpuslice_suite::run::{Answer, Machine, Run};
use gpuslice_suite::slice::{GIB, of_all_devices};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The loader and the C library of a release.
struct Userland {
    libraries: PathBuf,
    folder: PathBuf,
}

/// The release whose headers compile the clients: a program linked there loads on every release.
const OLDEST: &str = "xenial";

impl Userland {
    fn new(name: &str) -> Userland {
        let mut setup = Command::new(place::workspace().join("tests/userlands/setup.sh"));
        let setup = setup.arg(name).env("TARGET", place::target());
        let said = setup.output().unwrap();
        let stderr = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success(), "no userland {name}: {stderr}");
        let folder = place::target().join("userlands");
        let libraries = folder.join(name).join("lib/x86_64-linux-gnu");
        Userland { libraries, folder }
    }

    fn client(&self, source: &str, name: &str, words: &[&str]) -> PathBuf {
        let oldest = self.folder.join(OLDEST);
        let root = oldest.display();
        let old = [
            format!("--sysroot={root}"),
            format!("-B{root}/usr/lib/x86_64-linux-gnu"),
            format!("-L{root}/usr/lib/x86_64-linux-gnu"),
            format!("-L{root}/lib/x86_64-linux-gnu"),
        ];
        let words: Vec<&str> = old
            .iter()
            .map(String::as_str)
            .chain(words.iter().copied())
            .collect();
        compile("cc", source, name, &words)
    }

    /// Runs a program by this release's loader.
    fn run(&self, program: &Path) -> Run {
        let mut folders = self.libraries.clone().into_os_string();
        folders.push(":");
        folders.push(self.folder.join("sim"));
        Run::new(self.libraries.join("ld-linux-x86-64.so.2"))
            .env("LD_LIBRARY_PATH", folders)
            .arg(program)
    }
}

/// Asserts that a program answers the same bare, preloaded without a slice, and in a slice. Returns
/// its output.
fn is_the_same(run: impl Fn() -> Run, slice: &Path) -> String {
    let bare = run().answer();
    assert_eq!(run().with_shim().answer(), bare, "without a slice");
    assert_eq!(run().with_shim().slice(slice).answer(), bare, "in a slice");
    bare.clean()
}

fn every_test_of(name: &str) {
    let userland = Userland::new(name);
    let machine = Machine::new("rtx3090");
    let slice = of_all_devices(machine.folder(), 8 * GIB, &machine.state());

    let ask = userland.client("../aarch64/ask.c", "userland-ask", &["-ldl", "-pthread"]);
    let routes = userland.run(&ask).answer().clean();
    assert_eq!(routes.lines().count(), 7, "{routes}");
    for route in routes.lines().chain(["nvml"]) {
        let run = || machine.place(userland.run(&ask).arg(route));
        let whole = if route == "nvml" {
            24 * GIB
        } else {
            25_438_126_080
        };
        assert_eq!(
            run().answer().clean(),
            format!("{whole}\n"),
            "{name}: {route}, bare"
        );
        let preloaded = run().with_shim().answer().clean();
        assert_eq!(
            preloaded,
            format!("{whole}\n"),
            "{name}: {route}, preloaded"
        );
        let sliced: Answer = run().with_shim().slice(&slice).answer();
        assert_eq!(
            sliced.clean(),
            format!("{}\n", 8 * GIB),
            "{name}: {route}, in a slice"
        );
    }

    let client = "c/userland.c";
    let plugin = ["-DPLUGIN", "-shared", "-fPIC"];
    let plugin = userland.client(client, "userland-plugin.so", &plugin);
    let client = userland.client(client, "userland", &["-ldl"]);
    for place in ["here", "apart"] {
        let words = [place.as_ref(), plugin.as_os_str(), "/etc/passwd".as_ref()];
        let said = is_the_same(|| userland.run(&client).args(words), &slice);
        assert_eq!(
            said.matches(": yes\n").count(),
            13,
            "{name}, {place}: {said}"
        );
    }

    let absent = || userland.run(&client).arg("absent");
    let bare = absent().answer().clean();
    assert!(
        bare.contains("close_range: absent, absent, dlerror 1\n"),
        "{bare}"
    );
    // The weak reference is bound to the library's function, which answers as an old kernel would.
    let sliced = absent().with_shim().slice(&slice).answer().clean();
    let functions = sliced.lines().filter(|line| !line.contains("errno "));
    assert_eq!(
        functions.collect::<Vec<_>>(),
        bare.lines().collect::<Vec<_>>(),
        "{name}"
    );
    assert!(
        sliced.contains("close_range: errno 38\n"),
        "{name}: {sliced}"
    );
}

/// Before glibc 2.34, a failed look-up in a namespace of dlmopen ends the process.
#[test]
fn a_linked_library_in_a_namespace_of_its_own_sees_the_slice() {
    let userland = Userland::new("bionic");
    let machine = Machine::new("rtx3090");
    let slice = of_all_devices(machine.folder(), 8 * GIB, &machine.state());
    let folder = format!("-L{}", userland.folder.join("sim").display());
    let source = "c/linked_apart.c";
    let plugin = ["-DPLUGIN", "-shared", "-fPIC", &folder, "-l:libcuda.so.1"];
    let plugin = userland.client(source, "linked-apart-plugin.so", &plugin);
    let program = userland.client(source, "linked-apart", &["-ldl"]);
    let run = || machine.place(userland.run(&program).arg(&plugin));
    assert_eq!(run().answer().clean(), "25438126080\n", "bare");
    let sliced = run().with_shim().slice(&slice).answer();
    assert_eq!(sliced.clean(), format!("{}\n", 8 * GIB), "in a slice");
}

#[test]
fn ubuntu_18_04_opens_files_in_a_namespace_of_dlmopen_and_sees_the_slice() {
    every_test_of("bionic");
}

#[test]
#[ignore = "make check-all: one old C library is enough for every commit"]
fn every_old_userland_opens_files_in_a_namespace_and_sees_the_slice() {
    for name in ["xenial", "focal", "bullseye"] {
        every_test_of(name);
    }
}

/// A program that looks the driver up in a linker namespace of its own.
struct LookUps {
    userland: Userland,
    machine: Machine,
    slice: PathBuf,
    program: PathBuf,
    plugin: PathBuf,
}

impl LookUps {
    fn of(name: &str) -> LookUps {
        let userland = Userland::new(name);
        let machine = Machine::new("rtx3090");
        let slice = of_all_devices(machine.folder(), 8 * GIB, &machine.state());
        let folder = format!("-L{}", userland.folder.join("sim").display());
        let driver = [&folder, "-l:libcuda.so.1", "-ldl"];
        let plugin = [&["-DPLUGIN", "-shared", "-fPIC"], &driver[..]].concat();
        let plugin = userland.client(LookUps::SOURCE, "lookups-apart-plugin.so", &plugin);
        let words = ["-ldl", "-pthread"];
        let program = userland.client(LookUps::SOURCE, "lookups-apart", &words);
        LookUps {
            userland,
            machine,
            slice,
            program,
            plugin,
        }
    }

    const SOURCE: &str = "c/lookups_apart.c";

    /// Asserts that a look-up by each route finds the driver bare, and the slice in a slice.
    fn find_the_driver(&self, words: &[&OsStr]) {
        for route in ["default", "next", "handle"] {
            let run = || {
                let run = self.userland.run(&self.program).arg(&self.plugin);
                self.machine.place(run.arg(route).args(words))
            };
            assert_eq!(run().answer().clean(), "25438126080\n", "{route}, bare");
            let sliced = run().with_shim().slice(&self.slice).answer();
            assert_eq!(sliced.clean(), format!("{}\n", 8 * GIB), "{route}");
        }
    }
}

/// In such a namespace this library comes first. A look-up of a driver function found this library's
/// own definition, and no other in its scope.
#[test]
fn look_ups_in_a_namespace_of_its_own_find_the_driver() {
    LookUps::of("bionic").find_the_driver(&[]);
}

#[test]
fn look_ups_in_a_namespace_go_on_while_bionic_unloads_libraries() {
    let look_ups = LookUps::of("bionic");
    let words = ["-DOTHER", "-shared", "-fPIC"];
    let other = look_ups
        .userland
        .client(LookUps::SOURCE, "lookups-apart-other.so", &words);
    look_ups.find_the_driver(&[other.as_os_str(), "10000".as_ref()]);
}
