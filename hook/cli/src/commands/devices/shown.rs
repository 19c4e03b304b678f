//! Formats the list of GPUs, as a table and as JSON.
//! Touches: its arguments.

use crate::base::text;
use crate::commands::status::model::CardStatus;
use crate::driver::inventory::{Device, Inventory};
use crate::launch::fence::unable;
use gpuslice_config::slice::{DriverLimit, Slice};
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use serde::Serialize;

/// Returns the slice's limit on a GPU or an instance; None if the slice does not limit it.
fn limit(slice: Option<&Slice>, uuid: DeviceUuid, total: u64) -> Option<Bytes> {
    let limit = slice?.device(uuid)?.memory;
    Some(limit.at_most(Bytes::new(total)))
}

/// The use of a GPU or instance, and the slice's limit. The JSON has these fields in this order.
#[derive(Default, Serialize)]
struct Use {
    used: Option<u64>,
    in_slices: Option<u64>,
    outside_slices: Option<u64>,
    limits_sum: Option<u64>,
    left_to_give: Option<u64>,
}

impl Use {
    fn of(uuid: DeviceUuid, cards: &[CardStatus]) -> Use {
        let uuid = uuid.to_string();
        let card = cards.iter().find(|card| card.device == uuid);
        card.map_or_else(Use::default, |card| Use {
            used: card.used,
            in_slices: Some(card.in_slices),
            outside_slices: card.outside_slices,
            limits_sum: Some(card.limits_sum),
            left_to_give: card.left_to_give,
        })
    }
}

/// Returns why the driver cannot enforce the limit of slices of a GPU.
fn why_preload(device: &Device) -> Option<&'static str> {
    let own = device.targets().next().filter(|_| device.mig.is_empty());
    own.map_or(Some("MIG divides it"), |target| unable(&target))
}

/// Returns what enforces the limit of slices of a GPU.
fn fence(device: &Device) -> &'static str {
    match why_preload(device) {
        None => "driver",
        Some(_) => "preload",
    }
}

/// A GPU, with the slice's limit on it. The JSON has these fields in this order.
#[derive(Serialize)]
struct Shown<'a> {
    index: u32,
    cuda_ordinal: Option<u32>,
    device: String,
    name: &'a str,
    total: u64,
    #[serde(flatten)]
    uses: Use,
    integrated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    minor: Option<u32>,
    driver_limits: bool,
    fence: &'static str,
    driver_limit: Option<DriverLimit>,
    fence_reason: Option<&'static str>,
    mig: Vec<ShownInstance<'a>>,
    limit: Option<u64>,
}

/// A MIG instance, with the slice's limit on it.
#[derive(Serialize)]
struct ShownInstance<'a> {
    device: String,
    cuda_ordinal: Option<u32>,
    name: &'a str,
    total: u64,
    #[serde(flatten)]
    uses: Use,
    limit: Option<u64>,
}

/// The slice in which the command runs.
#[derive(Serialize)]
struct OwnSlice<'a> {
    name: &'a str,
}

/// All GPUs, with the slice's limits.
#[derive(Serialize)]
struct ShownInventory<'a> {
    schema: u32,
    driver: Option<&'a str>,
    slice: Option<OwnSlice<'a>>,
    devices: Vec<Shown<'a>>,
}

/// The version of the JSON output.
const SCHEMA: u32 = 1;

/// Returns the list as JSON.
///
/// # Errors
/// Never in practice: names and numbers are always valid JSON.
pub(super) fn json(
    inventory: &Inventory,
    slice: Option<&Slice>,
    cards: &[CardStatus],
) -> anyhow::Result<String> {
    let limit = |uuid, total| limit(slice, uuid, total).map(Bytes::get);
    let devices = inventory.devices.iter().map(|it| {
        let mig = it.mig.iter().map(|it| ShownInstance {
            device: it.uuid.to_string(),
            cuda_ordinal: it.cuda_ordinal,
            name: &it.name,
            total: it.total,
            uses: Use::of(it.uuid, cards),
            limit: limit(it.uuid, it.total),
        });
        Shown {
            index: it.index,
            cuda_ordinal: it.cuda_ordinal,
            device: it.uuid.to_string(),
            name: &it.name,
            total: it.total,
            uses: Use::of(it.uuid, cards),
            integrated: it.integrated,
            minor: it.minor,
            driver_limits: it.driver_limits,
            fence: fence(it),
            driver_limit: inventory.backend.filter(|_| it.driver_limits),
            fence_reason: why_preload(it),
            mig: mig.collect(),
            limit: limit(it.uuid, it.total),
        }
    });
    let shown = ShownInventory {
        schema: SCHEMA,
        driver: inventory.driver.as_deref(),
        slice: slice.map(|slice| OwnSlice {
            name: slice.name.as_str(),
        }),
        devices: devices.collect(),
    };
    Ok(format!("{}\n", serde_json::to_string_pretty(&shown)?))
}

