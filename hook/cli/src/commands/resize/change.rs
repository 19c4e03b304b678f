//! The steps of a change.
//! Touches: the slice's ledger, its records, the locks of admission; /proc.
//! The driver's limit, if it holds one, is raised before the ledger's and lowered after it.
//! Law: the command can be killed at any step. A larger limit is recorded before it is in force, and
//! a smaller one afterwards, so the records never promise less than the ledger grants.

use super::driver::{Deadline, DriverError, DriverFence};
use super::error::{NotRestoredError, ResizeError};
use super::holders::Holders;
use super::ledger::SliceLedger;
use super::target::{Resized, Target};
use crate::commands::status::model::SliceStatus;
use crate::commands::status::users::{User, with_rights_of};
use crate::runs::resizing::{Admission, Place, Size};
use crate::runs::tenancy::Card;
use gpuslice_config::ledger::{Device, LIMIT_UNIT, Record, SetLimit};
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use std::time::{Duration, Instant};

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

    fn larger(&self) -> (DeviceUuid, Size) {
        (self.uuid(), Size::Larger(self.target.card.asked))
    }

    fn smaller(&self) -> (DeviceUuid, Size) {
        (self.uuid(), Size::Smaller(self.target.card.asked))
    }
}

/// A change of limits.
pub(super) struct Change {
    ledger: SliceLedger,
    pub(super) parts: Vec<Part>,
    user: User,
    /// The records in which the slice is counted.
    place: Place,
    holders: Holders,
    driver: DriverFence,
}

impl Change {
    /// Opens the ledger, and reads the limits in force.
    pub(super) fn begin(slice: &SliceStatus, resized: Resized) -> anyhow::Result<Change> {
        let Resized {
            targets,
            place,
            allowance,
            files,
        } = resized;
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
        Ok(Change {
            ledger,
            parts,
            user,
            place,
            holders: Holders::of(slice, allowance),
            driver: DriverFence::of(&files, &slice.machine, user),
        })
    }

