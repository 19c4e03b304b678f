//! Computes for each GPU how much of it slices hold, what else holds it, and what is left to give.
//! Touches: the records of admission, and the links of runs to them; on unified memory the host's meminfo
//! and promises, and its policy.
//! Law: memory that slices were admitted for is not left to give, whether they use it or not, and neither
//! is memory in use outside slices.

use super::driver::{Card, Drivers, Machine};
use super::model::{CardStatus, DeviceStatus, SliceStatus};
use super::users::with_rights_of;
use crate::runs::admission::Room;
use crate::runs::host_memory;
use crate::runs::promise::Promises;
use crate::runs::run_dir;
use crate::runs::tenancy;
use gpuslice_config::slice::host_reserve;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::machine::policy;
use gpuslice_host::slices::tenants::Tenant;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

/// Returns the GPUs and MIG instances of every machine that answers.
pub(super) fn cards(
    places: &HostPaths,
    drivers: &Drivers,
    slices: &[SliceStatus],
) -> Vec<CardStatus> {
    let mut cards = Vec::new();
    let reserve = policy::read(places).ok().and_then(|policy| policy.reserve);
    for machine in drivers.machines() {
        let tenants = tenancy::standing(machine.state().as_deref(), places);
        let own: Vec<&SliceStatus> = slices
            .iter()
            .filter(|slice| slice.machine == *machine)
            .collect();
        let facts = drivers.cards(machine).into_iter();
        cards.extend(facts.map(|facts| card(facts, machine, &tenants, &own, reserve)));
    }
    cards
}

fn card(
    facts: Card,
    machine: &Machine,
    tenants: &[Tenant],
    slices: &[&SliceStatus],
    reserve: Option<Bytes>,
) -> CardStatus {
    // Runs that share a ledger are one slice.
    let mut ledgers = BTreeSet::new();
    let counts_once = |slice: &&&SliceStatus| {
        slice
            .ledger
            .as_ref()
            .is_none_or(|ledger| ledgers.insert(ledger.clone()))
    };
    let is_here = |device: &&DeviceStatus| device.device.as_ref() == Some(&facts.uuid);
    let parts: Vec<(&SliceStatus, &DeviceStatus)> = slices
        .iter()
        .filter(counts_once)
        .flat_map(|slice| {
            let here = slice.devices.iter().filter(is_here);
            here.map(|device| (*slice, device))
        })
        .collect();
    let shares: Vec<&DeviceStatus> = parts.iter().map(|(_, share)| *share).collect();
    let of_slices = shares.iter().filter_map(|share| share.unified);
    let known = facts.unified.or(of_slices.max());
    let unified = known.unwrap_or_default();
    let mut card = CardStatus {
        in_slices: sum(shares.iter().filter_map(|share| share.used_or_reported())),
        index: facts.index,
        name: facts.name,
        machine: machine.clone(),
        total: facts.total,
        used: facts.used,
        unified,
        may_be_unified: known != Some(false),
        ..CardStatus::default()
    };
    if unified {
        on_the_host(&mut card, slices, reserve);
    }
    let most = card.total.unwrap_or(u64::MAX);
    let limits = shares.iter().filter_map(|share| share.limit);
    card.limits_sum = sum(limits.map(|limit| limit.min(most)));
    card.outside_slices = card.used.map(|used| used.saturating_sub(card.in_slices));
    if let (false, Some(total), Ok(uuid)) = (unified, card.total, facts.uuid.parse::<DeviceUuid>())
    {
        let admitted = tenants
            .iter()
            .map(|tenant| tenant.of_card(uuid, Bytes::new(total)).get());
        // A slice file that names a ledger is not admitted, and a slice in another container is not
        // in this list. A run that does not see the card was not admitted on it.
        let limits = parts.iter().filter_map(|(slice, share)| {
            let admitted = tenant_of(slice, tenants).map(|tenant| {
                let total = Bytes::new(total);
                tenant.of_card(uuid, total).get()
            });
            admitted.or(share.limit.map(|limit| limit.min(most)))
        });
        let given = sum(admitted).max(sum(limits));
        let taken = given.saturating_add(card.outside_slices.unwrap_or(0));
        card.left_to_give = Some(total.saturating_sub(taken));
    }
    card.device = facts.uuid;
    card
}

/// The record of a run's admission.
fn tenant_of<'a>(slice: &SliceStatus, tenants: &'a [Tenant]) -> Option<&'a Tenant> {
    let user = slice.user?;
    let record = run_dir::private_folder(&slice.file)?.join(run_dir::TENANT);
    let record = with_rights_of(user, || fs::read_link(record)).ok()?;
    let mut tenants = tenants.iter();
    tenants.find(|tenant| tenant.file == record && tenant.uid == user.0)
}

/// Fills in the memory of a GPU that shares the host's memory: total, used and left to give, from the
/// host's meminfo and promises. If meminfo cannot be read, `used` is `None`.
fn on_the_host(card: &mut CardStatus, slices: &[&SliceStatus], reserve: Option<Bytes>) {
    let state = card.machine.state();
    let meminfo = state.as_ref().map(|state| state.join("meminfo"));
    let meminfo = meminfo.filter(|path| path.exists());
    let meminfo = meminfo.unwrap_or_else(|| PathBuf::from(host_memory::MEMINFO));
    let Ok(host) = host_memory::read(&meminfo) else {
        card.used = None;
        return;
    };
    card.total = Some(host.total.get());
    card.used = Some(host.total.minus(host.available).get());
    let promises = slices.iter().filter_map(|slice| slice.promise.as_ref());
    let known = promises.filter_map(|promise| promise.host_left).min();
    // A slice may have asked for a smaller reserve than the next one has.
    let reserve = reserve.unwrap_or(host_reserve::default_reserve(host.total));
    let neighbours = Promises::of(state.as_deref()).standing_now();
    let left = Room::on(&host, reserve, neighbours).left().get();
    card.left_to_give = Some(known.map_or(left, |known| known.min(left)));
}

fn sum(parts: impl Iterator<Item = u64>) -> u64 {
    parts.fold(0, u64::saturating_add)
}
