//! Compiles the C, C++ and Go programs of the tests, once per test run.
//! Touches: compilers, and `clients/` in the build output.

use crate::place;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Lets one compiler run at a time, so that two tests that want the same program do not both write
/// it.
static COMPILING: Mutex<()> = Mutex::new(());

/// Compiles `source` (below `tests/clients/`) as `name`, and returns the path of the program.
///
/// `words` are further arguments; `{sim}` in them is the folder of the simulated driver,
/// `{here}` the folder in which the program lands.
///
/// # Panics
/// When the compiler is missing or complains of anything.
#[must_use]
pub fn compile(compiler: &str, source: &str, name: &str, words: &[&str]) -> PathBuf {
    let _one = COMPILING.lock().unwrap_or_else(PoisonError::into_inner);
    let clients = place::target().join("clients");
    let program = clients.join(name);
    let folder = program.parent().unwrap_or(&clients).to_path_buf();
    std::fs::create_dir_all(&folder)
        .unwrap_or_else(|error| panic!("cannot make {}: {error}", folder.display()));
    let source = place::source(source);
    let sim = place::sim();
    let words = words.iter().map(|word| {
        word.replace("{sim}", &sim.display().to_string())
            .replace("{here}", &folder.display().to_string())
    });
    // The program gets a temporary name first: another test binary may be running the finished one.
    let unfinished = folder.join(format!("unfinished.{}", std::process::id()));
    let mut command = Command::new(compiler);
    if compiler == "go" {
        command
            .args(["build", "-o"])
            .arg(&unfinished)
            .args(words)
            .arg(&source);
        command
            .env("GO111MODULE", "off")
            .env("GOCACHE", clients.join("go-cache"));
        command.env(
            "CGO_ENABLED",
            if name.ends_with("static") { "0" } else { "1" },
        );
    } else {
        command.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o"]);
        command.arg(&unfinished).arg(&source).args(words);
    }
    let how = format!("{command:?}").replace(&unfinished.display().to_string(), name);
    let recipe = program.with_extension("how");
    let known = std::fs::read_to_string(&recipe).is_ok_and(|known| known == how);
    let sources = command.get_args().map(PathBuf::from);
    let sources = sources.filter(|path| path.extension().is_some_and(|end| end == "c"));
    let mut from: Vec<PathBuf> = sources.collect();
    from.extend(["c/client.h", "c/worker.h", "c/life.h"].map(place::source));
    from.extend([source.clone(), sim.join("libcuda.so.1")]);
    if known && is_newer(&program, &from) {
        return program;
    }
    let output = command.output().unwrap_or_else(|error| {
        panic!("cannot run {compiler} ({error}): run tests/clients/setup.sh first")
    });
    assert!(
        output.status.success(),
        "{compiler} does not compile {}: {}",
        source.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    let kept = std::fs::rename(&unfinished, &program).and_then(|()| std::fs::write(&recipe, how));
    kept.unwrap_or_else(|error| panic!("cannot keep {name}: {error}"));
    program
}

fn is_newer(program: &Path, than: &[PathBuf]) -> bool {
    let age = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    let Some(built) = age(program) else {
        return false;
    };
    than.iter()
        .all(|path| age(path).is_some_and(|age| age < built))
}

/// A C program that is linked with a library of the simulated driver.
#[must_use]
pub fn linked(source: &str, library: &str) -> PathBuf {
    let (file, library) = (format!("c/{source}.c"), format!("-l:{library}"));
    let words = ["-pthread", "-L{sim}", &library];
    compile("cc", &file, &source.replace('_', "-"), &words)
}

/// The program linked with -lcuda.
#[must_use]
pub fn linked_cuda() -> PathBuf {
    linked("linked_cuda", "libcuda.so.1")
}

/// The program linked with -lnvidia-ml.
#[must_use]
pub fn linked_nvml() -> PathBuf {
    linked("linked_nvml", "libnvidia-ml.so.1")
}

/// The C++ program that opens both libraries with dlopen.
#[must_use]
pub fn dlopened() -> PathBuf {
    compile("c++", "c/dlopened.cpp", "dlopened", &["-ldl"])
}

/// The program that runs the commands of its standard input; see [`crate::worker`].
#[must_use]
pub fn worker() -> PathBuf {
    let operations = place::source("c/worker_operations.c").display().to_string();
    let libraries = ["-L{sim}", "-l:libcuda.so.1", "-l:libnvidia-ml.so.1"];
    let words = [&["-pthread", &*operations], &libraries[..]].concat();
    compile("cc", "c/worker.c", "worker", &words)
}

/// The worker, linked with the driver and not with NVML.
#[must_use]
pub fn without_nvml() -> PathBuf {
    let operations = place::source("c/worker_operations.c").display().to_string();
    let words = [
        "-pthread",
        "-DWITHOUT_NVML",
        &*operations,
        "-L{sim}",
        "-l:libcuda.so.1",
    ];
    compile("cc", "c/worker.c", "worker-without-nvml", &words)
}

/// A C program that needs no driver at link time.
#[must_use]
pub fn c(name: &str) -> PathBuf {
    compile("cc", &format!("c/{name}.c"), name, &["-pthread", "-ldl"])
}

/// A C library, to be preloaded.
#[must_use]
pub fn library(name: &str) -> PathBuf {
    compile(
        "cc",
        &format!("c/{name}.c"),
        &format!("lib{name}.so"),
        &["-shared", "-fPIC", "-ldl"],
    )
}

/// The path of a program of the system, if it is installed.
#[must_use]
pub fn find(program: impl AsRef<OsStr>) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program.as_ref()))
        .find(|path| path.is_file())
}
