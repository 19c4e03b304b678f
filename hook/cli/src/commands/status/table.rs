//! Formats everything that is known of a slice, for `gpuslice status SLICE`.
//! Touches: its arguments; names of users.

use super::containers::ContainerStatus;
use super::model::{CardStatus, DeviceStatus, Escaped, PromiseStatus, SliceStatus, shown_name};
use super::show::cells::age;
use super::snapshot::Snapshot;
use super::users::User;
use super::warnings::{self, short};
use crate::base::text;
use gpuslice_config::words::units::Bytes;
use serde_json::{Map, Value};

/// Returns the slices of a snapshot, each with all that is known of it.
pub(super) fn table(now: &Snapshot) -> String {
    if now.slices.is_empty() {
        return "no slices are running\n".to_owned();
    }
    let shown = now.slices.iter().map(|one| slice(one, &now.cards));
    shown.collect::<Vec<_>>().join("\n")
}

fn slice(slice: &SliceStatus, cards: &[CardStatus]) -> String {
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
    if let Some(user) = slice.user.filter(|user| *user != User::own()) {
        about.push(format!("user {}", text::printable(&user.name())));
    }
    if slice.enforce == Some(false) && slice.no_slice.is_none() {
        about.push("only counted, not enforced".to_owned());
    }
    match slice.sealed {
        Some(true) => about.push("ledger sealed".to_owned()),
        Some(false) => about.push("ledger not sealed".to_owned()),
        None => {}
    }
    let mut said = shown_name(&slice.name, &slice.file);
    if !about.is_empty() {
        said.push_str(&format!(" ({})", about.join(", ")));
    }
    said.push('\n');
    for (key, value) in facts(slice) {
        said.push_str(&format!("  {key:<7}  {}\n", text::printable(&value)));
    }
    if let Some(own) = &slice.promise {
        said.push_str(&format!("  {}\n", promise(own)));
    }
    if let Some(error) = slice.error.as_ref().filter(|_| slice.is_private) {
        said.push_str(&format!("  {}\n", text::printable(error)));
    }
    for one in &slice.devices {
        said.push_str(&format!("  {}\n", heading(one, slice, cards)));
        match slice.no_slice {
            None => said.push_str(&device(one, slice)),
            Some(_) => said.push_str(&without_slice(one)),
        }
    }
    for one in &slice.containers {
        if let Some(why) = &one.not_limited {
            let (id, why) = (text::printable(short(&one.id)), text::printable(why));
            said.push_str(&format!("  container {id}: {why}\n"));
        }
    }
    for warning in warnings::of_slice(slice) {
        said.push_str(&format!("  ! {}\n", warning.line()));
    }
    said
}

/// Returns the facts about the slice as a whole, each with its name.
fn facts(slice: &SliceStatus) -> Vec<(&'static str, String)> {
    let command = slice.command.as_ref().map(|words| words.join(" "));
    let started = slice.started.as_ref().map(|started| {
        let age = slice
            .age
            .map_or(String::new(), |seconds| format!(" ({} ago)", age(seconds)));
        format!("{started}{age}")
    });
    let mut users: Vec<&str> = slice
        .containers
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    users.dedup();
    let users = (users.len() > 1).then(|| users.join(", "));
    let path = |path: &std::path::Path| path.display().to_string();
    let file = Some(path(&slice.file)).filter(|file| !file.is_empty() && !slice.is_private);
    let facts = [
        ("used by", users),
        ("command", command),
        ("started", started),
        ("fence", Some(slice.fence.describe().to_owned())),
        ("file", file),
        ("ledger", slice.ledger.as_deref().map(path)),
    ];
    let known = facts.into_iter();
    known
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
}

/// Returns the name of a device: as nvidia-smi shows it if the driver reports it, and its uuid.
fn heading(device: &DeviceStatus, slice: &SliceStatus, cards: &[CardStatus]) -> String {
    let Some(uuid) = device.device.as_deref() else {
        return "each GPU".to_owned();
    };
    let is_same = |card: &&CardStatus| card.device == uuid && card.machine == slice.machine;
    match cards.iter().find(is_same) {
        Some(card) => {
            let name = text::printable(&card.name);
            format!("GPU {}  {name}  {uuid}", card.index)
        }
        None => uuid.to_owned(),
    }
}

/// Returns one line if no container's programs load the library, else one line per container whose
/// programs do not.
pub(crate) fn no_slice(whole: Option<&str>, containers: &[ContainerStatus]) -> Vec<String> {
    if let Some(why) = whole {
        return vec![format!("no slice: {}", text::printable(why))];
    }
    let each = containers.iter().filter_map(|one| {
        let (id, why) = (text::printable(short(&one.id)), one.no_slice.as_deref()?);
        Some(format!(
            "container {id} has no slice: {}",
            text::printable(why)
        ))
    });
    each.collect()
}

/// Formats a device of a slice whose programs do not load the library.
fn without_slice(device: &DeviceStatus) -> String {
    let limit = device.limit.map_or("no limit".to_owned(), |limit| {
        format!("limit {}, not in force", Bytes::new(limit))
    });
    format!("    {limit}\n")
}

/// Returns one line per process of the slice that uses the device without the library.
pub(crate) fn escaped(processes: &[Escaped]) -> Vec<String> {
    let line = |one: &Escaped| {
        let name = one.name.as_deref().map(text::printable);
        let name = name.map_or(String::new(), |name| format!(" ({name})"));
        let used = one.used.map(|used| Bytes::new(used).to_string());
        let used = used.unwrap_or_else(|| "device memory".to_owned());
        format!(
            "warning: process {}{name} holds {used} without libgpuslice.so: it is neither counted \
             nor limited",
            one.pid
        )
    };
    processes.iter().map(line).collect()
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

fn device(device: &DeviceStatus, slice: &SliceStatus) -> String {
    let amount = |bytes: u64| Bytes::new(bytes).to_string();
    let mut parts = vec![match device.limit {
        Some(limit) => format!("limit {}{}", amount(limit), pending(device)),
        None => "no limit".to_owned(),
    }];
    match device.used_or_reported() {
        Some(used) => parts.push(format!("used {}", amount(used))),
        None if slice.error.is_some() => parts.push("used ?".to_owned()),
        None => {}
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
    let mut said = format!("    {}\n", parts.join(", "));
    if let Some(refusals) = device.refusals.filter(|refusals| refusals.count > 0) {
        said.push_str(&format!(
            "    {} {}, at worst {} short\n",
            match slice.enforce {
                Some(false) => "would have refused",
                _ => "refused",
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
        let all = device.used.map_or("?".to_owned(), amount);
        let by_kind = device.by_kind.as_ref().map(kinds).unwrap_or_default();
        rows.push(["all".to_owned(), all, String::new(), by_kind]);
    }
    if rows.len() > 1 {
        for line in text::aligned(&rows).lines() {
            said.push_str(&format!("    {line}\n"));
        }
    }
    said
}

fn pending(device: &DeviceStatus) -> String {
    let pending = device.pending_limit.map(Bytes::new);
    pending.map_or(String::new(), |pending| {
        format!(" ({pending} for programs that start now)")
    })
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        _ => format!("{count} times"),
    }
}

/// Formats the kinds of memory that are in use.
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
