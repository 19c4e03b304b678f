//! Where the memory is, for people.
//! Touches: its arguments.

use super::gather::{Growth, MachineReport, ProcessReport, Report, SliceReport};
use crate::status::table::{escaped, kinds, no_slice};
use crate::status::users::User;
use crate::text;
use gpuslice_config::units::Bytes;

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

/// What people see.
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
    let name = match slice.name.as_str() {
        "" => slice.file.display().to_string(),
        name => name.to_owned(),
    };
    let mut said = text::printable(&name);
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
        let used = device.used.map_or("not counted".to_owned(), amount);
        let limit = device.limit.map_or("no limit".to_owned(), amount);
        let kinds = match device.by_kind.is_empty() {
            true => String::new(),
            false => format!(": {}", kinds(&device.by_kind)),
        };
        said.push_str(&format!("  {name}  {used} of {limit}{kinds}\n"));
        for line in escaped(&device.without_library) {
            said.push_str(&format!("    {line}\n"));
        }
    }
    let mut rows = vec![COLUMNS.map(String::from)];
    rows.extend(slice.processes.iter().map(row));
    if slice.processes.is_empty() {
        said.push_str("  no process of it is seen from here\n");
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
    let context = one.device.get("context").copied().unwrap_or(0);
    let device = one.on_device().saturating_sub(context);
    let of = |wanted: Option<u64>| wanted.map_or("?".to_owned(), amount);
    let host = one.host;
    [
        one.pid.to_string(),
        amount(device),
        amount(context),
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
    match (growth.device, growth.host) {
        (0, 0) => "0".to_owned(),
        (device, 0) => format!("device {}", signed(device)),
        (0, host) => format!("host {}", signed(host)),
        (device, host) => format!("device {}, host {}", signed(device), signed(host)),
    }
}

fn machine(host: &MachineReport) -> String {
    format!(
        "machine: {} of {} available ({} of it clean page cache); in use: {} by these slices, {} by \
         everything else\n",
        amount(host.available),
        amount(host.total),
        amount(host.page_cache_clean),
        amount(host.slices),
        amount(host.unaccounted)
    )
}

#[cfg(test)]
mod tests {
    use super::super::gather::DeviceReport;
    use super::super::host::HostUse;
    use super::*;
    use std::collections::BTreeMap;

    const GIB: u64 = 1 << 30;

    #[test]
    fn every_kind_of_memory_has_its_column_and_what_is_not_known_is_not_nothing() {
        let host = HostUse {
            live: 3 * GIB,
            kept: Some(GIB),
            shmem: 0,
            page_cache_mapped: GIB / 2,
            swapped: 0,
        };
        let kinds = [("context", GIB / 4), ("linear", 14 * GIB), ("pool", GIB)];
        let known = ProcessReport {
            pid: 12,
            name: Some("python3".to_owned()),
            driver_used: None,
            device: BTreeMap::from(kinds.map(|(kind, bytes)| (kind.to_owned(), bytes))),
            host: Some(host),
            growth_per_minute: Some(Growth {
                device: 0,
                host: -(1 << 20),
                kept: None,
                over_seconds: 60,
            }),
        };
        let unknown = ProcessReport {
            pid: 9,
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
                by_kind: kinds
                    .map(|(kind, bytes)| (kind.to_owned(), bytes.into()))
                    .into_iter()
                    .collect(),
            }],
            processes: vec![known, unknown],
            ..SliceReport::default()
        };
        let machine = super::super::gather::MachineReport {
            total: 121 * GIB,
            available: 60 * GIB,
            slices: GIB * 77 / 4,
            unaccounted: GIB * 167 / 4,
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

machine: 60.00 GiB of 121.00 GiB available (20.00 GiB of it clean page cache); in use: 19.25 GiB by these slices, \
41.75 GiB by everything else
"
        );
    }
}
