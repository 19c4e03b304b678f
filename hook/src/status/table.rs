//! The slices that are running, for people.
//! Touches: its arguments.

use super::gather::{DeviceStatus, PromiseStatus, SliceStatus};
use crate::text;
use gpuslice_config::units::Bytes;
use serde_json::{Map, Value};

/// What people see.
pub(super) fn table(slices: &[SliceStatus]) -> String {
    if slices.is_empty() {
        return "no slices are running\n".to_owned();
    }
    let shown: Vec<String> = slices.iter().map(slice).collect();
    shown.join("\n")
}

const UNCOUNTED: &str = "which was full or locked, or is not on tmpfs";

fn slice(slice: &SliceStatus) -> String {
    let name = match slice.name.as_str() {
        "" => slice.file.display().to_string(),
        name => name.to_owned(),
    };
    let mut about = Vec::new();
    let ids = slice.containers.iter().map(|it| short(&it.id));
    let ids: Vec<String> = ids.map(text::printable).collect();
    match ids.len() {
        0 => {}
        1 => about.push(format!("container {}", ids.join(""))),
        _ => about.push(format!("containers {}", ids.join(" "))),
    }
    if let Some(pid) = slice.pid {
        about.push(format!("pid {pid}"));
    }
    if !slice.enforce && slice.error.is_none() {
        about.push("only counted, not enforced".to_owned());
    }
    let mut said = text::printable(&name);
    if !about.is_empty() {
        said.push_str(&format!(" ({})", about.join(", ")));
    }
    said.push('\n');
    let mut note = |text: &str| said.push_str(&format!("  {text}\n"));
    if let Some(error) = &slice.error {
        note(&text::printable(error));
    } else if slice.ledger.is_none() {
        note("its slice file names no ledger: nothing is counted or refused");
    }
    match slice.uncounted {
        Some(0) | None => {}
        Some(1) => note(&format!(
            "1 allocation found no place in the ledger, {UNCOUNTED}"
        )),
        Some(count) => note(&format!(
            "{count} allocations found no place in the ledger, {UNCOUNTED}"
        )),
    }
    if let Some(own) = &slice.promise {
        note(&promise(own));
    }
    for one in &slice.devices {
        said.push_str(&device(one, slice.enforce));
    }
    said
}

/// As much of an id as engines show.
fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

fn promise(promise: &PromiseStatus) -> String {
    let amount = |bytes: u64| Bytes::new(bytes).to_string();
    let mut said = format!(
        "promised {}, {} of it not used",
        amount(promise.budget),
        amount(promise.unused)
    );
    if let (Some(available), Some(left)) = (promise.host_available, promise.host_left) {
        said.push_str(&format!(
            "; the host has {} available and can promise {} more",
            amount(available),
            amount(left)
        ));
    }
    said
}

fn device(device: &DeviceStatus, enforced: bool) -> String {
    let amount = |bytes: u64| Bytes::new(bytes).to_string();
    let name = device.device.as_deref().unwrap_or("each GPU");
    let mut parts = vec![match device.limit {
        Some(limit) => format!("limit {}", amount(limit)),
        None => "no limit".to_owned(),
    }];
    if let Some(used) = device.used {
        parts.push(format!("used {}", amount(used)));
    }
    let over = device.used.zip(device.limit);
    match over.and_then(|(used, limit)| used.checked_sub(limit)) {
        None | Some(0) => parts.extend(device.left.map(|left| format!("left {}", amount(left)))),
        Some(over) => parts.push(format!("over by {}", amount(over))),
    }
    match (device.headroom, device.headroom_learned) {
        (0, _) => {}
        (headroom, true) => parts.push(format!("headroom {} (learned)", amount(headroom))),
        (headroom, false) => parts.push(format!("headroom {}", amount(headroom))),
    }
    let mut said = format!("  {name}  {}\n", parts.join(", "));
    if let Some(refusals) = device.refusals.filter(|refusals| refusals.count > 0) {
        said.push_str(&format!(
            "    {} {}, at worst {} short\n",
            if enforced {
                "refused"
            } else {
                "would have refused"
            },
            times(refusals.count),
            amount(refusals.worst_short_by)
        ));
    }
    let mut rows = vec![["PID", "USED", "NAME", "BY KIND"].map(String::from)];
    rows.extend(device.processes.iter().map(|process| {
        let name = process.name.as_deref().unwrap_or("-");
        [
            process.pid.to_string(),
            amount(process.used),
            text::printable(name),
            kinds(&process.by_kind),
        ]
    }));
    if rows.len() > 2 {
        let all = device.used.map(amount).unwrap_or_default();
        rows.push(["all".to_owned(), all, String::new(), kinds(&device.by_kind)]);
    }
    if rows.len() > 1 {
        for line in text::aligned(&rows).lines() {
            said.push_str(&format!("    {line}\n"));
        }
    }
    said
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        _ => format!("{count} times"),
    }
}

/// The kinds that there are.
pub(crate) fn kinds(by_kind: &Map<String, Value>) -> String {
    let part = |(kind, bytes): (&String, &Value)| {
        let bytes = Bytes::new(bytes.as_u64().unwrap_or_default());
        format!("{kind} {bytes}")
    };
    by_kind.iter().map(part).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
