//! What watching for model files costs: opening and mapping ordinary files (budget: 20 ns for a
//! pair of calls), and loading a model while its pages are dropped (budget: 3 % of the time).
//! Touches: the built shim and simulated driver, a file of 1 GiB that it writes to the build
//! output once.
#![expect(
    clippy::expect_used,
    reason = "a bench that cannot start says why and stops"
)]
#![expect(clippy::print_stdout, reason = "the result of a bench is its output")]

use gpuslice_bench::target;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const PAIRS: usize = 7;
const MODEL: usize = 1 << 30;

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

fn compile(source: &Path, to: &Path, words: &[String]) {
    let mut command = Command::new("cc");
    command.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"]);
    let done = command.args([to, source]).args(words).status();
    assert!(done.is_ok_and(|status| status.success()), "cc compiles");
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len().checked_div(2).unwrap_or(0);
    sorted.get(half).copied().unwrap_or(f64::NAN)
}

fn slice(folder: &Path, mode: &str) -> PathBuf {
    let file = folder.join(format!("{mode}.json"));
    let text = format!(r#"{{"version":1,"memory":8589934592,"page_cache":"{mode}"}}"#);
    std::fs::write(&file, text).expect("the slice is written");
    file
}

/// A file that is a model's by its name, of numbers that are not all the same.
fn model() -> PathBuf {
    let path = target().join("models/bench.bin");
    if path.metadata().map_or(0, |data| data.len()) != MODEL as u64 {
        std::fs::create_dir_all(target().join("models")).expect("a folder");
        let mut file = std::fs::File::create(&path).expect("the model");
        let part: Vec<u8> = (0u32..1 << 20)
            .flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes())
            .collect();
        for _ in 0..MODEL.checked_div(part.len()).unwrap_or(0) {
            file.write_all(&part).expect("the model is written");
        }
        file.sync_all().expect("the model is written");
    }
    path
}

fn hot_paths(folder: &Path, model: &Path, state: &Path) {
    let program = folder.join("hot");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    compile(&here.join("c/hot.c"), &program, &[]);
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

/// Drops the pages of the model, so that each load reads the disk.
fn make_cold(model: &Path) {
    let file = std::fs::File::open(model).expect("the model");
    use std::os::fd::AsRawFd;
    // SAFETY: takes no pointers.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

fn loads(folder: &Path, model: &Path, state: &Path) {
    let program = folder.join("cuda-loader");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sim = format!("-L{}", target().join("sim").display());
    compile(
        &here.join("../clients/c/cuda_loader.c"),
        &program,
        &[sim, "-l:libcuda.so.1".into()],
    );
    let ways = ["drop", "drop-behind"].map(|mode| Way {
        name: mode,
        shim: true,
        slice: Some(slice(folder, mode)),
        model: true,
    });
    // Pages that the machine has never used cost their host time, and the one way uses more of
    // them than the other: all are used once before.
    make_cold(model);
    for _ in 0..2 {
        std::io::copy(
            &mut std::fs::File::open(model).expect("the model"),
            &mut std::io::sink(),
        )
        .expect("it is read");
    }
    for (how, pause) in [
        ("quiet-pass", "0.02"),
        ("quiet-shuffled", "0.02"),
        ("quiet-read", "0.02"),
    ] {
        let mut ratios = [Vec::new(), Vec::new()];
        let mut medians = [Vec::new(), Vec::new()];
        for pair in 0..PAIRS {
            let mut both = [Vec::new(), Vec::new()];
            for turn in 0..2usize {
                // Whoever is second has it no better.
                let place = (pair.wrapping_add(turn)) & 1;
                let (Some(way), Some(answer)) = (ways.get(place), both.get_mut(place)) else {
                    continue;
                };
                make_cold(model);
                *answer = run(
                    &program,
                    &[Path::new(how), model, Path::new(pause)],
                    way,
                    state,
                );
            }
            let [without, with] = &both;
            for (kind, ratios) in ratios.iter_mut().enumerate() {
                if let (Some(without), Some(with)) = (without.get(kind), with.get(kind)) {
                    ratios.push(with / without);
                }
            }
            for (medians, answer) in medians.iter_mut().zip(&both) {
                medians.extend(answer.first().copied());
            }
        }
        let [wall, cpu] = &ratios;
        let [without, with] = &medians;
        println!(
            "\n{how} of 1 GiB in tensors of 32 MiB, {pause} s between them ({PAIRS} pairs, interleaved; budget: 3 %)"
        );
        println!(
            "  wall time {:.3} s without, {:.3} s with drop-behind, median ratio {:.3}",
            median(without),
            median(with),
            median(wall)
        );
        println!("  processor time median ratio {:.3}", median(cpu));
    }
}

fn main() {
    let (folder, state) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    let model = model();
    hot_paths(folder.path(), &model, state.path());
    loads(folder.path(), &model, state.path());
}
