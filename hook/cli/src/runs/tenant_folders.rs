//! The folders in which runs on GPUs with memory of their own are recorded, and the locks on them.
//! Touches: `/run/gpuslice/tenants`, the user's folder, or the simulated machine's; the registry of
//! runs; for root, the hook's lock.

use crate::runs::former::{self, Owners};
use crate::runs::registry::{self, Remains};
use crate::runs::run_dir;
use crate::runs::tenancy::{INTERVAL, PATIENCE};
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::machine::process::ProcessId;
use gpuslice_host::slices::records::{DeviceBudget, Registry};
use gpuslice_host::slices::tenants::{self, FOLDER, Tenant};
use nix::fcntl::OFlag;
use nix::unistd::geteuid;
use std::cell::LazyCell;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The folders in which tenants are recorded.
pub(super) struct Folders {
    /// The machine's folder, which root creates.
    machine: Option<PathBuf>,
    /// This user's folder, or the simulated machine's.
    pub(super) own: PathBuf,
}

/// The tenants of a machine.
pub(super) struct Tenants {
    /// The records of this process's former slices that have ended.
    pub(super) ended: Vec<PathBuf>,
    /// All other tenants.
    pub(super) held: Vec<Tenant>,
}

/// The locks held while a run is admitted.
pub(super) struct Lock<'a> {
    _hooks: Option<Registry<'a>>,
    _folder: Option<File>,
}

impl Folders {
    pub(super) fn of(simulated: Option<&Path>) -> Folders {
        match simulated {
            Some(state) => Folders {
                machine: None,
                own: state.join(FOLDER),
            },
            None => {
                let machine = machine().run().join(FOLDER);
                let own = registry::shared_folder().join(FOLDER);
                Folders {
                    machine: (machine != own).then(|| machine.clone()),
                    own,
                }
            }
        }
    }

    fn is_simulated(&self) -> bool {
        self.machine.is_none() && self.own != machine().run().join(FOLDER)
    }

    fn each(&self) -> impl Iterator<Item = &PathBuf> {
        self.machine.iter().chain([&self.own])
    }

    /// Removes the records of dead processes.
    pub(super) fn remove_dead(&self) {
        let is_used = is_used();
        self.each()
            .for_each(|folder| tenants::remove_dead(folder, &is_used));
    }

    /// Reads the tenants of all folders, for a new one of these owners.
    pub(super) fn tenants(&self, owners: Owners, remains: Remains) -> Tenants {
        if remains == Remains::Remove {
            self.remove_dead();
        }
        let is_used = is_used();
        let living = self
            .each()
            .flat_map(|folder| tenants::living(folder, &is_used));
        let user = geteuid().as_raw();
        let has_ended = |tenant: &Tenant| {
            owners.this().is_some_and(|own| tenant.owner == Some(own))
                && tenant.uid == user
                && !former::is_used(run_dir::TENANT, |file| file == tenant.file)
        };
        let (ended, held): (Vec<Tenant>, Vec<Tenant>) = living.partition(has_ended);
        Tenants {
            ended: ended.into_iter().map(|tenant| tenant.file).collect(),
            held,
        }
    }

    /// Reads the tenants of all folders, and removes nothing.
    pub(super) fn living(&self) -> Vec<Tenant> {
        self.each()
            .flat_map(|folder| tenants::living(folder, is_used()))
            .collect()
    }

    /// Locks the first folder that can be opened. If another process holds the lock for too long, the
    /// run starts without it.
    pub(super) fn lock(&self) -> Lock<'static> {
        let hooks = match geteuid().is_root() && !self.is_simulated() {
            // `Registry::lock` also creates the machine's folders.
            true => Registry::lock(machine()).ok(),
            false => None,
        };
        self.make();
        let mut folders = self.each().filter_map(|folder| File::open(folder).ok());
        Lock {
            _hooks: hooks,
            _folder: folders.next().inspect(wait_for_lock),
        }
    }

    /// Returns the folder of a record, if it is another user's and not one of these.
    pub(super) fn another<'a>(&self, record: &'a Path) -> Option<&'a Path> {
        let folder = record.parent()?;
        (!self.is_simulated() && self.each().all(|known| known != folder)).then_some(folder)
    }

    /// Creates the folders. A failure is reported later, when a record is written to the folder.
    fn make(&self) {
        if !self.is_simulated() {
            if let Some(above) = self.own.parent() {
                let _ = registry::make(above);
            }
            if geteuid().is_root() {
                let _ = tenants::make(machine());
            }
        }
        let _ = DirBuilder::new().mode(0o700).create(&self.own);
    }

    /// Records a tenant. Returns the record, and a warning if only runs of this user can count it.
    pub(super) fn write(
        &self,
        owner: &ProcessId,
        name: &str,
        budgets: &[DeviceBudget],
    ) -> io::Result<(PathBuf, Option<String>)> {
        // Until root has created the folder, a run counts only for its user. LIMITS.md says so.
        let machine = self.machine.as_ref().filter(|folder| folder.exists());
        let mut uncounted = None;
        if let Some(folder) = machine {
            match tenants::write(folder, owner, name, budgets) {
                Ok(written) => return Ok((written, None)),
                Err(error) => {
                    uncounted = Some(format!(
                        "runs of other users and containers cannot count this run: cannot write to \
                         {}: {error} (in a systemd unit: ReadWritePaths={})",
                        folder.display(),
                        folder.display()
                    ));
                }
            }
        }
        tenants::write(&self.own, owner, name, budgets).map(|written| (written, uncounted))
    }
}

/// Locks a folder, and reads its tenants. The caller has the rights of the folder's user only.
pub(super) fn locked(folder: &Path) -> (Option<File>, Vec<Tenant>) {
    // The user may have a pipe of this name, which must not block.
    let flags = (OFlag::O_DIRECTORY | OFlag::O_NONBLOCK).bits();
    let opened = File::options().read(true).custom_flags(flags).open(folder);
    let lock = opened.ok().inspect(wait_for_lock);
    (lock, tenants::living(folder, is_used()))
}

/// Waits for the lock on a folder, for a limited time.
fn wait_for_lock(folder: &File) {
    let start = Instant::now();
    while folder.try_lock().is_err() && start.elapsed() < PATIENCE {
        std::thread::sleep(INTERVAL);
    }
}

/// Tells whether a run that still has processes uses a record. Its first process and its watcher can
/// be gone.
fn is_used() -> impl Fn(&Path) -> bool {
    let used = LazyCell::new(|| registry::records_in_use(run_dir::TENANT));
    move |record| used.iter().any(|used| used == record)
}

fn machine() -> &'static HostPaths {
    static PLACES: std::sync::LazyLock<HostPaths> = std::sync::LazyLock::new(HostPaths::default);
    &PLACES
}
