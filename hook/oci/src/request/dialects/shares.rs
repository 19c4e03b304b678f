//! Reads the list of devices that HAMi's scheduler writes on a pod, `hami.io/vgpu-devices-allocated`.
//! Touches: its arguments.
//!
//! The list has an entry for each container of the pod, in the pod's order, which engines do not pass
//! on. Each entry ends with `;`, each of its devices with `:`. A device is `UUID,TYPE,MIB,CORES`
//! (EncodeContainerDevices and DecodePodDevices in HAMi's pkg/device/devices.go).

use super::DialectError;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::text::shown;

/// The share of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// Its devices, in HAMi's order, which numbers the variables of HAMi-core.
    pub(super) devices: Vec<(DeviceUuid, Bytes)>,
    /// Its part of the cores in percent, if it is a part.
    pub(super) cores: Option<u32>,
}

/// Why a list does not give a container's share.
pub(super) enum Fault {
    /// The list is malformed.
    Malformed,
    /// It has several shares that could be the container's.
    Several,
}

impl Fault {
    pub(super) fn about(self, key: &'static str, list: &str) -> DialectError {
        match self {
            Fault::Malformed => DialectError::Value {
                key: key.to_owned(),
                value: shown(list),
                expected: "a list of devices as HAMi's scheduler writes it",
            },
            Fault::Several => DialectError::WhichShare(key),
        }
    }
}

/// The share of a container, by the variables that HAMi's device plugin sets, and by the GPUs that
/// the container is given. `None` if no share is of its GPUs.
///
/// The variables choose among the shares of the pod, and then only lower the one chosen.
pub(super) fn of(
    list: &str,
    limits: &[(usize, Bytes)],
    visible: Option<&[DeviceUuid]>,
) -> Result<Option<Share>, Fault> {
    let entries = list.split(';').filter(|entry| !entry.trim().is_empty());
    let shares: Option<Vec<Share>> = entries.map(share).collect();
    let mut shares = shares.ok_or(Fault::Malformed)?;
    if let Some(visible) = visible {
        let is_seen = |(uuid, _): &(DeviceUuid, Bytes)| visible.contains(uuid);
        shares.retain(|share| share.devices.iter().all(is_seen));
    }
    let is_limited = |share: &Share| {
        let sizes = share.devices.iter().map(|(_, memory)| *memory);
        limits.len() == share.devices.len() && sizes.enumerate().all(|size| limits.contains(&size))
    };
    if shares.iter().any(is_limited) {
        shares.retain(is_limited);
    }
    shares.dedup();
    let mut shares = shares.into_iter();
    let Some(mut share) = shares.next() else {
        return Ok(None);
    };
    if shares.any(|other| other != share) {
        return Err(Fault::Several);
    }
    for (number, limit) in limits {
        if let Some((_, memory)) = share.devices.get_mut(*number) {
            *memory = memory.at_most(*limit);
        }
    }
    Ok(Some(share))
}

/// Reads an entry, which has at least one device.
fn share(entry: &str) -> Option<Share> {
    let mut cores = None;
    let mut devices = Vec::new();
    for device in entry.split(':').filter(|device| !device.trim().is_empty()) {
        let mut fields = device.trim().split(',');
        let uuid = fields.next()?.parse().ok()?;
        let _kind = fields.next()?;
        let memory = Bytes::mib(fields.next()?.parse().ok()?);
        let part: u32 = fields.next()?.parse().ok()?;
        cores = cores.max(Some(part).filter(|part| (1..100).contains(part)));
        devices.push((uuid, (memory > Bytes::ZERO).then_some(memory)?));
    }
    (!devices.is_empty()).then_some(Share { devices, cores })
}
