//! Faults that are injected on purpose: `GPUSLICE_SIM_FAULTS`, a comma-separated list described in
//! the README.
//! Touches: nothing but its own counters.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The faults of one process.
#[derive(Debug, Default)]
pub struct Faults {
    oom: Vec<u64>,
    lost: Option<u64>,
    missing: Vec<String>,
    slow: Vec<(String, Duration)>,
    moves: u64,
    self_dlsym: bool,
    private_addresses: bool,
    other_pid: bool,
    opencl_uses_cuda: bool,
    opencl_icd2: bool,
    opencl_sealed: bool,
    unknown: Vec<String>,
    any: AtomicBool,
    calls: AtomicU64,
    allocations: AtomicU64,
    queries: AtomicU64,
}

/// The effect of the faults on a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The call proceeds.
    Proceed,
    /// The GPU fell off the bus.
    Lost,
}

impl Faults {
    /// Reads the list. Entries that are not understood are kept for [`Faults::unknown`].
    #[must_use]
    pub fn parse(list: &str) -> Self {
        let mut faults = Self::default();
        for item in list
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
        {
            if !faults.take(item) {
                faults.unknown.push(item.to_owned());
            }
        }
        faults
            .any
            .store(faults.lost.is_some() || !faults.slow.is_empty(), Relaxed);
        faults
    }

    fn take(&mut self, item: &str) -> bool {
        if item == "self-dlsym" {
            self.self_dlsym = true;
        } else if item == "procaddress-private" {
            self.private_addresses = true;
        } else if item == "other-pid" {
            self.other_pid = true;
        } else if item == "opencl-uses-cuda" {
            self.opencl_uses_cuda = true;
        } else if item == "opencl-icd2" {
            self.opencl_icd2 = true;
        } else if item == "opencl-sealed" {
            self.opencl_sealed = true;
        } else if let Some(name) = item.strip_prefix("missing:") {
            self.missing.push(name.to_owned());
        } else if let Some(Ok(n)) = item.strip_prefix("oom@").map(str::parse) {
            self.oom.push(n);
        } else if let Some(Ok(n)) = item.strip_prefix("lost@").map(str::parse) {
            self.lost = Some(n);
        } else if let Some(Ok(bytes)) = item.strip_prefix("free-moves=").map(crate::parse_bytes) {
            self.moves = bytes;
        } else if let Some((name, millis)) = item
            .strip_prefix("slow:")
            .and_then(|rest| rest.split_once('='))
            .and_then(|(name, time)| Some((name, time.strip_suffix("ms")?.parse().ok()?)))
        {
            self.slow
                .push((name.to_owned(), Duration::from_millis(millis)));
        } else {
            return false;
        }
        true
    }

    /// The entries that were not understood.
    #[must_use]
    pub fn unknown(&self) -> &[String] {
        &self.unknown
    }

    /// Called at every entry: waits if the call is slow, and returns whether the GPU is lost by
    /// now.
    #[must_use]
    #[inline]
    pub fn enter(&self, name: &str) -> Verdict {
        if self.any.load(Relaxed) {
            self.enter_slowly(name)
        } else {
            Verdict::Proceed
        }
    }

    #[cold]
    fn enter_slowly(&self, name: &str) -> Verdict {
        let call = self.calls.fetch_add(1, Relaxed) + 1;
        if let Some((_, time)) = self.slow.iter().find(|(slow, _)| slow == name) {
            // This sleep is the requested fault: a slow driver.
            std::thread::sleep(*time);
        }
        if self.lost.is_some_and(|n| call >= n) {
            Verdict::Lost
        } else {
            Verdict::Proceed
        }
    }

    /// Called at every allocation: must this one fail?
    #[must_use]
    pub fn out_of_memory(&self) -> bool {
        let call = self.allocations.fetch_add(1, Relaxed) + 1;
        self.oom.contains(&call)
    }

    /// The bytes that an unseen process holds at this query: 0 to 7 steps, in turn.
    #[must_use]
    #[inline]
    pub fn free_moves(&self) -> u64 {
        if self.moves == 0 {
            0
        } else {
            self.moves
                .saturating_mul(self.queries.fetch_add(1, Relaxed) % 8)
        }
    }

    /// Is the function missing from this driver?
    #[must_use]
    pub fn missing(&self, name: &str) -> bool {
        self.missing.iter().any(|missing| missing == name)
    }

    /// Does the driver look itself up through dlsym inside a query?
    #[must_use]
    #[inline]
    pub fn self_dlsym(&self) -> bool {
        self.self_dlsym
    }

    /// Does NVML know this process by another process id, and another process by this one's id?
    #[must_use]
    pub fn other_pid(&self) -> bool {
        self.other_pid
    }

    /// Does the OpenCL driver allocate by libcuda?
    #[must_use]
    pub fn opencl_uses_cuda(&self) -> bool {
        self.opencl_uses_cuda
    }

    /// Does the OpenCL driver hand out its functions by name, as version 2 of cl_khr_icd says?
    #[must_use]
    pub fn opencl_icd2(&self) -> bool {
        self.opencl_icd2
    }

    /// Does the kernel refuse to make the OpenCL driver's table writable?
    #[must_use]
    pub fn opencl_sealed(&self) -> bool {
        self.opencl_sealed
    }

    /// Does cuGetProcAddress hand out addresses that are not the exported ones?
    #[must_use]
    pub fn private_addresses(&self) -> bool {
        self.private_addresses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_strikes_when_it_was_asked_to() {
        let faults = Faults::parse("oom@2, lost@3,free-moves=64MiB,missing:cuMemGetInfo_v2,what");
        assert_eq!(
            [
                faults.out_of_memory(),
                faults.out_of_memory(),
                faults.out_of_memory()
            ],
            [false, true, false]
        );
        let verdicts = [
            faults.enter("a"),
            faults.enter("a"),
            faults.enter("a"),
            faults.enter("a"),
        ];
        assert_eq!(
            verdicts,
            [
                Verdict::Proceed,
                Verdict::Proceed,
                Verdict::Lost,
                Verdict::Lost
            ]
        );
        assert_eq!([faults.free_moves(), faults.free_moves()], [0, 64 << 20]);
        assert!(faults.missing("cuMemGetInfo_v2") && !faults.missing("cuMemGetInfo"));
        assert_eq!(faults.unknown(), ["what"]);
    }
}
