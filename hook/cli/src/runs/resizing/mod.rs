//! Admits another size of a running slice, and records it.
//! Touches: the records of admission and the locks on them, each kind in a file of its own; the limits
//! in the ledger of a slice that has ended.
//! Law: the records never promise less than the ledgers grant. A larger size is recorded before it
//! is in force, and a smaller one afterwards.

mod container;
pub(crate) mod former_limits;
mod promise;
mod tenant;

pub(crate) use container::ContainerSlice;
pub(crate) use promise::RunPromise;

use crate::runs::tenancy::Card;
use container::ContainerAdmission;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use promise::PromiseAdmission;
use std::path::PathBuf;
use tenant::TenantAdmission;

/// Reasons why a size is not admitted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SizeError {
    /// Other slices or the host need the memory.
    #[error("no room: {0}")]
    NoRoom(String),
    /// The policy's maximum of one container is lower.
    #[error(
        "{asked} is more than this host's policy allows a container to have of a GPU ({maximum})"
    )]
    AboveMaximum {
        /// The size.
        asked: Bytes,
        /// The maximum.
        maximum: Bytes,
    },
    /// The records cannot be read or written.
    #[error("{0:#}")]
    Unusable(anyhow::Error),
}

/// The records in which a slice is counted.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// A run on GPUs with memory of their own.
    Tenant {
        /// The state folder of a simulated machine.
        simulated: Option<PathBuf>,
        /// The file in which the run is recorded; a run without it is not on record.
        record: Option<PathBuf>,
        /// The run's user.
        uid: u32,
    },
    /// A run on unified memory.
    Promise(RunPromise),
    /// A container's slice, or a pod's.
    Container(ContainerSlice),
}

impl Place {
    /// Takes the locks of admission, and reads the records.
    ///
    /// # Errors
    /// When a record that must be changed cannot be read.
    pub(crate) fn lock(&self) -> Result<Admission<'_>, SizeError> {
        Ok(match self {
            Place::Tenant {
                simulated,
                record,
                uid,
            } => {
                let (simulated, record) = (simulated.as_deref(), record.as_deref());
                Admission::Tenant(TenantAdmission::begin(simulated, record, *uid))
            }
            Place::Promise(promise) => {
                let admission = PromiseAdmission::begin(promise);
                Admission::Promise(admission.map_err(SizeError::Unusable)?)
            }
            Place::Container(container) => {
                let admission = ContainerAdmission::begin(container);
                Admission::Container(Box::new(admission.map_err(SizeError::Unusable)?))
            }
        })
    }
}

/// The locks of admission, and the records read under them.
pub(crate) enum Admission<'a> {
    Tenant(TenantAdmission),
    Promise(PromiseAdmission<'a>),
    Container(Box<ContainerAdmission<'a>>),
}

impl Admission<'_> {
    /// Checks whether cards have room for the slice with the sizes that are asked for, all of them
    /// larger than before.
    ///
    /// # Errors
    /// When the other slices leave less, or this is not known.
    pub(crate) fn admit(&self, cards: &[Card]) -> Result<(), SizeError> {
        match self {
            Admission::Tenant(admission) => admission.admit(cards),
            Admission::Promise(admission) => admission.admit(cards),
            Admission::Container(admission) => admission.admit(cards),
        }
    }

    /// Records the sizes of some cards. Lowering a limit never raises a record: with overcommit, a
    /// record can be below the limit.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub(crate) fn record(&mut self, sizes: &[(DeviceUuid, Size)]) -> Result<(), SizeError> {
        match self {
            Admission::Tenant(admission) => admission.record(sizes),
            Admission::Promise(admission) => admission.record(sizes),
            Admission::Container(admission) => admission.record(sizes),
        }
        .map_err(SizeError::Unusable)
    }
}

/// A size that is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// The slice was admitted for this size.
    Larger(Bytes),
    /// The slice is limited to this size now.
    Smaller(Bytes),
}

impl Size {
    /// Returns the memory to record, if `recorded` is on record now.
    fn after(self, recorded: Bytes) -> Bytes {
        match self {
            Size::Larger(size) => size,
            Size::Smaller(size) => recorded.at_most(size),
        }
    }

    /// The memory to record for a card.
    fn of(sizes: &[(DeviceUuid, Size)], card: DeviceUuid, recorded: Bytes) -> Bytes {
        let size = sizes.iter().find(|(uuid, _)| *uuid == card);
        size.map_or(recorded, |(_, size)| size.after(recorded))
    }
}
