//! Serialises a size as a number of bytes.
//! Touches: nothing.

use gpuslice_config::words::units::Bytes;
use serde::{Deserialize, Deserializer, Serializer};

pub(crate) fn serialize<S: Serializer>(bytes: &Bytes, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(bytes.get())
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
    u64::deserialize(from).map(Bytes::new)
}
