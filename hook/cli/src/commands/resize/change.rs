//! The steps of a change.
//! Touches: the slice's ledger, its records, the locks of admission; /proc.
//! The driver's limit, if it holds one, is raised before the ledger's and lowered after it.
//! Law: the command can be killed at any step. A larger limit is recorded before it is in force, and
//! a smaller one afterwards, so the records never promise less than the ledger grants.

use super::driver::{Deadline, DriverError, DriverFence};
use super::holders::Holders;
use super::ledger::SliceLedger;
use super::target::{Resized, Target};
use crate::commands::status::model::SliceStatus;
use crate::commands::status::users::{User, with_rights_of};
use crate::runs::resizing::{Admission, Place, Size, SizeError};
use crate::runs::tenancy::Card;
use gpuslice_config::ledger::{Device, LIMIT_UNIT, Record, SetLimit};
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use std::time::{Duration, Instant};

/// Reasons why a limit was not changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResizeError {
    #[error("{0} has less: give at most {most}MiB", most = .1.get() >> 20)]
    LargerThanCard(String, Bytes),
    #[error(transparent)]
    Size(#[from] SizeError),
    #[error("the slice holds {held} on {shown}, more than {wanted}:{holders}{hint}")]
    Held {
        shown: String,
        held: Bytes,
        wanted: Bytes,
        holders: String,
        hint: String,
    },
    #[error("the limit was not changed: {0}")]
    Record(SizeError),
    #[error("{0:#}")]
    Ledger(anyhow::Error),
    #[error("the limit was not changed, because the driver refused the new one: {0:#}")]
    Driver(anyhow::Error),
    #[error("the limit was not changed: {0}\n{1}")]
    DriverSilent(DriverError, &'static str),
}

impl ResizeError {
    fn of_driver(error: DriverError, later: &'static str) -> ResizeError {
        match error {
            DriverError::Refused(error) => ResizeError::Driver(error),
            silent @ DriverError::Silent => ResizeError::DriverSilent(silent, later),
        }
    }

    /// Whether the size is impossible at this moment, and not gpuslice at fault.
    pub(super) fn is_for_want_of_room(&self) -> bool {
        match self {
            ResizeError::LargerThanCard(..) | ResizeError::Held { .. } => true,
            ResizeError::Size(error) => matches!(error, SizeError::NoRoom(_)),
            ResizeError::Record(_)
            | ResizeError::Ledger(_)
            | ResizeError::Driver(_)
            | ResizeError::DriverSilent(..) => false,
        }
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
                        "\nthe time is up: the limit stays at the memory that is held".to_owned();
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

    /// Changes all limits, or none.
    fn at_once(&self) -> Result<(), ResizeError> {
        let mut admission = self.admission()?;
        self.admit(&admission)?;
        // A limit that is lowered and restored would refuse memory in between.
        self.hold_no_more(&self.records()?)?;
        let (larger, smaller): (Vec<&Part>, Vec<&Part>) =
            self.parts.iter().partition(|part| part.grows());
        let before: Vec<SetLimit> = smaller
            .iter()
            .map(|part| self.ledger.limit(part.device))
            .collect();
        for part in &smaller {
            self.ledger.set(part.device, part.target.wanted);
        }
        let deadline = Deadline::begin();
        let restore = || {
            for (part, before) in smaller.iter().zip(&before) {
                self.restore(part, *before, deadline);
            }
        };
        // Memory may have been granted under the former limits before these were in force.
        let lowered = self
            .driver_follows(&smaller, deadline, LOWERS)
            .and_then(|()| self.hold_no_more(&self.records()?));
        lowered.inspect_err(|_| restore())?;
        let sizes: Vec<_> = larger.iter().map(|part| part.larger()).collect();
        let recorded = self.record(&mut admission, &sizes);
        recorded.inspect_err(|_| restore())?;
        if let Err(error) = self.driver_follows(&larger, deadline, RAISES) {
            restore();
            // A driver that did not answer may still raise its limit: that memory stays promised.
            if !matches!(error, ResizeError::DriverSilent(..)) {
                let former = larger
                    .iter()
                    .map(|part| (part.uuid(), Size::Smaller(part.former())));
                self.record(&mut admission, &former.collect::<Vec<_>>())?;
            }
            return Err(error);
        }
        for part in larger {
            self.ledger.set(part.device, part.target.wanted);
        }
        let sizes: Vec<_> = smaller.iter().map(|part| part.smaller()).collect();
        let recorded = self.record(&mut admission, &sizes);
        recorded.inspect_err(|_| restore())
    }

    /// Sets the driver's limits to the new sizes. `later` is said to the user if the driver does not
    /// answer.
    fn driver_follows(
        &self,
        parts: &[&Part],
        deadline: Deadline,
        later: &'static str,
    ) -> Result<(), ResizeError> {
        let limits = parts
            .iter()
            .map(|part| (part.uuid(), part.target.card.asked));
        let limits: Vec<(DeviceUuid, Bytes)> = limits.collect();
        let set = self.driver.set(&limits, deadline);
        set.map_err(|error| ResizeError::of_driver(error, later))
    }

    /// Brings an earlier limit back, in the driver first.
    fn restore(&self, part: &Part, before: SetLimit, deadline: Deadline) {
        let limit = before.bytes().unwrap_or(part.target.written);
        // If the driver keeps the smaller limit, it refuses memory that the library shows as free.
        let _ = self.driver.set(&[(part.uuid(), limit)], deadline);
        self.ledger.set(part.device, before);
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
            let deadline = Deadline::begin();
            let lowered = self.driver.set(&[(part.uuid(), limit)], deadline);
            let now = lowered.map_err(|error| ResizeError::of_driver(error, LOWERS));
            match now.and_then(|()| self.records()) {
                Ok(now) if Some(self.held(&now, part)) <= lowest.bytes() => {
                    sizes.extend(
                        lowest
                            .bytes()
                            .map(|size| (part.uuid(), Size::Smaller(size))),
                    );
                }
                now => {
                    self.restore(part, before, deadline);
                    now?;
                }
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

/// The consequences of a driver that does not answer.
const LOWERS: &str = "the driver may still lower its own limit, and then refuses memory that the slice \
                      shows as free: resize the slice again once the driver answers";
const RAISES: &str = "the driver may still raise its own limit, so the larger size stays promised: \
                      resize the slice again once the driver answers, to this size or the former one";

const HINT: &str = "\n--wait TIME lowers the limit as the slice's programs free memory";