    /// Changes the limits. Waits for memory to be given back.
    pub(super) fn carry_out(&self, wait: Duration, interval: Duration) -> Result<(), ResizeError> {
        let start = Instant::now();
        for part in &self.parts {
            let card = &part.target.card;
            if card.total > Bytes::ZERO && card.asked > card.total {
                return Err(ResizeError::LargerThanCard(card.shown.clone(), card.total));
            }
        }
        // A driver that must be loaded first would not answer in the time that it has under the lock.
        let _loaded = self.driver.load()?;
        if wait > Duration::ZERO {
            // Do not wait if admission would refuse.
            self.admit(&self.admission()?)?;
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
                    let hint =
                        "\nthe time is up: the limit stays at the lowest value that it has reached"
                            .to_owned();
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

    fn admission(&self) -> Result<Admission<'_>, ResizeError> {
        let locked = match &self.place {
            // Its files belong to the run's user.
            Place::Promise(_) => with_rights_of(self.user, || self.place.lock()),
            Place::Tenant { .. } | Place::Container(_) => self.place.lock(),
        };
        Ok(locked?)
    }

    fn admit(&self, admission: &Admission<'_>) -> Result<(), ResizeError> {
        let larger = self.parts.iter().filter(|part| part.grows());
        let larger: Vec<Card> = larger.map(|part| part.target.card.clone()).collect();
        match larger.is_empty() {
            true => Ok(()),
            false => Ok(admission.admit(&larger)?),
        }
    }

    /// Changes all limits. If it fails, those that have changed are restored, or the error names them.
    fn at_once(&self) -> Result<(), ResizeError> {
        let mut admission = self.admission()?;
        self.admit(&admission)?;
        // A limit that is lowered and restored would refuse memory in between.
        self.hold_no_more(&self.records()?)?;
        let (larger, smaller): (Vec<&Part>, Vec<&Part>) =
            self.parts.iter().partition(|part| part.grows());
        let before: Vec<(&Part, SetLimit)> = smaller
            .iter()
            .map(|part| (*part, self.ledger.limit(part.device)))
            .collect();
        for part in &smaller {
            self.ledger.set(part.device, part.target.wanted);
        }
        let (deadline, last) = Deadline::under_lock();
        let undone = |error: ResizeError| error.after(self.restore(&before, last));
        // Memory may have been granted under the former limits before these were in force.
        self.driver_follows(&smaller, deadline, ResizeError::LowersSilently)
            .and_then(|()| self.hold_no_more(&self.records()?))
            .map_err(undone)?;
        let sizes: Vec<_> = larger.iter().map(|part| part.larger()).collect();
        self.record(&mut admission, &sizes).map_err(undone)?;
        if let Err(error) = self.driver_follows(&larger, deadline, ResizeError::RaisesSilently) {
            return Err(match (error, larger.as_slice()) {
                (error @ ResizeError::Driver(_), [only]) => {
                    let former = (only.uuid(), Size::Smaller(only.former()));
                    let recorded = self.record(&mut admission, &[former]);
                    undone(recorded.err().unwrap_or(error))
                }
                // The driver may have raised a limit, or still raise it: that memory stays promised.
                (ResizeError::Driver(error), _) => undone(ResizeError::SomeRaised(error)),
                (error, _) => undone(error),
            });
        }
        for part in &larger {
            self.ledger.set(part.device, part.target.wanted);
        }
        let sizes: Vec<_> = smaller.iter().map(|part| part.smaller()).collect();
        let recorded = self.record(&mut admission, &sizes);
        recorded.map_err(|error| {
            undone(match error {
                ResizeError::Record(error) if !larger.is_empty() => ResizeError::RecordSmaller {
                    larger: shown(&larger),
                    smaller: shown(&smaller),
                    error,
                },
                error => error,
            })
        })
    }

    /// Sets the driver's limits to the new sizes. `silent` is the error if it does not answer.
    fn driver_follows(
        &self,
        parts: &[&Part],
        deadline: Deadline,
        silent: fn(DriverError) -> ResizeError,
    ) -> Result<(), ResizeError> {
        let limits = parts
            .iter()
            .map(|part| (part.uuid(), part.target.card.asked));
        let limits: Vec<(DeviceUuid, Bytes)> = limits.collect();
        let set = self.driver.set(&limits, deadline);
        set.map_err(|error| ResizeError::of_driver(error, silent))
    }

    /// Brings earlier limits back, in the driver first.
    ///
    /// # Errors
    /// When the driver may keep a smaller limit. It then refuses memory that the library shows as free.
    fn restore(
        &self,
        before: &[(&Part, SetLimit)],
        deadline: Deadline,
    ) -> Result<(), NotRestoredError> {
        let limits = before.iter().map(|(part, before)| {
            let limit = before.bytes().unwrap_or(part.target.written);
            (part.uuid(), limit)
        });
        let set = self.driver.set(&limits.collect::<Vec<_>>(), deadline);
        for (part, before) in before {
            self.ledger.set(part.device, *before);
        }
        set.map_err(|error| {
            let parts: Vec<&Part> = before.iter().map(|(part, _)| *part).collect();
            NotRestoredError::of(shown(&parts), &error)
        })
    }

    /// Lowers the limits as far as what is held allows.
    fn come_down(&self) -> Result<(), ResizeError> {
        let records = self.records()?;
        let mut sizes = Vec::new();
        for part in self.parts.iter().filter(|part| !part.grows()) {
            let held = self.held(&records, part).at_least(part.target.card.asked);
            let Some(lowest) = SetLimit::of(held.plus(LIMIT_UNIT).minus(Bytes::new(1))) else {
                continue;
            };
            let before = self.ledger.limit(part.device);
            let is_lower = lowest.bytes() < Some(before.bytes().unwrap_or(part.target.written));
            if !is_lower {
                continue;
            }
            self.ledger.set(part.device, lowest);
            let limit = lowest.bytes().unwrap_or(held);
            let lowered = self
                .driver
                .set(&[(part.uuid(), limit)], Deadline::without_lock());
            let lowered = lowered
                .map_err(|error| ResizeError::of_driver(error, ResizeError::LowersSilently))
                .and_then(|()| self.records());
            let restore = || self.restore(&[(part, before)], Deadline::without_lock());
            match lowered {
                Ok(now) if Some(self.held(&now, part)) <= lowest.bytes() => {
                    sizes.push((part.uuid(), Size::Smaller(limit)));
                }
                Ok(_) => restore()?,
                Err(error) => return Err(error.after(restore())),
            }
        }
        if sizes.is_empty() {
            return Ok(());
        }
        self.record(&mut self.admission()?, &sizes)
    }

    fn record(
        &self,
        admission: &mut Admission<'_>,
        sizes: &[(DeviceUuid, Size)],
    ) -> Result<(), ResizeError> {
        if sizes.is_empty() {
            return Ok(());
        }
        with_rights_of(self.user, || admission.record(sizes)).map_err(ResizeError::Record)
    }

    fn records(&self) -> Result<Vec<Record>, ResizeError> {
        self.ledger.records().map_err(ResizeError::Ledger)
    }

    /// Checks that no more is held than is asked for.
    fn hold_no_more(&self, records: &[Record]) -> Result<(), ResizeError> {
        for part in self.parts.iter().filter(|part| !part.grows()) {
            let (held, wanted) = (self.held(records, part), part.target.card.asked);
            if held > wanted {
                return Err(ResizeError::Held {
                    shown: part.target.card.shown.clone(),
                    held,
                    wanted,
                    holders: self.holders.text(records, part.uuid()),
                    hint: HINT.to_owned(),
                });
            }
        }
        Ok(())
    }

    fn held(&self, records: &[Record], part: &Part) -> Bytes {
        let target = &part.target;
        self.holders
            .held(records, target.card.uuid, target.is_unified)
    }

    /// Returns the limit in force on a device now, and the memory that is held there.
    pub(super) fn now(&self, part: &Part) -> (Bytes, Option<Bytes>) {
        let limit = self.ledger.limit(part.device).bytes();
        let records = self.ledger.records().ok();
        let held = records.map(|records| self.held(&records, part));
        (limit.unwrap_or(part.target.written), held)
    }
}

/// The GPUs as messages name them.
fn shown(parts: &[&Part]) -> String {
    let each: Vec<&str> = parts
        .iter()
        .map(|part| part.target.card.shown.as_str())
        .collect();
    each.join(", ")
}

const HINT: &str = "\n--wait TIME lowers the limit as the slice's programs free memory";
