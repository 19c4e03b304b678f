//! Judges the rows: the distinct answers, their sources, and the answers that disagree.
//! Touches: its arguments.
//! Law: every two distinct answers that disagree are reported, with all functions and routes that
//! give them.

use super::answers::{AskedRow, Says, SetAside, agree, integrated, memory, set_aside};
use super::attribution::sentence;
use super::query::apis::{self, Width};
use super::query::row::Row;
use gpuslice_config::slice::{DeviceSlice, Slice, Total};
use gpuslice_config::words::units::Bytes;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// One answer, and the rows that give it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// The answer.
    pub(super) says: Says,
    /// The rows, as indexes into the list of answers.
    pub(super) rows: Vec<usize>,
}

/// The verdict on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeviceVerdict {
    /// Its uuid.
    pub(super) uuid: String,
    /// The distinct answers about its memory, the commonest first.
    pub(super) memory: Vec<Group>,
    /// The distinct answers about integration, the commonest first.
    pub(super) integrated: Vec<Group>,
    /// The memory that was subtracted from NVML's numbers before the comparison.
    pub(super) set_aside: Option<SetAside>,
}

/// The verdict on all devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// The verdict on each device.
    pub(super) devices: Vec<DeviceVerdict>,
    /// Every pair of answers that disagree, as sentences.
    pub(super) disagreements: Vec<String>,
}

/// The device name in a row if no device could be queried.
pub(super) const NO_DEVICE: &str = "*";

/// Checks whether an answer is compared with the others. Outside a slice, only CUDA's and NVML's are.
/// A route of theirs that crashes there is no fault of CUDA's or NVML's: any vendor's driver may do so.
pub(super) fn is_compared(row: &Row, slice: Option<&Slice>) -> bool {
    let is_limited = || {
        let uuid = row.device.parse().ok();
        match row.device.as_str() {
            NO_DEVICE => slice.is_some(),
            _ => uuid.and_then(|uuid| slice?.device(uuid)).is_some(),
        }
    };
    !row.is_of_other_api() || is_limited()
}

/// Judges the answers.
pub(super) fn judge(asked: &[AskedRow], slice: Option<&Slice>) -> Verdict {
    let mut verdict = Verdict::default();
    let mut uuids: Vec<&str> = Vec::new();
    let compared = asked.iter().filter(|asked| is_compared(&asked.row, slice));
    for uuid in compared.map(|asked| asked.row.device.as_str()) {
        if uuid != NO_DEVICE && !uuids.contains(&uuid) {
            uuids.push(uuid);
        }
    }
    for uuid in uuids {
        let budget = uuid.parse().ok().and_then(|uuid| slice?.device(uuid));
        let device = Device::new(uuid, asked, budget.is_some());
        let judged = device.judge();
        let said = &mut verdict.disagreements;
        said.extend(device.over_budget(&judged, budget));
        said.extend(device.pairs(&judged.memory, &device.memory));
        said.extend(device.pairs(&judged.integrated, &device.integrated));
        said.extend(device.silence(&judged));
        verdict.devices.push(judged);
    }
    for row in asked.iter().map(|asked| &asked.row) {
        if row.device == NO_DEVICE && is_compared(row, slice) {
            let why = row.error.as_deref().unwrap_or("no answer");
            let sentence = format!("{} by {}: {why}", row.api, row.route);
            verdict.disagreements.push(sentence);
        }
    }
    verdict
}

/// The answer of each row, by the row's index.
type Sayings = BTreeMap<usize, Says>;

struct Device<'a> {
    uuid: &'a str,
    asked: &'a [AskedRow],
    memory: Sayings,
    integrated: Sayings,
    set_aside: Option<SetAside>,
}

