//! The steps of a change.
//! Touches: the slice's ledger, its record, the locks of admission.
//! The driver's limit, if it holds one, is raised before the ledger's and lowered after it.
//! Law: the command can be killed at any step. A larger limit is recorded before it is in force, and
//! a smaller one afterwards, so the records never promise less than the ledger grants.

use super::driver::DriverFence;
use super::ledger::{SliceLedger, held};
use super::target::Target;
use crate::base::streams::tell;
use crate::base::text::printable;
use crate::commands::status::model::SliceStatus;
use crate::commands::status::users::{User, with_rights_of};
use crate::runs::resizing::{Admission, Size};
use crate::runs::run_dir;
use gpuslice_config::ledger::{Device, LIMIT_UNIT, Record, SetLimit};
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::slices::admission::AdmissionError;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Reasons why a limit was not changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResizeError {
    #[error("{0} has less: give at most {most}MiB", most = .1.get() >> 20)]
    LargerThanCard(String, Bytes),
    #[error("no room: {0}")]
    NoRoom(AdmissionError),
    #[error("the slice holds {held} on {shown}, more than {wanted}:{holders}{hint}")]
    Held {
        shown: String,
        held: Bytes,
        wanted: Bytes,
        holders: String,
        hint: String,
    },
    #[error("cannot record the new limit, so it stays: {0}")]
    Record(std::io::Error),
    #[error("the driver does not raise the limit that it holds, so it stays: {0:#}")]
    Driver(anyhow::Error),
    #[error("{0:#}")]
    Ledger(anyhow::Error),
}

impl ResizeError {
    /// Whether the size is impossible at this moment, and not gpuslice at fault.
    pub(super) fn is_for_want_of_room(&self) -> bool {
        !matches!(
            self,
            ResizeError::Record(_) | ResizeError::Driver(_) | ResizeError::Ledger(_)
        )
    }
}

/// One device of the change.
pub(super) struct Part {
    pub(super) target: Target,
    device: Device,
    /// The ledger's limit before this command.
    former: SetLimit,
}

impl Part {
    /// The limit before this command.
    pub(super) fn former(&self) -> Bytes {
        self.former.bytes().unwrap_or(self.target.written)
    }

    fn uuid(&self) -> DeviceUuid {
        self.target.card.uuid
    }

    fn grows(&self) -> bool {
        self.target.card.asked > self.former()
    }
}

/// A change of limits.
pub(super) struct Change {
    ledger: SliceLedger,
    pub(super) parts: Vec<Part>,
    driver: DriverFence,
    /// What names the slice in the records.
    user: User,
    record: Option<PathBuf>,
    simulated: Option<PathBuf>,
    /// The names of the slice's processes, by their slots in the ledger.
    names: Vec<(usize, String)>,
}

impl Change {
    /// Opens the ledger, and reads the limits in force.
    pub(super) fn begin(slice: &SliceStatus, targets: Vec<Target>) -> anyhow::Result<Change> {
        let user = slice.user.unwrap_or_else(User::own);
        let ledger = SliceLedger::open(slice.ledger.as_deref().unwrap_or(&slice.file), user)?;
        let parts = targets.into_iter().map(|target| {
            let device = ledger.device(target.card.uuid)?;
            Ok(Part {
                former: ledger.limit(device),
                target,
                device,
            })
        });
        let parts = parts.collect::<anyhow::Result<Vec<Part>>>()?;
        // Only a record in the folders of admission counts, wherever this link leads.
        let private = run_dir::private_folder(&slice.file);
        let link = private.map(|private| private.join(run_dir::TENANT));
        let record = link.and_then(|link| with_rights_of(user, || std::fs::read_link(link)).ok());
        let processes = slice.devices.iter().flat_map(|device| &device.processes);
        let names = processes.map(|process| {
            let name = process.name.as_deref().map_or("?".into(), printable);
            (process.slot, format!("{name} (pid {})", process.pid))
        });
        Ok(Change {
            ledger,
            parts,
            driver: DriverFence::of(slice, user),
            user,
            record,
            simulated: slice.machine.state(),
            names: names.collect(),
        })
    }

    /// Changes the limits. Waits for memory to be given back.
    pub(super) fn carry_out(
        &mut self,
        wait: Duration,
        interval: Duration,
    ) -> Result<(), ResizeError> {
        let start = Instant::now();
        for part in &self.parts {
            let card = &part.target.card;
            if card.total > Bytes::ZERO && card.asked > card.total {
                return Err(ResizeError::LargerThanCard(card.shown.clone(), card.total));
            }
        }
        if wait > Duration::ZERO {
            // What cannot be admitted anyway is not waited for.
            self.admit(&self.admission())?;
        }
        loop {
            match self.at_once() {
                Err(ResizeError::Held { .. }) if start.elapsed() < wait => {
                    self.come_down()?;
                    std::thread::sleep(interval);
                }
                Err(ResizeError::Held {
                    shown,
                    held,
                    wanted,
                    holders,
                    ..
                }) if wait > Duration::ZERO => {
                    self.come_down()?;
                    let hint = "\nthe time is over: the limit stays at what is held".to_owned();
                    return Err(ResizeError::Held {
                        shown,
                        held,
                        wanted,
                        holders,
                        hint,
                    });
                }
                done => return done,
            }
        }
    }

    fn admission(&self) -> Admission {
        Admission::begin(
            self.simulated.as_deref(),
            self.record.as_deref(),
            self.user.0,
        )
    }

    fn admit(&self, admission: &Admission) -> Result<(), ResizeError> {
        for part in self.parts.iter().filter(|part| part.grows()) {
            admission
                .admit(&part.target.card)
                .map_err(ResizeError::NoRoom)?;
        }
        Ok(())
    }

