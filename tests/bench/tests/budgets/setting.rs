//! Programs, drivers and slices whose costs are counted.

use gpuslice_bench::callgrind::Counted;
use gpuslice_bench::stub::compile;
use gpuslice_bench::target;
use gpuslice_config::ledger::{Ledger, Open};
use std::ffi::CString;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A file that is no model.
const ORDINARY: &str = "ordinary.txt";
/// A file that is named like a model, and large enough.
const MODEL: &str = "model.safetensors";

/// How a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Without the library.
    Bare,
    /// With the library.
    NoSlice,
    /// In a slice of a discrete card.
    Slice,
    /// In a slice that evicts model files.
    DropBehind,
}

impl fmt::Display for Way {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Way::Bare => "bare",
            Way::NoSlice => "no slice",
            Way::Slice => "in a slice",
            Way::DropBehind => "in a slice with drop-behind",
        })
    }
}

/// A folder with the programs and slices.
pub(crate) struct Setting {
    folder: TempDir,
}

impl Setting {
    /// Compiles the programs, and makes the slices.
    pub(crate) fn new() -> Setting {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a temporary folder");
        let setting = Setting { folder };
        let sim = target().join("sim");
        let link = [
            format!("-L{}", sim.display()),
            "-l:libcuda.so.1".to_owned(),
            "-l:libnvidia-ml.so.1".to_owned(),
        ];
        compile("calls.c", &setting.file("calls"), &link);
        compile("start.c", &setting.file("start"), &link);
        let no_words: [&str; 0] = [];
        compile("vulkan.c", &setting.file("vulkan"), &no_words);
        let driver = ["-shared", "-fPIC", "-Wl,-Bsymbolic"];
        let stub = [&["-w", "-DSTUB"], &driver[..]].concat();
        compile("vulkan.c", &setting.file("libGLX_nvidia.so.0"), &stub);
        let soname = ["-Wl,-soname,libnvidia-opencl.so.1"];
        let stub = [&driver[..], &soname].concat();
        compile(
            "stub_opencl.c",
            &setting.file("libnvidia-opencl.so.1"),
            &stub,
        );
        compile("opencl_pair.c", &setting.file("opencl_pair"), &["-ldl"]);
        std::fs::write(setting.file(ORDINARY), "text").expect("a file");
        std::fs::write(setting.file(MODEL), vec![0; 2 << 20]).expect("a file");
        for way in [Way::Slice, Way::DropBehind] {
            setting.make_slice(way);
        }
        setting
    }

    /// A file of the folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn make_slice(&self, way: Way) {
        let ledger = self.file(&format!("{way:?}.ledger"));
        let path = CString::new(ledger.as_os_str().as_bytes()).expect("a path");
        let (mode, devices) = (0o600, 1);
        Ledger::open(&path, Open::Create { mode, devices }).expect("a ledger");
        let page_cache = if way == Way::DropBehind {
            "drop-behind"
        } else {
            "keep"
        };
        let text = format!(
            r#"{{"version":1,"name":"bench","ledger":"{}","memory":21474836480,"page_cache":"{page_cache}"}}"#,
            ledger.display()
        );
        std::fs::write(self.file(&format!("{way:?}.json")), text).expect("a slice file");
    }

    /// Gives a program its environment: the simulated machine, the library and the slice.
    pub(crate) fn prepare(&self, way: Way, command: &mut Command) {
        let sim = target().join("sim");
        let libraries = format!("{}:{}", self.folder.path().display(), sim.display());
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("LD_LIBRARY_PATH", libraries)
            .env("GPUSLICE_SIM", "rtx3090");
        if way != Way::Bare {
            command.env("LD_PRELOAD", target().join("release/libgpuslice.so"));
        }
        if !matches!(way, Way::Bare | Way::NoSlice) {
            command.env("GPUSLICE_CONFIG", self.file(&format!("{way:?}.json")));
        }
    }

    /// Counts the instructions of a program of the folder.
    pub(crate) fn count(&self, way: Way, program: &str, words: &[&str]) -> Counted {
        Counted::run(&self.file(program), words, |command| {
            self.prepare(way, command);
        })
    }

    /// Counts the instructions of a program that makes calls of a kind.
    pub(crate) fn calls(&self, way: Way, kind: &str, calls: u64) -> Counted {
        let [file, model] = [ORDINARY, MODEL].map(|name| self.file(name).display().to_string());
        self.count(way, "calls", &[kind, &calls.to_string(), &file, &model])
    }

    /// Starts so many processes that hold memory of the slice of a discrete card.
    pub(crate) fn others(&self, count: usize) -> Vec<Holder> {
        let mut others = Vec::new();
        for _ in 0..count {
            let mut command = Command::new(self.file("calls"));
            command.args(["hold", "1"]).arg(self.file(ORDINARY));
            self.prepare(Way::Slice, &mut command);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().expect("a process starts");
            let mut line = String::new();
            let said = child.stdout.take().expect("a pipe");
            let _read = BufReader::new(said).read_line(&mut line);
            others.push(Holder(child));
            assert_eq!(line, "holds\n", "it holds memory");
        }
        others
    }
}

/// A process that holds memory until this is dropped.
pub(crate) struct Holder(Child);

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // The process ends when its input does.
        let _ = self.0.wait();
    }
}
