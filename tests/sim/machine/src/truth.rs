//! The true state of the machine, for tests and for the tool. Tests compare every number that a
//! shim reports with it.
//! Touches: the mapped state.

use crate::charge::Kind;
use crate::map::Machine;
use crate::meminfo::HostMemory;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// The whole machine at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Truth {
    /// The scenario's name.
    pub scenario: String,
    /// Every memory: the GPUs, with MIG instances in place of a GPU that has them.
    pub devices: Vec<DeviceTruth>,
    /// The host's memory on unified-memory machines.
    pub host: Option<HostMemory>,
    /// Calls, by any process so far, that named a pool which had been destroyed. Handles are
    /// pointers: a real driver may crash in such a call.
    pub misuses: u64,
}

/// One memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceTruth {
    /// `GPU-...` or `MIG-...`
    pub uuid: String,
    /// The GPU's name.
    pub name: String,
    /// CUDA's total.
    pub total: u64,
    /// NVML's total.
    pub nvml_total: u64,
    /// The bytes that all processes hold.
    pub used: u64,
    /// The memory that CUDA reports as free.
    pub free: u64,
    /// The most that one more allocation could get.
    pub allocatable: u64,
    /// The processes, with the bytes that each holds.
    pub processes: Vec<ProcessTruth>,
}

/// One process on one memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessTruth {
    /// The process.
    pub pid: u32,
    /// The number of its contexts.
    pub contexts: u64,
    /// All bytes that it holds.
    pub used: u64,
    /// The bytes of each [`Kind`], in the order of its numbers; shared segments are only in `used`.
    pub kinds: [u64; 7],
}

impl ProcessTruth {
    /// The bytes of one kind that it holds.
    #[must_use]
    pub fn kind(&self, kind: Kind) -> u64 {
        self.kinds[kind as usize]
    }
}

impl Machine {
    /// The true state, after dead processes were reaped.
    #[must_use]
    pub fn truth(&self) -> Truth {
        self.locked(|| {
            self.reap();
            Truth {
                scenario: self.shared.scenario.get(),
                devices: (0..self.domains.len())
                    .map(|domain| self.device_truth(domain))
                    .collect(),
                host: self.host_memory(),
                misuses: self.shared.misuses.load(Relaxed),
            }
        })
    }

    /// Counts a call that named a destroyed object.
    pub fn misused(&self) {
        self.shared.misuses.fetch_add(1, Relaxed);
    }

    fn device_truth(&self, domain: usize) -> DeviceTruth {
        let gpu = self.gpu(domain);
        let uuid = self.domains[domain]
            .mig
            .map_or(&gpu.uuid, |mig| &gpu.mig[mig].uuid);
        let used = self.used_now(domain);
        let total = self.cuda_total(domain);
        let free = match self.host_memory() {
            Some(host) if gpu.integrated => host.mem_free,
            _ => total.saturating_sub(gpu.baseline + used),
        };
        DeviceTruth {
            uuid: uuid.clone(),
            name: gpu.name.clone(),
            total,
            nvml_total: self.nvml_total(domain),
            used,
            free,
            allocatable: self.allocatable(domain),
            processes: self.process_truths(domain),
        }
    }

    fn process_truths(&self, domain: usize) -> Vec<ProcessTruth> {
        let slots = self.shared.slots[..self.slots_high()].iter().enumerate();
        slots
            .filter(|(_, slot)| slot.image.load(Acquire) != 0)
            .map(|(i, slot)| ProcessTruth {
                pid: u32::try_from(slot.pid.load(Relaxed)).unwrap_or(0),
                contexts: slot.contexts[domain].load(Relaxed),
                used: self.slot_use(i, domain),
                kinds: std::array::from_fn(|kind| slot.kinds[domain][kind].load(Relaxed)),
            })
            .filter(|it| it.used != 0 || it.contexts != 0)
            .collect()
    }
}
