//! Slices of other users, as far as every user may know them: their names, owners and limits.
//! Touches: the records of admission and the cgroups of processes, which every user may read.
//!
//! A user cannot read the slice file and ledger of another user's slice. The record with which the
//! slice was admitted on a GPU says its name and its limits. It does not exist for slices on unified
//! memory and on simulated machines.

use super::model::{DeviceStatus, Fence, SliceStatus};
use super::users::User;
use crate::driver::limits;
use crate::runs::{leaf, registry, tenancy};
use crate::slice::current as current_slice;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::machine::cgroups;
use gpuslice_host::slices::tenants::Tenant;
use std::cell::OnceCell;

/// The admitted slices of other users.
pub(super) struct Strangers {
    places: HostPaths,
    tenants: OnceCell<Vec<Tenant>>,
}

impl Strangers {
    pub(super) fn of(places: &HostPaths) -> Strangers {
        Strangers {
            places: places.clone(),
            tenants: OnceCell::new(),
        }
    }

    fn tenants(&self) -> &[Tenant] {
        self.tenants
            .get_or_init(|| tenancy::standing(None, &self.places))
    }

    /// Returns the record of a run, named by its command's process.
    pub(super) fn of_run(&self, pid: Option<i32>, user: Option<User>) -> Option<&Tenant> {
        let is_the_runs = |tenant: &&Tenant| {
            tenant.owner.map(|owner| owner.pid) == pid && Some(User(tenant.uid)) == user
        };
        pid.and(self.tenants().iter().find(is_the_runs))
    }

    /// Returns the slices that are on record and not listed: containers, and the runs whose watcher
    /// is not visible. Root can list all slices, and in a slice only that slice is shown.
    pub(super) fn unlisted(&self, slices: &[SliceStatus]) -> Vec<SliceStatus> {
        let own = User::own();
        if own == User(0) || registry::stands_alone() || current_slice::mounted().is_some() {
            return Vec::new();
        }
        let is_listed = |tenant: &Tenant| {
            let pid = tenant.owner.map(|owner| owner.pid);
            pid.is_some() && slices.iter().any(|slice| slice.pid == pid)
        };
        let strangers = self.tenants().iter();
        let strangers = strangers.filter(|one| User(one.uid) != own && !is_listed(one));
        let status = |tenant: &Tenant| {
            let mut status = SliceStatus {
                pid: tenant.owner.map(|owner| owner.pid),
                user: Some(User(tenant.uid)),
                error: Some(PRIVATE.to_owned()),
                is_private: true,
                ..SliceStatus::default()
            };
            describe(tenant, &mut status);
            status
        };
        strangers.map(status).collect()
    }
}

/// The reason why the use of another user's slice is unknown.
pub(super) const PRIVATE: &str = "its slice file can be read by its user and by root only";

/// Returns what enforces the limit of a run whose slice file is not readable. The driver does only for
/// root's runs, and every user may see their cgroups.
fn fence(tenant: &Tenant) -> Fence {
    let owner = tenant.owner.filter(|_| tenant.uid == 0);
    let cgroup = owner.and_then(|owner| cgroups::path_of(Some(owner.pid)).ok());
    match limits::backend().filter(|_| cgroup.is_some_and(|path| leaf::is_below_a_run(&path))) {
        Some(backend) => Fence::Driver(backend),
        None => Fence::Preload,
    }
}

/// Adds the name and the limits of a record to a slice whose files are not readable.
pub(super) fn describe(tenant: &Tenant, status: &mut SliceStatus) {
    status.name.clone_from(&tenant.name);
    status.fence = fence(tenant);
    let devices = tenant.devices.iter().map(|budget| DeviceStatus {
        device: Some(budget.uuid.to_string()),
        unified: Some(budget.integrated),
        limit: Some(budget.memory.get()),
        ..DeviceStatus::default()
    });
    status.devices = devices.collect();
}