impl<'a> Device<'a> {
    fn new(uuid: &'a str, asked: &'a [AskedRow], limited: bool) -> Device<'a> {
        let rows = || {
            let rows = asked.iter().enumerate();
            rows.filter(|(_, asked)| {
                let is_compared = limited || !asked.row.is_of_other_api();
                asked.row.device == uuid && is_compared
            })
        };
        let set_aside = match limited {
            // In a slice every total is the slice's limit, so a reserve cannot explain a
            // difference.
            true => None,
            false => set_aside(rows().map(|(_, asked)| asked)),
        };
        let reserved = set_aside.map(|aside| aside.bytes);
        let reference = rows().find_map(|(_, asked)| asked.beside);
        let memory = |asked| memory(asked, reserved, reference);
        Device {
            uuid,
            asked,
            memory: rows()
                .filter_map(|(row, asked)| Some((row, memory(asked)?)))
                .collect(),
            integrated: rows()
                .filter_map(|(row, asked)| Some((row, integrated(asked)?)))
                .collect(),
            set_aside,
        }
    }

    fn judge(&self) -> DeviceVerdict {
        DeviceVerdict {
            uuid: self.uuid.to_owned(),
            memory: self.group(&self.memory),
            integrated: self.group(&self.integrated),
            set_aside: self.set_aside,
        }
    }

    /// Groups rows with equal answers. A row with less precision joins the first group that agrees
    /// with it.
    fn group(&self, says: &Sayings) -> Vec<Group> {
        let (whole, mut partial): (Vec<_>, Vec<_>) = says
            .iter()
            .partition(|(row, says)| self.tells_all(**row, says));
        let mut groups: Vec<Group> = Vec::new();
        for (row, said) in whole {
            let place = groups.iter().position(|group| group.says == *said);
            join(&mut groups, place, *row, said);
        }
        groups.sort_by_key(|group| Reverse(group.rows.len()));
        // Only the rows that formed a group represent it. A row that joined later may have so
        // little precision that it would agree with other groups too.
        let mut speakers: Vec<Vec<usize>> = groups.iter().map(|group| group.rows.clone()).collect();
        partial.sort_by_key(|(row, _)| !self.is_exact(**row));
        for (row, said) in partial {
            let fits = |other: &usize| !self.disagree(says, *row, *other);
            let kin = |other: &usize| self.is_nvml(*other) == self.is_nvml(*row);
            let found = |fits: &dyn Fn(&usize) -> bool| {
                speakers.iter().position(|rows| rows.iter().any(fits))
            };
            // An answer with little precision may agree with several groups. A group of its own
            // library is preferred.
            let place = found(&|other| fits(other) && kin(other)).or_else(|| found(&fits));
            if place.is_none() {
                speakers.push(vec![*row]);
            }
            join(&mut groups, place, *row, said);
        }
        let is_error = |group: &Group| matches!(group.says, Says::Error(_));
        groups.sort_by_key(|group| (Reverse(group.rows.len()), is_error(group)));
        groups
    }

    fn is_exact(&self, row: usize) -> bool {
        let asked = self.asked.get(row);
        asked.is_some_and(|asked| asked.width() == Width::Exact)
    }

    fn is_nvml(&self, row: usize) -> bool {
        let asked = self.asked.get(row);
        asked.is_some_and(|asked| apis::is_nvml(&asked.row.api))
    }

    fn tells_all(&self, row: usize, says: &Says) -> bool {
        let placed = || self.asked.get(row).is_some_and(AskedRow::is_placed);
        match says {
            Says::Memory { free, used, .. } => {
                self.is_exact(row) && free.is_some() && used.is_some() && placed()
            }
            Says::Integrated(_) | Says::Error(_) => true,
        }
    }

    fn disagree(&self, says: &Sayings, one: usize, other: usize) -> bool {
        let of = |row: usize| Some((self.asked.get(row)?, says.get(&row)?));
        match (of(one), of(other)) {
            (Some(one), Some(other)) => !agree(one, other),
            _ => false,
        }
    }

    /// Describes every two groups that disagree, in each case the less common answer first.
    fn pairs(&self, groups: &[Group], says: &Sayings) -> Vec<String> {
        let mut pairs = Vec::new();
        for (place, common) in groups.iter().enumerate() {
            for rare in groups.iter().skip(place.saturating_add(1)) {
                let disagrees = |one: &usize| {
                    let with = |other: &usize| self.disagree(says, *one, *other);
                    common.rows.iter().any(with)
                };
                if rare.rows.iter().any(disagrees) {
                    pairs.push(format!(
                        "{}: {}; {}",
                        self.uuid,
                        sentence(self.asked, groups, rare),
                        sentence(self.asked, groups, common),
                    ));
                }
            }
        }
        pairs
    }

    fn silence(&self, judged: &DeviceVerdict) -> Option<String> {
        let amounts = |group: &Group| matches!(group.says, Says::Memory { .. });
        (!judged.memory.iter().any(amounts))
            .then(|| format!("{}: no function reports the total memory", self.uuid))
    }

    /// Reports answers that exceed the slice, if all answers do. The slice then limits no program.
    fn over_budget(&self, judged: &DeviceVerdict, budget: Option<DeviceSlice>) -> Vec<String> {
        let Some(budget) = budget else {
            return Vec::new();
        };
        let shown = budget.memory.minus(budget.headroom).get();
        let largest = budget.maximum.unwrap_or(budget.memory);
        let largest = largest.at_least(budget.memory).minus(budget.headroom).get();
        let within = |says: &Says| match says {
            Says::Memory { total, free, .. } => {
                let total = budget.total == Total::Device || *total <= largest;
                total && free.is_none_or(|free| free <= shown)
            }
            Says::Integrated(_) | Says::Error(_) => false,
        };
        let amounts = |group: &&Group| matches!(group.says, Says::Memory { .. });
        if judged.memory.iter().any(|group| within(&group.says)) {
            return Vec::new();
        }
        let groups = judged.memory.iter().filter(amounts);
        groups
            .map(|group| {
                format!(
                    "{}: the slice is {}; {}",
                    self.uuid,
                    Bytes::new(shown),
                    sentence(self.asked, &judged.memory, group),
                )
            })
            .collect()
    }
}

fn join(groups: &mut Vec<Group>, place: Option<usize>, row: usize, says: &Says) {
    match place.and_then(|place| groups.get_mut(place)) {
        Some(group) => group.rows.push(row),
        None => groups.push(Group {
            says: says.clone(),
            rows: vec![row],
        }),
    }
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
