//! Real libcudarts from PyPI, which look up their driver: the entry points that they request, and
//! that those which report memory are the library's.
//! Touches: libcudart 11.8, 12.9 and 13.5. After these look-ups they stop with error 500: they need
//! a driver's private tables, and no private table is simulated.

use gpuslice_suite::compile::{c, compile};
use gpuslice_suite::place::{real_cudart, real_static_cudart, workspace};
use gpuslice_suite::run::{Machine, Run};
use gpuslice_suite::slice::{GIB, of_all_devices};
use std::path::Path;

/// The output of `cudaGetDeviceCount` and `cudaMemGetInfo` where the private tables are missing.
const STOPPED: &str = "cudaGetDeviceCount 500\ncudaMemGetInfo 500\n";

/// A program's look-ups, as the shim's log reports them.
struct Lookups {
    /// Driver functions looked up by `dlsym`.
    by_dlsym: Vec<String>,
    /// Look-ups by `cuGetProcAddress` that got the shim's function.
    replaced: Vec<String>,
    /// Look-ups by `cuGetProcAddress` that kept the driver's answer.
    passed: Vec<String>,
}

/// The names in `cuGetProcAddress` look-ups that the shim answers.
fn table() -> Vec<String> {
    let page = workspace().join("shim/SYMBOLS.md");
    let page = std::fs::read_to_string(page).unwrap();
    let names = page.lines().filter_map(|line| {
        let (name, since) = line.split('|').nth(2)?.trim().split_once(" from ")?;
        let _version: u32 = since.split(' ').next()?.parse().ok()?;
        Some(name.trim_matches('`').to_owned())
    });
    names.collect()
}

impl Lookups {
    /// Asserts that the look-ups in `first` come first, that those which report memory are among
    /// the rest, and that exactly the names of the shim's table got the shim's function.
    fn are_ours(&self, first: &[&str]) {
        assert_eq!(self.replaced.get(..first.len()).unwrap_or_default(), first);
        for reporter in REPORTERS {
            assert!(
                self.replaced.iter().any(|said| said == reporter),
                "{reporter}"
            );
        }
        let name = |said: &str| said.split('@').next().unwrap_or_default().to_owned();
        let table = table();
        for said in &self.replaced {
            assert!(table.contains(&name(said)), "{said} is not in the table");
        }
        for said in &self.passed {
            assert!(
                !table.contains(&name(said)),
                "{said} is in the table, and got the driver's function"
            );
        }
        assert!(self.passed.len() > 300, "{}", self.passed.len());
    }
}

fn read_log(file: &Path) -> Lookups {
    let log = std::fs::read_to_string(file).unwrap();
    let after = |word: &str| -> Vec<String> {
        log.lines()
            .filter_map(|line| line.split_once(word))
            .map(|(_, said)| said.into())
            .collect()
    };
    let asked = after(" DEBUG procaddress: ");
    let by_dlsym = after(" DEBUG resolve: ");
    Lookups {
        by_dlsym: by_dlsym
            .into_iter()
            .filter(|said| !said.starts_with("cuda"))
            .collect(),
        replaced: asked
            .iter()
            .filter_map(|said| said.strip_suffix(": replaced"))
            .map(str::to_owned)
            .collect(),
        passed: asked
            .iter()
            .filter_map(|said| said.strip_suffix(": passed"))
            .map(str::to_owned)
            .collect(),
    }
}

/// Runs a program bare and in a slice, and returns its look-ups in the slice.
fn lookups(program: impl Fn() -> Run, expected: (&str, &str, &str)) -> Lookups {
    let machine = Machine::new("rtx3090");
    let bare = machine.place(program()).answer();
    assert_eq!(
        (&*bare.stdout, &*bare.end),
        (expected.0, expected.2),
        "{bare:?}"
    );
    assert!(bare.stderr.ends_with(expected.1), "{bare:?}");

    let machine = Machine::new("rtx3090");
    let log = machine.folder().join("log");
    let file = of_all_devices(machine.folder(), 8 * GIB, &machine.state());
    let run = machine.place(program()).with_shim().slice(&file);
    let run = run
        .env("GPUSLICE_LOG", "debug")
        .env("GPUSLICE_LOG_FILE", &log);
    assert_eq!(run.answer(), bare);
    read_log(&log)
}

fn of_real_libcudart(version: &str) -> Lookups {
    let (program, library) = (c("load_runtime"), real_cudart(version));
    lookups(|| Run::new(&program).arg(&library), (STOPPED, "", "exit 0"))
}

/// All functions that report memory, under the names and versions that all three libcudarts
/// request.
const REPORTERS: [&str; 3] = [
    "cuDeviceTotalMem@3020 flags 0",
    "cuDeviceGetAttribute@2000 flags 0",
    "cuMemGetInfo@3020 flags 0",
];

#[test]
fn libcudart_11_8_is_given_our_reporters() {
    let asked = of_real_libcudart("11.8");
    assert_eq!(asked.by_dlsym, ["cuGetProcAddress by dlsym"]);
    // libcudart asks cuGetProcAddress for cuGetProcAddress itself, and then asks the found one
    // again.
    let first = ["cuGetProcAddress@11030 flags 0"; 2];
    asked.are_ours(&first);
}

#[test]
fn libcudart_12_9_is_given_our_reporters() {
    let asked = of_real_libcudart("12.9");
    assert_eq!(asked.by_dlsym, ["cuGetProcAddress_v2 by dlsym"]);
    let first = [
        "cuGetProcAddress@11030 flags 0",
        "cuGetProcAddress@12000 flags 0",
    ];
    asked.are_ours(&first);
}

#[test]
fn libcudart_13_5_is_given_our_reporters() {
    let asked = of_real_libcudart("13.5");
    assert_eq!(asked.by_dlsym, ["cuGetProcAddress_v2 by dlsym"]);
    let first = [
        "cuGetProcAddress@11030 flags 0",
        "cuGetProcAddress@12000 flags 0",
    ];
    asked.are_ours(&first);
}

#[test]
fn real_static_cudart_is_given_our_reporters() {
    for (version, major) in [("12.9", "-DCUDART_MAJOR=12"), ("13.5", "-DCUDART_MAJOR=13")] {
        let archives = real_static_cudart(version);
        let archives: Vec<String> = archives
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let mut words = vec![major];
        words.extend(archives.iter().map(String::as_str));
        words.extend(["-ldl", "-lrt", "-pthread", "-lstdc++"]);
        let name = format!("real-static-cudart-{version}");
        let program = compile("cc", "c/runtime.c", &name, &words);
        let stopped = ("", "cudaGetDeviceCount(&count): 500\n", "exit 1");
        let asked = lookups(|| Run::new(&program), stopped);
        assert_eq!(asked.by_dlsym, ["cuGetProcAddress_v2 by dlsym"]);
        let first = [
            "cuGetProcAddress@11030 flags 0",
            "cuGetProcAddress@12000 flags 0",
        ];
        asked.are_ours(&first);
    }
}
