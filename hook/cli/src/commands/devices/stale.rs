//! Compares the hook's list of GPUs with the GPUs that the driver reports.
//! Touches: the list; the driver, in a child.

use crate::driver::ask;
use crate::driver::devices_file::{self, DEVICES};
use crate::driver::inventory::Inventory;
use crate::driver::sim;
use crate::slice::current as current_slice;
use gpuslice_config::words::units::Bytes;
use serde_json::Value;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// The time that a driver is given to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Returns a warning about this host's list if it is out of date. Returns None if there is no list,
/// because the hook then writes it. Returns None in a container and on a simulated machine too,
/// because the list describes the host.
#[must_use]
pub(crate) fn of_this_host() -> Option<String> {
    of_this_host_with(None)
}

/// Like [`of_this_host`], where the driver's answer may be known already.
#[must_use]
pub(crate) fn of_this_host_with(inventory: Option<&Inventory>) -> Option<String> {
    if current_slice::mounted().is_some() || sim::of_environment().is_some() {
        return None;
    }
    stale(Path::new(DEVICES), inventory)
}

fn stale(path: &Path, inventory: Option<&Inventory>) -> Option<String> {
    let shown = path.display();
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => return Some(format!("cannot read {shown}, the list of GPUs: {error}")),
    };
    let ask = || ask::within(&[], "querying the driver for its GPUs", PATIENCE);
    let inventory = match inventory.cloned().map_or_else(ask, Ok) {
        Ok(inventory) => inventory,
        Err(error) => {
            return Some(format!(
                "{shown}, the list of GPUs, cannot be compared with this host: {error}"
            ));
        }
    };
    let why = match serde_json::from_slice(&text) {
        Ok(listed) => differences(&listed, &inventory).join("; "),
        Err(error) => error.to_string(),
    };
    (!why.is_empty()).then(|| {
        format!(
            "{shown}, the list of GPUs that containers are given slices of, is out of date: {why}; run gpuslice \
             devices --write"
        )
    })
}

/// Returns a warning about the list at `path` if it differs from the GPUs that the driver reports.
#[must_use]
pub(crate) fn of(path: &Path) -> Option<String> {
    stale(path, None)
}

/// Describes the differences between a list and the existing GPUs. A key that the list lacks is not
/// compared: an earlier gpuslice wrote the list.
fn differences(listed: &Value, inventory: &Inventory) -> Vec<String> {
    let now = devices_file::text(inventory).unwrap_or_default();
    let now: Value = serde_json::from_str(&now).unwrap_or_default();
    let mut found = Vec::new();
    compare(array(listed, "devices"), array(&now, "devices"), &mut found);
    found
}

fn array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    let found = value.get(key).and_then(Value::as_array);
    found.map_or(&[], Vec::as_slice)
}

fn uuid(device: &Value) -> &str {
    let uuid = device.get("uuid").and_then(Value::as_str);
    uuid.unwrap_or_default()
}

/// Compares GPUs, or the instances of one.
fn compare(listed: &[Value], now: &[Value], found: &mut Vec<String>) {
    let has = |all: &[Value], one: &Value| all.iter().any(|other| uuid(other) == uuid(one));
    for gone in listed.iter().filter(|one| !has(now, one)) {
        found.push(format!("{} is listed but not on this host", uuid(gone)));
    }
    for device in now {
        let uuid = uuid(device);
        let Some(old) = listed.iter().find(|old| self::uuid(old) == uuid) else {
            found.push(format!("{uuid} is not listed"));
            continue;
        };
        for key in ["index", "minor", "memory", "integrated", "driver_limits"] {
            let (Some(was), Some(is)) = (old.get(key), device.get(key)) else {
                continue;
            };
            if was != is {
                let (was, is) = (shown(key, was), shown(key, is));
                let key = key.replace('_', " ");
                found.push(format!("{uuid} has {key} {is}, but the list says {was}"));
            }
        }
        compare(array(old, "mig"), array(device, "mig"), found);
    }
}

fn shown(key: &str, value: &Value) -> String {
    match value.as_u64().filter(|_| key == "memory") {
        Some(bytes) => Bytes::new(bytes).to_string(),
        None => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(listed: &str, now: &str) -> Vec<String> {
        let read = |text: &str| -> Vec<Value> { serde_json::from_str(text).unwrap() };
        let mut found = Vec::new();
        compare(&read(listed), &read(now), &mut found);
        found
    }

    #[test]
    fn what_an_earlier_gpuslice_did_not_list_is_not_compared() {
        let listed = r#"[{"uuid":"GPU-1","index":0,"memory":1073741824}]"#;
        let now = r#"[{"uuid":"GPU-1","index":0,"minor":3,"memory":1073741824,"mig":[]}]"#;
        assert_eq!(difference(listed, now), Vec::<String>::new());
    }

    #[test]
    fn a_gpu_that_was_divided_again_is_named_by_its_instances() {
        let listed =
            r#"[{"uuid":"GPU-1","mig":[{"uuid":"MIG-1","memory":1073741824},{"uuid":"MIG-2"}]}]"#;
        let now =
            r#"[{"uuid":"GPU-1","mig":[{"uuid":"MIG-1","memory":2147483648},{"uuid":"MIG-3"}]}]"#;
        let expected = [
            "MIG-2 is listed but not on this host",
            "MIG-1 has memory 2.00 GiB, but the list says 1.00 GiB",
            "MIG-3 is not listed",
        ];
        assert_eq!(difference(listed, now), expected);
    }
}
