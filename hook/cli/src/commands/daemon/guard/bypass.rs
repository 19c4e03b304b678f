//! Finds processes that hold more device memory than their slice counts, and decides what is done
//! about them.
//! Touches: its arguments.
//! Law: a single figure proves nothing, because the driver's figures and the ledger's are of different
//! moments. A process is named after three samples in a row.

use crate::commands::status::containers::ContainerStatus;
use crate::commands::status::model::SliceStatus;
use crate::commands::status::model::shown_name;
use gpuslice_host::machine::pod::Pod;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A step against a process that holds memory beyond its slice. Each follows the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Step {
    /// It is named in the log and as an event.
    Warn,
    /// The processes of its container can open no GPU any more. Left out for runs.
    Deny,
    /// It is asked to end.
    Terminate,
    /// It is killed.
    Kill,
}

/// The samples in a row after which a process is named.
pub(super) const SAMPLES: u32 = 3;

/// A process, and the memory that its slice does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Suspect {
    /// The slice's name.
    pub(crate) slice: String,
    /// The slice's user; None for containers.
    pub(crate) user: Option<u32>,
    /// The first processes of the slice's containers; empty for a run.
    pub(crate) containers: Vec<i32>,
    pub(crate) pid: u32,
    /// The process's name.
    pub(crate) name: String,
    /// The device's uuid.
    pub(crate) device: String,
    /// The bytes that NVML reports and the slice does not count.
    pub(crate) bytes: u64,
    /// The slice's limit.
    pub(crate) limit: Option<u64>,
    /// Whether the process has loaded the library.
    pub(crate) has_library: bool,
    /// The slice's place in Kubernetes.
    pub(crate) pod: Option<Pod>,
}

/// Finds the suspects in a snapshot. `slack` is a difference that contexts and the driver's own
/// buffers explain.
pub(crate) fn suspects(slices: &[SliceStatus], slack: u64) -> Vec<Suspect> {
    let mut found = Vec::new();
    for slice in slices {
        for device in &slice.devices {
            let suspect = |pid, name: Option<&String>, bytes, has_library| Suspect {
                slice: shown_name(&slice.name, &slice.file),
                user: slice
                    .user
                    .filter(|_| slice.containers.is_empty())
                    .map(|user| user.0),
                containers: slice
                    .containers
                    .iter()
                    .filter_map(ContainerStatus::live_pid)
                    .collect(),
                pid,
                name: name.cloned().unwrap_or_else(|| "?".to_owned()),
                device: device.device.clone().unwrap_or_default(),
                bytes,
                limit: device.limit,
                has_library,
                pod: slice.pod.clone(),
            };
            let escaped = device.without_library.iter();
            let escaped = escaped.filter_map(|one| {
                let bytes = one.used.filter(|used| *used > slack)?;
                Some(suspect(one.pid, one.name.as_ref(), bytes, false))
            });
            found.extend(escaped);
            let counted = device.processes.iter();
            let counted = counted.filter_map(|one| {
                let bytes = one.driver_used?.checked_sub(one.used)?;
                (bytes > slack).then(|| suspect(one.pid, one.name.as_ref(), bytes, true))
            });
            found.extend(counted);
        }
    }
    found
}

#[derive(Clone, Copy, Debug)]
struct Case {
    samples: u32,
    /// The last step, and its time.
    taken: Option<(Step, Instant)>,
}

/// The processes that are under suspicion.
#[derive(Debug, Default)]
pub(crate) struct Cases {
    open: BTreeMap<(u32, String), Case>,
}

impl Cases {
    /// Adds the suspects of a sample. Returns those for which a step is due, up to the highest step
    /// that is allowed. `pause` is the time between two steps.
    pub(crate) fn sample(
        &mut self,
        found: Vec<Suspect>,
        now: Instant,
        highest: Step,
        pause: Duration,
    ) -> Vec<(Step, Suspect)> {
        let mut open = BTreeMap::new();
        let mut due = Vec::new();
        for suspect in found {
            let key = (suspect.pid, suspect.device.clone());
            // A process in a slice within a slice is found in both.
            if open.contains_key(&key) {
                continue;
            }
            let mut case = self.open.get(&key).copied().unwrap_or(Case {
                samples: 0,
                taken: None,
            });
            case.samples = case.samples.saturating_add(1);
            let next = match case.taken {
                None if case.samples >= SAMPLES => Some(Step::Warn),
                Some((last, at)) if now.saturating_duration_since(at) >= pause => match last {
                    Step::Warn if !suspect.containers.is_empty() => Some(Step::Deny),
                    Step::Warn | Step::Deny => Some(Step::Terminate),
                    Step::Terminate => Some(Step::Kill),
                    Step::Kill => None,
                },
                _ => None,
            };
            if let Some(step) = next.filter(|step| *step <= highest) {
                case.taken = Some((step, now));
                due.push((step, suspect));
            }
            open.insert(key, case);
        }
        // A process that is no longer there, or holds no more than its slice counts, starts anew.
        self.open = open;
        due
    }

    /// The memory that named processes of a sample hold beyond their slices, by device.
    pub(crate) fn beyond(&self, found: &[Suspect]) -> BTreeMap<String, u64> {
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        // A process in a slice within a slice is found in both.
        let mut counted = BTreeSet::new();
        for suspect in found {
            let key = (suspect.pid, suspect.device.clone());
            let case = self.open.get(&key);
            if case.is_some_and(|case| case.taken.is_some()) && counted.insert(key) {
                let sum = sums.entry(suspect.device.clone()).or_default();
                *sum = sum.saturating_add(suspect.bytes);
            }
        }
        sums
    }

