//! What watching for model files costs: opening and mapping ordinary files (budget: 20 ns for a
//! pair of calls).
//! Touches: the built shim, a file of 128 MiB that it writes to the build output once.
#![expect(
    clippy::expect_used,
    reason = "a bench that cannot start says why and stops"
)]
#![expect(clippy::print_stdout, reason = "the result of a bench is its output")]

use gpuslice_bench::target;
use std::path::{Path, PathBuf};
use std::process::Command;

const MODEL: usize = 128 << 20;

/// A way to run a program.
struct Way {
    name: &'static str,
    shim: bool,
    slice: Option<PathBuf>,
    model: bool,
}

fn run(program: &Path, words: &[&Path], way: &Way, state: &Path) -> Vec<f64> {
    let mut command = Command::new(program);
    command.args(words).env_clear();
    command.env("LD_LIBRARY_PATH", target().join("sim"));
    command
        .env("GPUSLICE_SIM", "h200")
        .env("GPUSLICE_SIM_STATE", state);
    if way.shim {
        command.env("LD_PRELOAD", target().join("release/libgpuslice.so"));
    }
    if let Some(slice) = &way.slice {
        command.env("GPUSLICE_CONFIG", slice);
    }
    let output = command.output().expect("the program runs");
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let last = said.lines().last().unwrap_or_default();
    let words = last.split_whitespace();
    words.filter_map(|word| word.parse().ok()).collect()
}

fn compile(source: &Path, to: &Path) {
    let mut command = Command::new("cc");
    command.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"]);
    let done = command.args([to, source]).status();
    assert!(done.is_ok_and(|status| status.success()), "cc compiles");
}

fn slice(folder: &Path, mode: &str) -> PathBuf {
    let file = folder.join(format!("{mode}.json"));
    let text = format!(r#"{{"version":1,"memory":8589934592,"page_cache":"{mode}"}}"#);
    std::fs::write(&file, text).expect("the slice is written");
    file
}

/// A file that is a model's by its name and size.
fn model() -> PathBuf {
    let path = target().join("models/hot.bin");
    if path.metadata().map_or(0, |data| data.len()) != MODEL as u64 {
        std::fs::create_dir_all(target().join("models")).expect("a folder");
        std::fs::write(&path, vec![7; MODEL]).expect("the model is written");
    }
    path
}

fn hot_paths(folder: &Path, model: &Path, state: &Path) {
    let program = folder.join("hot");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    compile(&here.join("c/hot.c"), &program);
    let ordinary = folder.join("ordinary.txt");
    std::fs::write(&ordinary, vec![1u8; 1 << 20]).expect("a file");
    let drop = || Some(slice(folder, "drop"));
    let ways = [
        Way {
            name: "no preload",
            shim: false,
            slice: None,
            model: false,
        },
        Way {
            name: "no preload, a model is mapped",
            shim: false,
            slice: None,
            model: true,
        },
        Way {
            name: "libgpuslice.so, no slice",
            shim: true,
            slice: None,
            model: false,
        },
        Way {
            name: "in a slice that drops",
            shim: true,
            slice: drop(),
            model: false,
        },
        Way {
            name: "in a slice that drops, a model is mapped",
            shim: true,
            slice: drop(),
            model: true,
        },
        Way {
            name: "in a slice that drops behind, a model is mapped",
            shim: true,
            slice: Some(slice(folder, "drop-behind")),
            model: true,
        },
    ];
    let kinds = [
        "open + close",
        "mmap + munmap of a file",
        "mmap + munmap of memory",
        "pread of a byte",
    ];
    println!("\nwhat is no model: libc's own, and as the program's calls go (budget: 20 ns added)");
    for way in &ways {
        let words: Vec<&Path> = match way.model {
            true => vec![&ordinary, model],
            false => vec![&ordinary],
        };
        let answer = run(&program, &words, way, state);
        println!("  {}", way.name);
        for (kind, both) in kinds.iter().zip(answer.chunks_exact(2)) {
            if let [bare, hooked] = both {
                let added = hooked - bare;
                println!("    {kind:<24} {bare:>8.1} ns  {hooked:>8.1} ns  added {added:>6.1}");
            }
        }
    }
}

fn main() {
    let (folder, state) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    let model = model();
    hot_paths(folder.path(), &model, state.path());
}
