//! Serialises an optional size in bytes; absent is allowed.
//! Touches: nothing.

use gpuslice_config::words::units::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) fn serialize<S: Serializer>(bytes: &Option<Bytes>, to: S) -> Result<S::Ok, S::Error> {
    bytes.map(Bytes::get).serialize(to)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Bytes>, D::Error> {
    Ok(Option::deserialize(from)?.map(Bytes::new))
}
