//! What it costs a loader that its pages are dropped, at the end or behind it, against one whose
//! pages stay; and how much of the model is in the page cache meanwhile.
//! Touches: the built library and simulated driver, a model in the build output, a cgroup.

use super::Setting;
use super::throttle::Throttle;
use crate::base::workshop::compile;
use crate::base::{child, place};
use crate::measure::effort::Plan;
use crate::measure::figure::{Measured, Unit};
use crate::measure::readings::Reading;
use crate::measure::rounds::interleave;
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What the disk gives in a second: less than the disks of test machines have.
const RATE: u64 = 512 << 20;
const LOADERS: [(&str, &str); 3] = [
    ("pass", "mapped, in order"),
    ("shuffled", "mapped, shuffled"),
    ("read", "read()"),
];

/// A model, and what its loaders need.
struct Bench {
    program: PathBuf,
    model: PathBuf,
    size: usize,
    state: PathBuf,
    throttle: Throttle,
    library: PathBuf,
    drivers: PathBuf,
}

impl Bench {
    /// Runs the loader. `slice`: none is a process without the library.
    fn load(&self, how: &str, slice: Option<&Path>) -> Result<String> {
        let enter = "echo $$ >\"$0\"/cgroup.procs && exec \"$@\"";
        let mut command = Command::new("sh");
        command
            .args(["-c", enter])
            .arg(self.throttle.folder())
            .arg("env")
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("LD_LIBRARY_PATH", &self.drivers)
            .env("GPUSLICE_SIM", "h200")
            .env("GPUSLICE_SIM_STATE", &self.state);
        if let Some(slice) = slice {
            command.arg(format!("LD_PRELOAD={}", self.library.display()));
            command.env("GPUSLICE_CONFIG", slice);
        }
        command.arg(&self.program).arg(how).arg(&self.model);
        child::output(&mut command, Duration::from_secs(120))
    }

    /// A load that takes its time, and one that watches the page cache.
    fn measure(&self, slice: Option<&Path>) -> Result<Vec<Reading>> {
        let mut readings = Vec::new();
        for (how, name) in LOADERS {
            make_cold(&self.model)?;
            warm_up(self.size)?;
            let said = self.load(&format!("quiet-{how}"), slice)?;
            let disk = after(&said, "disk ")?;
            ensure!(
                disk > 0.9 * self.size as f64,
                "the model was cached: {said}"
            );
            for (word, what) in [("seconds ", "time"), ("cpu ", "processor time")] {
                let nanoseconds = after(&said, word)? * 1e9;
                let figure = format!("{name}: {what}");
                readings.push(Reading::one(figure, Unit::Nanoseconds, nanoseconds));
            }
            make_cold(&self.model)?;
            let peak = after(&self.load(how, slice)?, "peak ")?;
            let figure = format!("{name}: most in the page cache");
            readings.push(Reading::one(figure, Unit::Mebibytes, peak));
        }
        Ok(readings)
    }
}

/// The number after a word.
fn after(said: &str, word: &str) -> Result<f64> {
    let rest = said.split_once(word).map_or("", |(_, rest)| rest);
    let number = rest.split_whitespace().next().unwrap_or_default();
    number
        .parse()
        .with_context(|| format!("no number after {word:?} in {said:?}"))
}

pub(crate) fn loaders(setting: &Setting) -> Result<Measured> {
    let shop = &setting.workshop;
    let target = place::target()?;
    let size = setting.effort.of(1 << 30, 256 << 20);
    let model = model(&target, size)?;
    let drivers = target.join("sim");
    let bench = Bench {
        program: shop.program("cuda-loader"),
        throttle: Throttle::of(&model, RATE)?,
        model,
        size,
        state: shop.fresh("h200")?,
        library: target.join("release/libgpuslice.so"),
        drivers,
    };
    let driver = bench.drivers.join("libcuda.so.1");
    let source = place::source().join("tests/clients/c/cuda_loader.c");
    compile(&source, &bench.program, &[driver])?;
    let mut slices = vec![None];
    let mut names = vec!["no library".to_owned()];
    for mode in ["keep", "drop", "drop-behind"] {
        let keys = format!(r#","memory":8589934592,"page_cache":"{mode}""#);
        slices.push(Some(shop.slice(mode, &keys)?));
        names.push(format!("gpuslice, {mode}"));
    }
    let plan = Plan {
        rounds: setting.effort.of(7, 1),
        limit: Duration::from_secs(240),
        compares: true,
    };
    let mut measured = interleave(&names, plan, |place| {
        let slice = slices.get(place).context("a mode")?;
        bench.measure(slice.as_deref())
    })?;
    measured.notes.push(format!(
        "a model of {} MiB from a disk throttled to {} MiB/s; the page cache is watched in a second load",
        size >> 20,
        RATE >> 20
    ));
    make_cold(&bench.model)?;
    Ok(measured)
}

/// A file that is a model's by its name, of numbers that are not all the same.
pub(super) fn model(target: &Path, size: usize) -> Result<PathBuf> {
    let path = target.join(format!("models/bench-{}.bin", size >> 20));
    if path.metadata().map_or(0, |data| data.len()) != size as u64 {
        std::fs::create_dir_all(target.join("models"))?;
        let mut file = File::create(&path)?;
        let part: Vec<u8> = (0u32..1 << 20)
            .flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes())
            .collect();
        for _ in 0..size.checked_div(part.len()).unwrap_or(0) {
            file.write_all(&part)?;
        }
        file.sync_all()?;
    }
    Ok(path)
}

/// Drops the pages of the model, so that each load reads the disk.
fn make_cold(model: &Path) -> Result<()> {
    let file = File::open(model)?;
    // SAFETY: takes no pointers.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    Ok(())
}

/// Uses as much memory as a load does, and gives it back. Pages that a virtual machine has not used
/// for a while cost the host's time, which is counted as the program's, and one mode uses more of
/// them than another. Small pages and large ones, as mappings and as reads fill the cache with.
fn warm_up(model: usize) -> Result<()> {
    let length = model.saturating_add(model / 2);
    let (prot, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    for advice in [libc::MADV_NOHUGEPAGE, libc::MADV_HUGEPAGE] {
        // SAFETY: a new mapping disturbs nobody.
        let place = unsafe { libc::mmap(std::ptr::null_mut(), length, prot, flags, -1, 0) };
        ensure!(place != libc::MAP_FAILED, "no memory to be warmed up");
        // SAFETY: the mapping was made above.
        unsafe { libc::madvise(place, length, advice) };
        // SAFETY: as above; all of it may be written to.
        unsafe { std::ptr::write_bytes(place.cast::<u8>(), 1, length) };
        // SAFETY: as above, and nobody uses it any more.
        unsafe { libc::munmap(place, length) };
    }
    Ok(())
}
