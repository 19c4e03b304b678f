//! Writes a slice file. The host's side only: this allocates.
//! Touches: its arguments.

use super::{
    DriverLimit, Managed, ModelFiles, PageCache, PresentAs, Pressure, Slice, Total, VERSION,
};
use serde::Serialize;
use std::string::{String, ToString};
use std::vec::Vec;

/// The file's keys, in the order in which they are written. The version comes first, so that an
/// older reader can explain an unknown key.
#[derive(Serialize)]
struct File<'a> {
    version: u64,
    name: &'a str,
    total: &'static str,
    present_as: &'static str,
    enforce: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reserve: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meminfo: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ledger: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ledger_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ledger_descriptor: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    page_cache: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    page_cache_share: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_files: Option<Models<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    promises: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    promise: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cgroup: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    driver_cgroup: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_allowance: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pressure: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pressure_file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pressure_full: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pressure_available: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pressure_request: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pressure_used: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pressure_freed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    managed: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<u64>,
    headroom: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    maximum: Option<u64>,
    devices: Vec<Device>,
}

#[derive(Serialize)]
struct Models<'a> {
    suffixes: Vec<&'a str>,
    smallest: u64,
}

#[derive(Serialize)]
struct Device {
    uuid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headroom: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    integrated: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    driver_limit: Option<&'static str>,
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    driver_backstop: bool,
}

impl Slice {
    /// The text of the slice file; [`super::parse`] reads it back.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(&self.file()).unwrap_or_default();
        text.push('\n');
        text
    }

    /// Like [`Slice::to_json`], on one line, for the environment.
    #[must_use]
    pub fn to_json_line(&self) -> String {
        serde_json::to_string(&self.file()).unwrap_or_default()
    }

    fn file(&self) -> File<'_> {
        File {
            version: VERSION,
            name: self.name.as_str(),
            total: match self.total {
                Total::Slice => "slice",
                Total::Device => "device",
            },
            present_as: match self.present_as {
                PresentAs::Uma => "uma",
                PresentAs::Discrete => "discrete",
            },
            enforce: self.enforce,
            reserve: self.reserve.map(|amount| amount.get()),
            meminfo: self.meminfo.as_ref().map(|path| path.as_str()),
            ledger: self.ledger.as_ref().map(|path| path.as_str()),
            ledger_id: self.ledger_id.map(|id| std::format!("{id:016x}")),
            ledger_descriptor: self.ledger_descriptor.as_ref().map(|path| path.as_str()),
            page_cache: match self.page_cache {
                PageCache::Keep => None,
                PageCache::Drop => Some("drop"),
                PageCache::DropBehind => Some("drop-behind"),
            },
            page_cache_share: self.page_cache_share.then_some(true),
            model_files: (self.model_files != ModelFiles::usual()).then(|| Models {
                suffixes: self.model_files.suffixes().collect(),
                smallest: self.model_files.smallest.get(),
            }),
            promises: self.promises.as_ref().map(|path| path.as_str()),
            promise: self.promise.as_ref().map(|path| path.as_str()),
            cgroup: self.cgroup.as_ref().map(|path| path.as_str()),
            driver_cgroup: self.driver_cgroup.as_ref().map(|path| path.as_str()),
            host_allowance: self.host_allowance.map(|amount| amount.get()),
            // Default values are not written, because older readers may not know the key.
            pressure: match self.pressure {
                Pressure::Refuse => None,
                Pressure::Release => Some("release"),
            },
            pressure_file: self.thresholds.file.as_ref().map(|path| path.as_str()),
            pressure_full: self.thresholds.full,
            pressure_available: self.thresholds.available.map(|amount| amount.get()),
            pressure_request: self.thresholds.request.map(|amount| amount.get()),
            pressure_used: self.thresholds.used,
            pressure_freed: self.thresholds.freed.map(|amount| amount.get()),
            managed: match self.managed {
                Managed::Count => None,
                Managed::Allow => Some("allow"),
            },
            memory: self.memory.map(|amount| amount.get()),
            headroom: self.headroom.get(),
            maximum: self.maximum.map(|amount| amount.get()),
            devices: self
                .devices()
                .map(|listed| Device {
                    uuid: listed.uuid.to_string(),
                    memory: listed.memory.map(|amount| amount.get()),
                    headroom: listed.headroom.map(|amount| amount.get()),
                    integrated: listed.integrated,
                    driver_limit: listed.driver_limit.map(DriverLimit::word),
                    driver_backstop: listed.driver_backstop,
                })
                .collect(),
        }
    }
}
