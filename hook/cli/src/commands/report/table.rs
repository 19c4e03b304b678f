//! Formats the report as a table.
//! Touches: its arguments.

use super::gather::{Growth, MachineReport, ProcessReport, Report, SliceReport};
use crate::base::text;
use crate::commands::status::model::shown_name;
use crate::commands::status::table::{escaped, kinds, no_slice};
use crate::commands::status::users::User;
use gpuslice_config::words::units::Bytes;

const COLUMNS: [&str; 9] = [
    "PID",
    "DEVICE",
    "CONTEXT",
    "HOST",
    "KEPT",
    "SHMEM",
    "MAPPED",
    "GROWTH/MIN",
    "NAME",
];

/// Returns the report as text.
pub(super) fn table(report: &Report) -> String {
    let mut said = String::new();
    for one in &report.slices {
        said.push_str(&slice(one));
        said.push('\n');
    }
    if report.slices.is_empty() {
        said.push_str("no slices are running\n\n");
    }
    if let Some(host) = &report.machine {
        said.push_str(&machine(host));
    }
    said
}

fn amount(bytes: u64) -> String {
    Bytes::new(bytes).to_string()
}

fn slice(slice: &SliceReport) -> String {
    let mut said = shown_name(&slice.name, &slice.file);
    let pid = slice.pid.map(|pid| format!("pid {pid}"));
    let other = slice.user.filter(|user| *user != User::own());
    let user = other.map(|user| format!("user {}", text::printable(&user.name())));
    let about: Vec<String> = pid.into_iter().chain(user).collect();
    if !about.is_empty() {
        said.push_str(&format!(" ({})", about.join(", ")));
    }
    said.push('\n');
    for line in no_slice(slice.no_slice.as_deref(), &[]) {
        said.push_str(&format!("  {line}\n"));
    }
    if let Some(error) = &slice.error {
        said.push_str(&format!("  {}\n", text::printable(error)));
    }
    for device in &slice.devices {
        let name = device.device.as_deref().unwrap_or("each GPU");
        let unknown = match slice.error {
            Some(_) => "?",
            None => "not counted",
        };
        let used = device.used.map_or(unknown.to_owned(), amount);
        let limit = device.limit.map_or("no limit".to_owned(), amount);
        let by_kind = device.by_kind.as_ref().filter(|kinds| !kinds.is_empty());
        let kinds = by_kind.map_or(String::new(), |held| format!(": {}", kinds(held)));
        said.push_str(&format!("  {name}  {used} of {limit}{kinds}\n"));
        for line in escaped(&device.without_library) {
            said.push_str(&format!("    {line}\n"));
        }
    }
    let mut rows = vec![COLUMNS.map(String::from)];
    rows.extend(slice.processes.iter().map(row));
    if slice.processes.is_empty() {
        said.push_str("  none of its processes is visible from here\n");
    } else {
        for line in text::aligned(&rows).lines() {
            said.push_str(&format!("  {line}\n"));
        }
    }
    if let Some(cached) = slice.page_cache_unmapped {
        said.push_str(&format!(
            "  page cache that no process has mapped: {}\n",
            amount(cached)
        ));
    }
    said
}

fn row(one: &ProcessReport) -> [String; 9] {
    let context = one.contexts();
    let device = one.on_device().zip(context);
    let of = |wanted: Option<u64>| wanted.map_or("?".to_owned(), amount);
    let host = one.host;
    [
        one.pid.to_string(),
        of(device.map(|(all, context)| all.saturating_sub(context))),
        of(context),
        of(host.map(|host| host.live)),
        of(host.and_then(|host| host.kept)),
        of(host.map(|host| host.shmem)),
        of(host.map(|host| host.page_cache_mapped)),
        one.growth_per_minute
            .as_ref()
            .map_or("-".to_owned(), growth),
        one.name.as_deref().map_or("-".to_owned(), text::printable),
    ]
}

fn growth(growth: &Growth) -> String {
    let signed = |bytes: i64| {
        let sign = if bytes < 0 { '-' } else { '+' };
        format!("{sign}{}", amount(bytes.unsigned_abs()))
    };
    let part = |name: &str, bytes: Option<i64>| match bytes {
        None => Some(format!("{name} ?")),
        Some(0) => None,
        Some(bytes) => Some(format!("{name} {}", signed(bytes))),
    };
    let parts = [part("device", growth.device), part("host", growth.host)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match parts.is_empty() {
        true => "0".to_owned(),
        false => parts.join(", "),
    }
}

fn machine(host: &MachineReport) -> String {
    format!(
        "machine: {} of {} available ({} of it clean page cache)\n  \
         in use: {} by these slices, {} by everything else\n",
        amount(host.available),
        amount(host.total),
        amount(host.page_cache_clean),
        host.slices.map_or("?".to_owned(), amount),
        host.unaccounted.map_or("?".to_owned(), amount)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::report::gather::DeviceReport;
    use crate::commands::report::host::HostUse;
    use std::collections::BTreeMap;

    const GIB: u64 = 1 << 30;

    #[test]
    fn each_kind_of_memory_has_a_column_and_unknown_is_not_zero() {
        let host = HostUse {
            live: 3 * GIB,
            kept: Some(GIB),
            shmem: 0,
            page_cache_mapped: GIB / 2,
            swapped: 0,
        };
        let kinds = [("context", GIB / 4), ("linear", 14 * GIB), ("pool", GIB)];
        let by_kind = kinds
            .map(|(kind, bytes)| (kind.to_owned(), bytes.into()))
            .into_iter();
        let known = ProcessReport {
            pid: 12,
            name: Some("python3".to_owned()),
            driver_used: None,
            device: Some(kinds.map(|(kind, bytes)| (kind.to_owned(), bytes)).into()),
            host: Some(host),
            growth_per_minute: Some(Growth {
                device: Some(0),
                host: Some(-(1 << 20)),
                kept: None,
                over_seconds: 60,
            }),
        };
        let unknown = ProcessReport {
            pid: 9,
            device: Some(BTreeMap::new()),
            ..ProcessReport::default()
        };
        let slice = SliceReport {
            name: "llama".to_owned(),
            pid: Some(12),
            devices: vec![DeviceReport {
                device: Some("GPU-1".to_owned()),
                unified: Some(true),
                limit: Some(40 * GIB),
                without_library: Vec::new(),
                used: Some(GIB * 61 / 4),
                by_kind: Some(by_kind.collect()),
                refused: 0,
            }],
            processes: vec![known, unknown],
            ..SliceReport::default()
        };
        let machine = super::super::gather::MachineReport {
            total: 121 * GIB,
            available: 60 * GIB,
            slices: Some(GIB * 77 / 4),
            unaccounted: Some(GIB * 167 / 4),
            page_cache_clean: 20 * GIB,
        };
        let shown = table(&Report {
            slices: vec![slice],
            machine: Some(machine),
        });
        assert_eq!(
            shown,
            "\
llama (pid 12)
  GPU-1  15.25 GiB of 40.00 GiB: context 256.00 MiB, linear 14.00 GiB, pool 1.00 GiB
  PID  DEVICE     CONTEXT     HOST      KEPT      SHMEM  MAPPED      GROWTH/MIN      NAME
  12   15.00 GiB  256.00 MiB  3.00 GiB  1.00 GiB  0 B    512.00 MiB  host -1.00 MiB  python3
  9    0 B        0 B         ?         ?         ?      ?           -               -

machine: 60.00 GiB of 121.00 GiB available (20.00 GiB of it clean page cache)
  in use: 19.25 GiB by these slices, 41.75 GiB by everything else
"
        );
    }
}
