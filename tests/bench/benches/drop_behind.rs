//! What it costs a loader that its pages are dropped behind it, against one whose pages stay and one
//! whose pages are dropped at the end: from a disk that is throttled, so that it is not the disk
//! which is measured (budget: 3 % of the time and of the processor time).
//! Touches: the built shim and simulated driver, a file of 1 GiB that it writes to the build output
//! once, a cgroup of its own (root; blkio of cgroup v1 or io of v2).
#![expect(
    clippy::expect_used,
    reason = "a bench that cannot start says why and stops"
)]
#![expect(clippy::print_stdout, reason = "the result of a bench is its output")]

use gpuslice_bench::target;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROUNDS: usize = 7;
const WAYS: [&str; 3] = ["keep", "drop", "drop-behind"];
const MODEL: usize = 1 << 30;
/// What the disk gives, in bytes for a second: less than what the machines of the tests have.
const RATE: u64 = 512 << 20;

/// A cgroup whose processes read so much and no more.
struct Throttle {
    folder: PathBuf,
}

impl Throttle {
    /// For the disk that a file is on. None where this machine has no such thing.
    fn of(file: &Path) -> Option<Throttle> {
        let disk = disk(file.metadata().ok()?.dev())?;
        let root = Path::new("/sys/fs/cgroup");
        let name = format!("gpuslice-bench-{}", std::process::id());
        let v1 = (
            root.join("blkio"),
            "blkio.throttle.read_bps_device",
            format!("{disk} {RATE}"),
        );
        let v2 = (root.to_owned(), "io.max", format!("{disk} rbps={RATE}"));
        // Where io is on already this is refused, and does not matter.
        let _ = std::fs::write(root.join("cgroup.subtree_control"), "+io");
        [v1, v2].into_iter().find_map(|(root, limit, line)| {
            let throttle = Throttle {
                folder: root.join(&name),
            };
            std::fs::create_dir(&throttle.folder).ok()?;
            std::fs::write(throttle.folder.join(limit), line).ok()?;
            Some(throttle)
        })
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// The disk of a device, as cgroups name it: a partition has none of its own.
fn disk(device: u64) -> Option<String> {
    let (major, minor) = (libc::major(device), libc::minor(device));
    let place = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let whole = match place.join("partition").exists() {
        true => place.parent()?.to_owned(),
        false => place,
    };
    let said = std::fs::read_to_string(whole.join("dev")).ok()?;
    Some(said.trim().to_owned())
}

/// A loader: how long it took, and how long a processor worked for it.
fn load(program: &Path, words: &[&str], slice: &Path, state: &Path, at: &Throttle) -> [f64; 2] {
    let enter = "echo $$ >\"$0\"/cgroup.procs && exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", enter]).arg(&at.folder);
    command.arg("env").arg(format!(
        "LD_PRELOAD={}",
        target().join("release/libgpuslice.so").display()
    ));
    command.arg(program).args(words);
    command.env("LD_LIBRARY_PATH", target().join("sim"));
    command
        .env("GPUSLICE_SIM", "h200")
        .env("GPUSLICE_SIM_STATE", state)
        .env("GPUSLICE_CONFIG", slice);
    let output = command.output().expect("the loader runs");
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let after = |word: &str| {
        let rest = said.split_once(word).map_or("", |(_, rest)| rest);
        let number = rest.split_whitespace().next();
        number.and_then(|number| number.parse().ok())
    };
    let disk: f64 = after("disk ").expect("it says what it has read");
    assert!(disk > 0.9 * MODEL as f64, "it was not cold: {said}");
    [
        after("seconds ").expect("its time"),
        after("cpu ").expect("its processor time"),
    ]
}

fn compile(to: &Path) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new("cc");
    command.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"]);
    command.arg(to).arg(here.join("../clients/c/cuda_loader.c"));
    command.arg(format!("-L{}", target().join("sim").display()));
    let done = command.arg("-l:libcuda.so.1").status();
    assert!(done.is_ok_and(|status| status.success()), "cc compiles");
}