    /// Whether another sample is due soon.
    pub(crate) fn is_waiting(&self, highest: Step) -> bool {
        let mut open = self.open.values();
        open.any(|case| case.taken.is_none_or(|(step, _)| step < highest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::status::model::{DeviceStatus, Escaped, ProcessStatus};

    const SLACK: u64 = 256 << 20;

    fn slice(escaped: Option<u64>, used: u64, driver: Option<u64>) -> SliceStatus {
        let process = ProcessStatus {
            pid: 5,
            name: Some("python3".to_owned()),
            used,
            driver_used: driver,
            ..ProcessStatus::default()
        };
        let escaped = Escaped {
            pid: 6,
            name: Some("static".to_owned()),
            used: escaped,
        };
        SliceStatus {
            name: "llama".to_owned(),
            devices: vec![DeviceStatus {
                device: Some("GPU-1".to_owned()),
                processes: vec![process],
                without_library: vec![escaped],
                ..DeviceStatus::default()
            }],
            ..SliceStatus::default()
        }
    }

    #[test]
    fn what_contexts_explain_is_not_suspected() {
        let found = suspects(
            &[slice(Some(100 << 20), 1 << 30, Some((1 << 30) + SLACK))],
            SLACK,
        );
        assert_eq!(found, []);
        assert_eq!(suspects(&[slice(None, 1 << 30, None)], SLACK), []);
        assert_eq!(suspects(&[slice(None, 2 << 30, Some(1 << 30))], SLACK), []);
    }

    #[test]
    fn the_memory_beyond_a_slice_is_that_of_named_processes() {
        let found = suspects(&[slice(Some(1 << 30), 0, Some(2 << 30))], SLACK);
        let mut cases = Cases::default();
        let mut sample = |found: &[Suspect]| {
            let (now, pause) = (Instant::now(), Duration::from_secs(10));
            cases.sample(found.to_vec(), now, Step::Warn, pause);
            cases.beyond(found)
        };
        assert!(sample(&found).is_empty() && sample(&found).is_empty());
        let expected = BTreeMap::from([("GPU-1".to_owned(), 3 << 30)]);
        assert_eq!(sample(&found), expected);
        assert!(sample(&[]).is_empty());
    }

    #[test]
    fn a_process_is_named_at_its_third_sample_in_a_row() {
        let sample = || suspects(&[slice(Some(1 << 30), 0, Some(2 << 30))], SLACK);
        let pids: Vec<(u32, u64, bool)> = sample()
            .iter()
            .map(|one| (one.pid, one.bytes, one.has_library))
            .collect();
        assert_eq!(pids, [(6, 1 << 30, false), (5, 2 << 30, true)]);
        let (mut cases, now) = (Cases::default(), Instant::now());
        let mut turn = |found| {
            cases
                .sample(found, now, Step::Kill, Duration::from_secs(10))
                .len()
        };
        assert_eq!((turn(sample()), turn(sample())), (0, 0));
        assert_eq!(turn(Vec::new()), 0);
        assert_eq!((turn(sample()), turn(sample()), turn(sample())), (0, 0, 2));
        assert_eq!(turn(sample()), 0);
    }

    #[test]
    fn a_container_loses_its_gpus_before_a_process_of_it_is_ended() {
        let mut slice = slice(Some(1 << 30), 0, None);
        slice.containers = vec![ContainerStatus {
            id: "ab".to_owned(),
            name: "ab".to_owned(),
            pid: 77,
            lives: true,
            no_slice: None,
            not_limited: None,
        }];
        let sample = || suspects(std::slice::from_ref(&slice), SLACK);
        assert_eq!(sample()[0].containers, [77]);
        let (mut cases, start) = (Cases::default(), Instant::now());
        let mut steps = Vec::new();
        for second in 0..60 {
            let now = start + Duration::from_secs(second);
            let due = cases.sample(sample(), now, Step::Kill, Duration::from_secs(10));
            steps.extend(due.into_iter().map(|(step, _)| step));
        }
        assert_eq!(steps, [Step::Warn, Step::Deny, Step::Terminate, Step::Kill]);
    }

    #[test]
    fn steps_follow_one_another_up_to_the_highest() {
        let sample = || suspects(&[slice(Some(1 << 30), 0, None)], SLACK);
        let start = Instant::now();
        let pause = Duration::from_secs(10);
        for (highest, expected) in [
            (Step::Warn, &[Step::Warn][..]),
            (Step::Terminate, &[Step::Warn, Step::Terminate]),
            (Step::Kill, &[Step::Warn, Step::Terminate, Step::Kill]),
        ] {
            let mut cases = Cases::default();
            let mut steps = Vec::new();
            for second in 0..60 {
                let now = start + Duration::from_secs(second);
                let due = cases.sample(sample(), now, highest, pause);
                steps.extend(due.into_iter().map(|(step, _)| (second, step)));
            }
            let words: Vec<Step> = steps.iter().map(|(_, step)| *step).collect();
            assert_eq!(words, expected);
            let seconds: Vec<u64> = steps.iter().map(|(second, _)| *second).collect();
            assert_eq!(seconds, [2, 12, 22][..expected.len()]);
            assert!(!cases.is_waiting(highest));
        }
    }
}
