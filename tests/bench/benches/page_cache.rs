//! What `gpuslice residency` and `gpuslice drop-cache` take for 10,000 files and one of 100 GiB.
//! Touches: the built gpuslice, a folder of its own in the build output (2 GiB of disk). Budgets:
//! residency 50 ms, drop 1 s, process start and output included.
#![expect(
    clippy::expect_used,
    reason = "a bench that cannot start says why and stops"
)]
#![expect(clippy::print_stdout, reason = "the result of a bench is its output")]

use gpuslice_bench::target;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const FILES: usize = 10_000;
const SMALL: usize = 100_000;
const LARGE: u64 = 100 << 30;
const WRITTEN: usize = 1 << 30;
const ROUNDS: usize = 5;

fn make(folder: &Path) {
    let bytes = vec![7; SMALL];
    for number in 0..FILES {
        fs::write(folder.join(format!("{number}.safetensors")), &bytes).expect("a file");
    }
    let large = File::create(folder.join("large.gguf")).expect("a file");
    large.set_len(LARGE).expect("a sparse file");
    let bytes = vec![9; WRITTEN];
    large
        .write_all_at(&bytes, LARGE / 2)
        .expect("a gibibyte in it");
    large.sync_all().expect("it is on the device");
}

/// Brings all of it into the page cache.
fn read(folder: &Path) {
    for number in 0..FILES {
        fs::read(folder.join(format!("{number}.safetensors"))).expect("it reads");
    }
    let large = File::open(folder.join("large.gguf")).expect("it opens");
    let mut bytes = vec![0; WRITTEN];
    large
        .read_exact_at(&mut bytes, LARGE / 2)
        .expect("it reads");
}

fn time(verb: &str, path: &Path) -> (Duration, bool) {
    let gpuslice = target().join("release/gpuslice");
    let start = Instant::now();
    let mut command = Command::new(gpuslice);
    let status = command.arg(verb).arg(path).stdout(Stdio::null()).status();
    (start.elapsed(), status.is_ok_and(|status| status.success()))
}

fn say(what: &str, budget: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let of = |at: usize| {
        times
            .get(at)
            .map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    };
    let (best, middle, worst) = (of(0), of(ROUNDS / 2), of(ROUNDS.saturating_sub(1)));
    println!(
        "  {what:<34} best {best:>7.1} ms  median {middle:>7.1}  worst {worst:>7.1}  budget {budget}"
    );
}

fn main() {
    let folder = tempfile::tempdir_in(target()).expect("a folder on a device");
    make(folder.path());
    // What was just written is written to the device by this.
    assert!(
        time("drop-cache", folder.path()).1,
        "not all can be dropped"
    );
    let large = folder.path().join("large.gguf");
    let (mut all, mut one, mut drops) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        read(folder.path());
        all.push(time("residency", folder.path()).0);
        one.push(time("residency", &large).0);
        let (took, gone) = time("drop-cache", folder.path());
        assert!(gone, "not all was dropped");
        drops.push(took);
    }
    println!("\nthe page cache of 10,000 files and one of 100 GiB, 2 GiB cached ({ROUNDS} rounds)");
    say("residency of all", "50 ms", &mut all);
    say("residency of the large one", "50 ms", &mut one);
    say("drop-cache of all", "1000 ms", &mut drops);
}