/// A file that is a model's by its name, of numbers that are not all the same.
fn model() -> PathBuf {
    let path = target().join("models/bench.bin");
    if path.metadata().map_or(0, |data| data.len()) != MODEL as u64 {
        std::fs::create_dir_all(target().join("models")).expect("a folder");
        let mut file = File::create(&path).expect("the model");
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

fn slice(folder: &Path, mode: &str) -> PathBuf {
    let file = folder.join(format!("{mode}.json"));
    let text = format!(r#"{{"version":1,"memory":8589934592,"page_cache":"{mode}"}}"#);
    std::fs::write(&file, text).expect("the slice is written");
    file
}

/// Drops the pages of the model, so that each load reads the disk.
fn make_cold(model: &Path) {
    let file = File::open(model).expect("the model");
    // SAFETY: takes no pointers.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

/// Uses as much memory as a load does, and gives it back: pages that a virtual machine has not used
/// for a while cost the host's time, which is counted as the program's, and one way uses more of
/// them than another. Small pages and large ones, as mappings and as reads fill the cache with.
fn warm_up() {
    let length = MODEL.saturating_add(MODEL / 2);
    let (prot, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    for advice in [libc::MADV_NOHUGEPAGE, libc::MADV_HUGEPAGE] {
        // SAFETY: a new mapping disturbs nobody.
        let place = unsafe { libc::mmap(std::ptr::null_mut(), length, prot, flags, -1, 0) };
        assert_ne!(place, libc::MAP_FAILED, "memory to be warmed up");
        // SAFETY: the mapping was made above.
        unsafe { libc::madvise(place, length, advice) };
        // SAFETY: as above; all of it may be written to.
        unsafe { std::ptr::write_bytes(place.cast::<u8>(), 1, length) };
        // SAFETY: as above, and nobody uses it any more.
        unsafe { libc::munmap(place, length) };
    }
}

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len().checked_div(2).unwrap_or(0);
    sorted.get(half).copied().unwrap_or(f64::NAN)
}

fn main() {
    let (folder, state) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    let model = model();
    let Some(throttle) = Throttle::of(&model) else {
        println!(
            "\ndrop-behind: not measured, a disk can be throttled by root on one that has a cgroup for it"
        );
        return;
    };
    let program = folder.path().join("cuda-loader");
    compile(&program);
    let slices = WAYS.map(|mode| slice(folder.path(), mode));
    let path = model.display().to_string();
    println!(
        "\n1 GiB in tensors of 32 MiB from a disk throttled to {} MiB/s: keep, drop, drop-behind \
         ({ROUNDS} rounds, interleaved; budget: 1.03)",
        RATE >> 20
    );
    for how in ["quiet-pass", "quiet-shuffled", "quiet-read"] {
        let mut times = vec![Vec::with_capacity(ROUNDS); WAYS.len()];
        for round in 0..ROUNDS {
            // Whoever is first has it no better.
            for turn in 0..WAYS.len() {
                let way = round
                    .wrapping_add(turn)
                    .checked_rem(WAYS.len())
                    .unwrap_or(0);
                let (Some(slice), Some(times)) = (slices.get(way), times.get_mut(way)) else {
                    continue;
                };
                make_cold(&model);
                warm_up();
                times.push(load(
                    &program,
                    &[how, &path],
                    slice,
                    state.path(),
                    &throttle,
                ));
            }
        }
        tell(how, "wall time", &times, |[wall, _]| *wall);
        tell(how, "processor time", &times, |[_, cpu]| *cpu);
    }
    make_cold(&model);
}

/// Medians, and of the last way the median ratio to each of the others.
fn tell(how: &str, what: &str, times: &[Vec<[f64; 2]>], part: fn(&[f64; 2]) -> f64) {
    let seconds: Vec<String> = times
        .iter()
        .map(|times| format!("{:.3}", median(times.iter().map(part))))
        .collect();
    let last = times.last().map_or(&[][..], Vec::as_slice);
    let ratios: Vec<String> = times
        .iter()
        .zip(WAYS)
        .take(WAYS.len().saturating_sub(1))
        .map(|(times, way)| {
            let ratios = last
                .iter()
                .zip(times)
                .map(|(last, one)| part(last) / part(one));
            format!("{:.3} of {way}", median(ratios))
        })
        .collect();
    println!(
        "  {how:<15} {what:<15} {} s, median ratio {}",
        seconds.join(", "),
        ratios.join(", ")
    );
}
