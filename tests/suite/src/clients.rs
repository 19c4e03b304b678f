//! The list of clients, how each is run, and which answer of a scenario it gives.
//! Touches: nothing until a client is run.

use crate::compile::{compile, dlopened, linked};
use crate::place;
use crate::run::Run;
use std::path::PathBuf;

/// The output of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// The memory of every device that CUDA lists.
    Cuda,
    /// The same memory as CUDA 11 reports it, which names the card of a MIG instance and not the
    /// instance.
    OldCuda,
    /// The same as `Cuda`, without the lines of a device's total, for which the client's library
    /// has no call.
    CudaContexts,
    /// The memory of every device and MIG instance by NVML, both versions.
    Nvml,
    /// The same as `Nvml`, by the second version alone.
    NvmlV2,
    /// The memory that four threads see, with a context each.
    Threads,
    /// The memory of the first device by CUDA and by NVML, in one program.
    Both,
    /// The table of `nvitop -1`.
    Nvitop,
    /// The lines of `gpustat`.
    Gpustat,
}

/// A client.
#[derive(Clone, Debug)]
pub struct Client {
    /// The client's usual name.
    pub name: &'static str,
    /// The kind of its output.
    pub says: Says,
    /// The oldest driver on which it runs: 1000 * major + 10 * minor of CUDA.
    pub needs: u32,
    program: PathBuf,
    arguments: Vec<String>,
}

impl Client {
    /// The client, ready to be run.
    #[must_use]
    pub fn run(&self) -> Run {
        self.prepare(Run::new(&self.program))
    }

    /// The client, to be run by another command, such as `gpuslice run … --`.
    #[must_use]
    pub fn run_by(&self, command: Run) -> Run {
        self.prepare(command.arg(&self.program))
    }

    fn prepare(&self, run: Run) -> Run {
        // numba-cuda warns on standard error that Orin's driver is a year older than it expects.
        let quiet = "CUDA_PYTHON_DISABLE_MAJOR_VERSION_WARNING";
        run.args(&self.arguments).env(quiet, "1")
    }
}

/// Every client. The two in Rust are binaries of this package, whose paths only a test knows.
#[macro_export]
macro_rules! every_client {
    () => {
        $crate::clients::every(
            env!("CARGO_BIN_EXE_client-cudarc"),
            env!("CARGO_BIN_EXE_client-nvml-wrapper"),
        )
    };
}

/// Every client, given the two in Rust; see [`every_client`].
#[must_use]
pub fn every(cudarc: &str, nvml_wrapper: &str) -> Vec<Client> {
    let mut clients = python();
    clients.push(client("cudarc", Says::Cuda, cudarc.into()));
    clients.push(client("nvml-wrapper", Says::NvmlV2, nvml_wrapper.into()));
    clients.extend(compiled());
    clients
}

fn client(name: &'static str, says: Says, program: PathBuf) -> Client {
    Client {
        name,
        says,
        needs: 0,
        program,
        arguments: Vec::new(),
    }
}

fn python() -> Vec<Client> {
    let script = |name, says, file: &str| Client {
        arguments: vec![place::source("python").join(file).display().to_string()],
        ..client(name, says, place::venv("python"))
    };
    let command = |name, says, arguments: &[&str]| Client {
        arguments: arguments.iter().map(|&word| word.into()).collect(),
        ..client(name, says, place::venv(name))
    };
    vec![
        script("nvidia-ml-py", Says::Nvml, "nvidia_ml_py.py"),
        script("cuda-bindings", Says::Cuda, "cuda_bindings_driver.py"),
        script("cuda-bindings nvml", Says::NvmlV2, "cuda_bindings_nvml.py"),
        script("numba-cuda", Says::CudaContexts, "numba_memory.py"),
        command("nvitop", Says::Nvitop, &["-1", "--ascii"]),
        command("gpustat", Says::Gpustat, &["--no-color", "--no-header"]),
    ]
}

fn compiled() -> Vec<Client> {
    let linked = |source, name, says, library| client(name, says, linked(source, library));
    let runtime = |major: u32, name, says, library: &str| {
        let (define, library) = (format!("-DCUDART_MAJOR={major}"), format!("-l:{library}"));
        let words = [&define, "-L{sim}", &library, "-ldl", "-pthread"];
        let program = name_of_program(name);
        Client {
            needs: major * 1000,
            ..client(name, says, compile("cc", "c/runtime.c", &program, &words))
        }
    };
    vec![
        linked(
            "linked_cuda",
            "linked with -lcuda",
            Says::Cuda,
            "libcuda.so.1",
        ),
        linked(
            "linked_nvml",
            "linked with -lnvidia-ml",
            Says::Nvml,
            "libnvidia-ml.so.1",
        ),
        runtime(
            11,
            "linked with -lcudart 11",
            Says::OldCuda,
            "libcudart.so.11.0",
        ),
        runtime(12, "linked with -lcudart 12", Says::Cuda, "libcudart.so.12"),
        runtime(13, "linked with -lcudart 13", Says::Cuda, "libcudart.so.13"),
        runtime(
            13,
            "with static cudart 13",
            Says::Cuda,
            "libcudart_static.a",
        ),
        linked("threads", "four threads", Says::Threads, "libcuda.so.1"),
        client("C++ with dlopen", Says::Both, dlopened()),
    ]
}

/// `linked with -lcudart 12` is compiled as `linked-with-lcudart-12`.
fn name_of_program(name: &str) -> String {
    name.split([' ', '-'])
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join("-")
}
