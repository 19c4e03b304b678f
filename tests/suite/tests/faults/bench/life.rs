//! Programs that live once in a slice and check its answers (`tests/clients/c/life.h`).
//! Touches: a C compiler.

use super::super::row::{Fault, Outcome, right};
use super::trace::Traced;
use gpuslice_suite::compile;
use gpuslice_suite::run::Answer;
use std::path::PathBuf;

/// The exit statuses of such a program.
pub(crate) const LIVED: &str = "exit 0";
pub(crate) const REFUSED: &str = "exit 3";

/// The system call by which such a program tells a tracer that its `main` has begun: no program and
/// no library makes it by chance.
pub(crate) const MARK: i64 = libc::SYS_getpgid;

/// A program of `tests/clients/c` that includes `life.h`.
pub(crate) fn program(name: &str) -> PathBuf {
    let libraries = [
        "-pthread",
        "-L{sim}",
        "-l:libcuda.so.1",
        "-l:libnvidia-ml.so.1",
    ];
    compile::compile(
        "cc",
        &format!("c/{name}.c"),
        &name.replace('_', "-"),
        &libraries,
    )
}

/// How a program's answers are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judge {
    /// Every call has to succeed.
    Strictly,
    /// Calls may fail, because the fault is in their way. No answer may be wrong, and no
    /// memory may be granted beyond the limit.
    Safely,
}

impl Judge {
    /// The program's first argument.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Judge::Strictly => "strictly",
            Judge::Safely => "safely",
        }
    }

    /// Judges how a program has ended.
    pub(crate) fn end(self, end: &str, said: &str) -> Outcome {
        // The simulated driver has an allocator that aborts; the library has none.
        let is_drivers_abort = end == "signal 6" && said.contains("memory allocation of");
        let may_fail = end == REFUSED || is_drivers_abort;
        let is_well = end == LIVED || (self == Judge::Safely && may_fail);
        right(is_well, || {
            format!("the program ends with {end}: {}", said.trim())
        })
    }

    /// Judges a program that was traced.
    pub(crate) fn traced(self, traced: &Traced) -> Outcome {
        let said = format!("{}{}", traced.stdout, traced.stderr);
        match traced.is_late {
            true => Err(Fault::Hang(format!(
                "the program does not end: {}",
                said.trim()
            ))),
            false => self.end(&traced.end, &said),
        }
    }

    /// Judges a program that was run.
    pub(crate) fn answer(self, answer: &Answer) -> Outcome {
        self.end(&answer.end, &format!("{}{}", answer.stdout, answer.stderr))
    }
}
