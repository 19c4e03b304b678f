//! The devices that the scheduler allocated to a claim, checked.
//! Touches: its arguments.
//! Law: a device without an amount of memory is refused. It would be the whole GPU, which the
//! scheduler has given to others as well.

use crate::base::names::{NameError, Uid};
use crate::base::quantity;
use crate::base::settings::DRIVER;
use crate::claims::options::{Options, OptionsError};
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::text::shown;
use k8s_openapi::api::resource::v1::{
    DeviceAllocationConfiguration, DeviceAllocationResult, DeviceRequestAllocationResult,
    ResourceClaim,
};

/// The name of the capacity.
pub const MEMORY: &str = "memory";

/// A claim's part of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The request, or `request/subrequest`.
    pub request: String,
    /// The pool.
    pub pool: String,
    /// The device's name.
    pub device: String,
    /// The id of this part of the device.
    pub id: Option<Uid>,
    /// The size.
    pub memory: Bytes,
    /// The options.
    pub options: Options,
}

/// Why a claim cannot be prepared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocationError {
    /// Another claim has the name now.
    #[error("the claim of this name has the uid {0} now: the requested claim was deleted")]
    OtherUid(String),
    /// The scheduler has not allocated it.
    #[error("no device is allocated to the claim")]
    NotAllocated,
    /// The devices are other drivers'.
    #[error("no device of {DRIVER} is allocated to the claim")]
    NotOurs,
    /// A device is another node's.
    #[error("device \"{device}\" is in pool \"{pool}\", not of this node")]
    Pool {
        /// The device.
        device: String,
        /// Its pool.
        pool: String,
    },
    /// The device is allocated for administration, past the scheduler's accounts.
    #[error(
        "request \"{0}\" has adminAccess, which allocates no memory (run gpuslice on the node \
         instead)"
    )]
    AdminAccess(String),
    /// The device is allocated without an amount of memory.
    #[error(
        "request \"{0}\" got a device without an amount of memory: the feature gate \
         DRAConsumableCapacity is off in the scheduler"
    )]
    NoMemory(String),
    /// The amount of memory is not a quantity, or less than 1 MiB.
    #[error("request \"{request}\" got \"{memory}\" of memory, which is not a size")]
    Memory {
        /// The request.
        request: String,
        /// The amount of memory, as the claim states it.
        memory: String,
    },
    /// The id of the share is not a uid.
    #[error(transparent)]
    ShareId(NameError),
    /// The opaque configuration is wrong.
    #[error("cannot use the configuration for {DRIVER}")]
    Options(#[from] OptionsError),
}

/// The parts of this driver's devices that a claim was given.
///
/// # Errors
/// [`AllocationError`].
pub fn shares(claim: &ResourceClaim, uid: &Uid, pool: &str) -> Result<Vec<Share>, AllocationError> {
    let found = claim.metadata.uid.as_deref().unwrap_or_default();
    if found != uid.as_str() {
        return Err(AllocationError::OtherUid(shown(found)));
    }
    let allocation = claim
        .status
        .as_ref()
        .and_then(|status| status.allocation.as_ref());
    let devices = allocation
        .and_then(|allocation| allocation.devices.as_ref())
        .ok_or(AllocationError::NotAllocated)?;
    let results = devices.results.iter().flatten();
    let ours = results.filter(|result| result.driver == DRIVER);
    let shares: Vec<Share> = ours
        .map(|result| share(devices, result, pool))
        .collect::<Result<_, _>>()?;
    match shares.is_empty() {
        true => Err(AllocationError::NotOurs),
        false => Ok(shares),
    }
}

fn share(
    devices: &DeviceAllocationResult,
    result: &DeviceRequestAllocationResult,
    pool: &str,
) -> Result<Share, AllocationError> {
    if result.pool != pool {
        return Err(AllocationError::Pool {
            device: shown(&result.device),
            pool: shown(&result.pool),
        });
    }
    if result.admin_access == Some(true) {
        return Err(AllocationError::AdminAccess(shown(&result.request)));
    }
    let consumed = result.consumed_capacity.as_ref();
    // The API server may return a capacity's name with its driver in front.
    let qualified = format!("{DRIVER}/{MEMORY}");
    let memory = consumed
        .and_then(|all| all.get(MEMORY).or_else(|| all.get(&qualified)))
        .ok_or_else(|| AllocationError::NoMemory(shown(&result.request)))?;
    let wrong = || AllocationError::Memory {
        request: shown(&result.request),
        memory: shown(&memory.0),
    };
    let memory = quantity::bytes(memory)
        .filter(|memory| *memory >= Bytes::mib(1))
        .ok_or_else(wrong)?;
    let id = result.share_id.as_deref().map(str::parse).transpose();
    Ok(Share {
        request: result.request.clone(),
        pool: result.pool.clone(),
        device: result.device.clone(),
        id: id.map_err(AllocationError::ShareId)?,
        memory,
        options: options(devices, &result.request)?,
    })
}

/// The options for a request. Those of the claim replace those of its class.
fn options(devices: &DeviceAllocationResult, request: &str) -> Result<Options, AllocationError> {
    let all = || devices.config.iter().flatten();
    let of_class = all().filter(|config| config.source == "FromClass");
    let of_claim = all().filter(|config| config.source != "FromClass");
    let mut options = Options::default();
    for config in of_class.chain(of_claim) {
        let ours = config
            .opaque
            .as_ref()
            .filter(|opaque| opaque.driver == DRIVER);
        if let Some(opaque) = ours.filter(|_| applies(config, request)) {
            options.add(&opaque.parameters.0)?;
        }
    }
    Ok(options)
}

/// The request of which this is an alternative (`firstAvailable`), or the request itself.
pub(crate) fn main_request(request: &str) -> &str {
    request.split_once('/').map_or(request, |(main, _)| main)
}

/// A configuration without requests applies to all, and one for a request also to its subrequests.
fn applies(config: &DeviceAllocationConfiguration, request: &str) -> bool {
    let main = main_request(request);
    match config.requests.as_deref() {
        None | Some([]) => true,
        Some(named) => named.iter().any(|one| one == request || one == main),
    }
}
