//! Serialises a device's UUID as its text.
//! Touches: its arguments.

use gpuslice_config::words::device::DeviceUuid;
use serde::{Deserialize, Deserializer, Serializer, de::Error};

pub(crate) fn serialize<S: Serializer>(uuid: &DeviceUuid, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(uuid)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<DeviceUuid, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}