    /// Changes all limits, or none.
    fn at_once(&self) -> Result<(), ResizeError> {
        let mut admission = self.admission();
        self.admit(&admission)?;
        let wanted = |part: &Part| part.target.wanted;
        // A limit that is lowered and restored would refuse memory in between.
        self.hold_no_more(&self.records()?)?;
        let smaller: Vec<&Part> = self.parts.iter().filter(|part| !part.grows()).collect();
        let before: Vec<SetLimit> = smaller
            .iter()
            .map(|part| self.ledger.limit(part.device))
            .collect();
        for part in &smaller {
            self.ledger.set(part.device, wanted(part));
        }
        let restore = || {
            for (part, before) in smaller.iter().zip(&before) {
                self.ledger.set(part.device, *before);
            }
        };
        // Memory may have been granted under the former limits before these were in force.
        let lowered = self
            .records()
            .and_then(|records| self.hold_no_more(&records));
        lowered.inspect_err(|_| restore())?;
        let sizes: Vec<(DeviceUuid, Size)> = self
            .parts
            .iter()
            .map(|part| {
                let asked = part.target.card.asked;
                match part.grows() {
                    true => (part.uuid(), Size::Larger(asked)),
                    false => (part.uuid(), Size::Smaller(asked)),
                }
            })
            .collect();
        let recorded = self.record(&mut admission, &sizes);
        recorded.inspect_err(|_| restore())?;
        let larger = || self.parts.iter().filter(|part| part.grows());
        if let Err(error) = self.driver_follows(larger()) {
            restore();
            let former = larger().map(|part| (part.uuid(), Size::Smaller(part.former())));
            let _ = self.record(&mut admission, &former.collect::<Vec<_>>());
            return Err(ResizeError::Driver(error));
        }
        for part in larger() {
            self.ledger.set(part.device, wanted(part));
        }
        // What the driver does not lower is held by the library alone.
        if let Err(error) = self.driver_follows(smaller.iter().copied()) {
            tell(&format!(
                "warning: the driver's limit stays higher: {error:#}"
            ));
        }
        Ok(())
    }

    /// Sets the driver's limits to those that are asked for.
    fn driver_follows<'a>(&self, parts: impl Iterator<Item = &'a Part>) -> anyhow::Result<()> {
        let limits: Vec<(DeviceUuid, Bytes)> = parts
            .map(|part| (part.uuid(), part.target.card.asked))
            .collect();
        self.driver.set(&limits)
    }

    /// Lowers the limits as far as what is held allows.
    fn come_down(&self) -> Result<(), ResizeError> {
        let records = self.records()?;
        let mut sizes = Vec::new();
        for part in self.parts.iter().filter(|part| !part.grows()) {
            let held = held(&records, part.uuid()).at_least(part.target.card.asked);
            let Some(lowest) = SetLimit::of(held.plus(LIMIT_UNIT).minus(Bytes::new(1))) else {
                continue;
            };
            let before = self.ledger.limit(part.device);
            let is_lower = lowest.bytes() < Some(before.bytes().unwrap_or(part.target.written));
            if !is_lower {
                continue;
            }
            self.ledger.set(part.device, lowest);
            let now = self.records();
            match now {
                Ok(now) if Some(held_now(&now, part)) <= lowest.bytes() => {
                    sizes.extend(
                        lowest
                            .bytes()
                            .map(|size| (part.uuid(), Size::Smaller(size))),
                    );
                }
                now => {
                    self.ledger.set(part.device, before);
                    now?;
                }
            }
        }
        if sizes.is_empty() {
            return Ok(());
        }
        self.record(&mut self.admission(), &sizes)
    }

    fn record(
        &self,
        admission: &mut Admission,
        sizes: &[(DeviceUuid, Size)],
    ) -> Result<(), ResizeError> {
        with_rights_of(self.user, || admission.record(sizes)).map_err(ResizeError::Record)
    }

    fn records(&self) -> Result<Vec<Record>, ResizeError> {
        self.ledger.records().map_err(ResizeError::Ledger)
    }

    /// Checks that no more is held than is asked for.
    fn hold_no_more(&self, records: &[Record]) -> Result<(), ResizeError> {
        for part in self.parts.iter().filter(|part| !part.grows()) {
            let (held, wanted) = (held_now(records, part), part.target.card.asked);
            if held > wanted {
                return Err(ResizeError::Held {
                    shown: part.target.card.shown.clone(),
                    held,
                    wanted,
                    holders: self.holders(records, part.uuid()),
                    hint: HINT.to_owned(),
                });
            }
        }
        Ok(())
    }

    fn holders(&self, records: &[Record], uuid: DeviceUuid) -> String {
        let mut its: Vec<&Record> = records
            .iter()
            .filter(|record| record.device == Some(uuid) && record.used > 0)
            .collect();
        its.sort_by_key(|record| std::cmp::Reverse(record.used));
        let line = |record: &&Record| {
            let known = self.names.iter().find(|(slot, _)| *slot == record.slot);
            let name =
                known.map_or_else(|| format!("pid {}", record.pid), |(_, name)| name.clone());
            format!("\n  {name}  {}", Bytes::new(record.used))
        };
        its.iter().map(line).collect()
    }

    /// Returns the limit in force on a device now, and the memory that is held there.
    pub(super) fn now(&self, part: &Part) -> (Bytes, Option<Bytes>) {
        let limit = self.ledger.limit(part.device).bytes();
        let records = self.ledger.records().ok();
        let held = records.map(|records| held_now(&records, part));
        (limit.unwrap_or(part.target.written), held)
    }
}

const HINT: &str = "\n--wait SECONDS lowers the limit as its programs give memory back";

fn held_now(records: &[Record], part: &Part) -> Bytes {
    held(records, part.uuid())
}