/// Returns the list as a table. The column SLICE exists only inside a slice, and the columns about
/// the use of the GPUs only where it is known.
pub(super) fn table(inventory: &Inventory, slice: Option<&Slice>, cards: &[CardStatus]) -> String {
    let all = rows(inventory, slice, cards);
    let (known, inside) = (!cards.is_empty(), slice.is_some());
    let shown = all.into_iter().map(|row| {
        let [
            index,
            cuda,
            uuid,
            memory,
            used,
            in_slices,
            left,
            own,
            fence,
            kind,
            name,
        ] = row;
        let mut cells = vec![index, cuda, uuid, memory];
        if known {
            cells.extend([used, in_slices, left]);
        }
        if inside {
            cells.push(own);
        }
        cells.extend([fence, kind, name]);
        cells
    });
    text::columns(&shown.collect::<Vec<_>>())
}

const HEAD: [&str; 11] = [
    "INDEX",
    "CUDA",
    "UUID",
    "MEMORY",
    "USED",
    "IN SLICES",
    "LEFT TO GIVE",
    "SLICE",
    "FENCE",
    "KIND",
    "NAME",
];

fn rows(inventory: &Inventory, slice: Option<&Slice>, cards: &[CardStatus]) -> Vec<[String; 11]> {
    let amount = |bytes: Option<u64>| bytes.map_or("-".to_owned(), |it| Bytes::new(it).to_string());
    let own = |uuid, total| {
        let limit = limit(slice, uuid, total);
        let name = slice.map_or(String::new(), |slice| match slice.name.as_str() {
            "" => String::new(),
            name => format!(" ({})", text::printable(name)),
        });
        limit.map_or("-".to_owned(), |limit| format!("{limit}{name}"))
    };
    let number = |ordinal: Option<u32>| ordinal.map_or("-".to_owned(), |it| it.to_string());
    let shown_fence = |device: &Device| match (fence(device), inventory.backend) {
        ("driver", Some(backend)) => format!("driver ({})", backend.word()),
        (fence, _) => fence.to_owned(),
    };
    let mut rows = vec![HEAD.map(String::from)];
    for device in &inventory.devices {
        let kind = match (device.integrated, device.mig.is_empty()) {
            (true, _) => "unified",
            (false, true) => "discrete",
            (false, false) => "divided",
        };
        let uses = Use::of(device.uuid, cards);
        rows.push([
            device.index.to_string(),
            number(device.cuda_ordinal),
            device.uuid.to_string(),
            Bytes::new(device.total).to_string(),
            amount(uses.used),
            amount(uses.in_slices),
            amount(uses.left_to_give),
            own(device.uuid, device.total),
            shown_fence(device),
            kind.to_owned(),
            device.name.clone(),
        ]);
        rows.extend(device.mig.iter().map(|instance| {
            let uses = Use::of(instance.uuid, cards);
            [
                String::new(),
                number(instance.cuda_ordinal),
                instance.uuid.to_string(),
                Bytes::new(instance.total).to_string(),
                amount(uses.used),
                amount(uses.in_slices),
                amount(uses.left_to_give),
                own(instance.uuid, instance.total),
                fence(device).to_owned(),
                "instance".to_owned(),
                instance.name.clone(),
            ]
        }));
    }
    rows
}

#[cfg(test)]
#[path = "devices_tests.rs"]
mod tests;
