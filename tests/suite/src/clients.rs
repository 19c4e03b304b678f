//! The clients: which there are, how each is run, and which answer of a scenario it gives.
//! Touches: nothing until one is run.

use crate::compile::compile;
use crate::place;
use crate::run::Run;
use std::path::PathBuf;

/// What a client prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// The memory of every device that CUDA lists.
    Cuda,
    /// The same, without the lines that say a device's total: its library has no such call.
    CudaContexts,
    /// The memory of every device and MIG instance by NVML, both versions.
    Nvml,
    /// The same, by the second version alone.
    NvmlV2,
    /// What four threads with a context each see.
    Threads,
    /// What CUDA and NVML say of the first device in one program.
    Both,
    /// The table of `nvitop -1`.
    Nvitop,
    /// The lines of `gpustat`.
    Gpustat,
}

/// A client.
#[derive(Clone, Debug)]
pub struct Client {
    /// What people call it.
    pub name: &'static str,
    /// What it prints.
    pub says: Says,
    program: PathBuf,
    arguments: Vec<String>,
}

impl Client {
    /// The client, ready to be run.
    #[must_use]
    pub fn run(&self) -> Run {
        Run::new(&self.program).args(&self.arguments)
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
    let client = |name, says, program, arguments| Client {
        name,
        says,
        program,
        arguments,
    };
    let python = |name, says, script: &str| {
        let script = place::source("python").join(script).display().to_string();
        client(name, says, place::venv("python"), vec![script])
    };
    let c = |name, says, source: &str, words: &[&str]| {
        let program = name_of_program(name);
        client(
            name,
            says,
            compile("cc", source, &program, words),
            Vec::new(),
        )
    };
    vec![
        python("nvidia-ml-py", Says::Nvml, "nvidia_ml_py.py"),
        python(
            "cuda-bindings driver",
            Says::Cuda,
            "cuda_bindings_driver.py",
        ),
        python("cuda-bindings nvml", Says::NvmlV2, "cuda_bindings_nvml.py"),
        python("numba-cuda", Says::CudaContexts, "numba_cuda.py"),
        client(
            "nvitop",
            Says::Nvitop,
            place::venv("nvitop"),
            words(&["-1", "--ascii"]),
        ),
        client(
            "gpustat",
            Says::Gpustat,
            place::venv("gpustat"),
            words(&["--no-color", "--no-header"]),
        ),
        client("cudarc", Says::Cuda, cudarc.into(), Vec::new()),
        client(
            "nvml-wrapper",
            Says::NvmlV2,
            nvml_wrapper.into(),
            Vec::new(),
        ),
        c(
            "linked with -lcuda",
            Says::Cuda,
            "c/linked_cuda.c",
            &["-L{sim}", "-l:libcuda.so.1"],
        ),
        c(
            "linked with -lnvidia-ml",
            Says::Nvml,
            "c/linked_nvml.c",
            &["-L{sim}", "-l:libnvidia-ml.so.1"],
        ),
        c(
            "linked with -lcudart 11",
            Says::Cuda,
            "c/runtime.c",
            &["-DCUDART_MAJOR=11", "-L{sim}", "-l:libcudart.so.11.0"],
        ),
        c(
            "linked with -lcudart 12",
            Says::Cuda,
            "c/runtime.c",
            &["-DCUDART_MAJOR=12", "-L{sim}", "-l:libcudart.so.12"],
        ),
        c(
            "linked with -lcudart 13",
            Says::Cuda,
            "c/runtime.c",
            &["-DCUDART_MAJOR=13", "-L{sim}", "-l:libcudart.so.13"],
        ),
        c(
            "with static cudart",
            Says::Cuda,
            "c/runtime.c",
            &[
                "-DCUDART_MAJOR=13",
                "-L{sim}",
                "-l:libcudart_static.a",
                "-ldl",
                "-pthread",
            ],
        ),
        c(
            "four threads",
            Says::Threads,
            "c/threads.c",
            &["-pthread", "-L{sim}", "-l:libcuda.so.1"],
        ),
        client(
            "C++ with dlopen",
            Says::Both,
            compile("c++", "c/dlopened.cpp", "dlopened", &["-ldl"]),
            Vec::new(),
        ),
    ]
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.into()).collect()
}

/// `linked with -lcudart 12` is compiled as `linked-with-lcudart-12`.
fn name_of_program(name: &str) -> String {
    name.split([' ', '-'])
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join("-")
}
