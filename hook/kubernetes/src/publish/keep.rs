//! Keeps the node's slices published, and the driver's state true.
//! Touches: the API server; devices.json, the policy, the guard's state, the CDI folder and the host's
//! memory, by reading them.

use crate::api::Cluster;
use crate::base::log;
use crate::base::settings::Settings;
use crate::claims::{gpu, prepared};
use crate::publish::devices::{self, Facts};
use crate::publish::pressure::{self, Cause, Pressure};
use crate::publish::reconcile::{self, Kept};
use crate::publish::slices;
use crate::publish::taints::{self, Gone};
use crate::ready::state::{State, UNLISTED};
use crate::ready::{self, Refusal, engine};
use gpuslice_config::host::meminfo;
use gpuslice_host::base::read;
use gpuslice_host::machine::devices::{self as list, Devices};
use gpuslice_host::machine::{guard, policy};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use kube_client::core::WatchEvent;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{Notify, watch};
use tokio_stream::StreamExt;

/// How often the files are compared with those that were read. A comparison is a system call for each.
const LOOK: Duration = Duration::from_secs(1);

/// How often everything is checked without a cause. The watch reports changes of the slices at once.
const RECHECK: Duration = Duration::from_secs(600);

/// The pause after a refusal that only the operator can end.
const REFUSED: Duration = Duration::from_secs(10);

/// The shortest and the longest pause after a failure of the API server.
const SOONEST: Duration = Duration::from_millis(500);
const LATEST: Duration = Duration::from_secs(30);

/// The most bytes of a meminfo, and of a driver's version.
const CAP: usize = 1 << 16;

/// Publishes the slices, again and again.
#[derive(Clone)]
pub struct Keeper {
    /// The command line.
    pub settings: Arc<Settings>,
    /// The cluster.
    pub cluster: Cluster,
    /// The driver's state.
    pub state: Arc<State>,
    /// Asks for the next round.
    pub wake: Arc<Notify>,
    /// Whether the kubelet knows the driver.
    pub registered: Arc<AtomicBool>,
    /// The names of the devices that were published last, without those that are gone.
    pub published: watch::Sender<Vec<String>>,
    /// The causes of pressure that are in force.
    pub pressure: watch::Sender<BTreeSet<Cause>>,
}

impl Keeper {
    /// Runs until the process ends.
    pub async fn keep(self) {
        let (mut kept, mut gone) = (Kept::default(), Gone::default());
        let mut pause = SOONEST;
        loop {
            let seen = self.fingerprint();
            let next = match self.round(&mut kept, &mut gone).await {
                Ok(()) => {
                    pause = SOONEST;
                    let was_tried = self.is_trial();
                    self.state.set(Ok(()));
                    // The slices that were only tried are published now.
                    if was_tried && !self.is_trial() {
                        self.wake.notify_one();
                    }
                    RECHECK
                }
                Err(Refusal::Final(why)) => {
                    self.state.set(Err(why));
                    reconcile::withdraw(&self.cluster).await;
                    REFUSED
                }
                Err(Refusal::Unlisted(why)) => {
                    self.state.set(Err(why));
                    REFUSED
                }
                Err(Refusal::Unknown(why)) => {
                    // A driver that was ready stays ready: it asks the API server again for each claim.
                    match self.state.is_ready() {
                        true => log::line(&why),
                        false => self.state.set(Err(why)),
                    }
                    let now = pause;
                    pause = pause.saturating_mul(2).min(LATEST);
                    now
                }
            };
            self.wait(next, &seen).await;
        }
    }

    /// Waits for a cause of the next round.
    async fn wait(&self, longest: Duration, seen: &[Option<[u64; 4]>]) {
        let files_change = async {
            while self.fingerprint() == seen {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            () = self.wake.notified() => {}
            () = files_change => {}
            () = tokio::time::sleep(longest) => {}
        }
    }

    /// Whether slices are only written with `dryRun`. The scheduler places waiting pods at once. A
    /// kubelet that does not know the driver yet tries such a pod again only after a minute, and a
    /// driver that is not ready would refuse it.
    fn is_trial(&self) -> bool {
        !self.registered.load(Ordering::Relaxed) || !self.state.is_ready()
    }

    async fn round(&self, kept: &mut Kept, gone: &mut Gone) -> Result<(), Refusal> {
        let (node, engine) = ready::check(&self.settings, &self.cluster).await?;
        self.state.engine_is(engine);
        let (facts, unlisted) = self.facts().map_err(Refusal::Final)?;
        let devices = devices::devices(&facts, true);
        // Without a list, only devices are left that were published before. They get a taint at once.
        let dry_run = self.is_trial() && unlisted.is_none();
        match self.publish(&node, &facts, true, dry_run, kept, gone).await {
            // A server that knows the mapping in another form refuses the whole slice.
            Err(Refusal::Final(why)) if has_mapping(&devices) && why.contains("Mappings") => {
                let published = self.publish(&node, &facts, false, dry_run, kept, gone);
                published.await?;
            }
            published => published?,
        }
        let names = devices.into_iter().map(|device| device.name).collect();
        self.published.send_if_modified(|old| {
            let is_changed = *old != names;
            *old = names;
            is_changed
        });
        unlisted.map_or(Ok(()), |why| Err(Refusal::Unlisted(why)))
    }

    async fn publish(
        &self,
        node: &Node,
        facts: &Facts,
        maps_memory: bool,
        dry_run: bool,
        kept: &mut Kept,
        gone: &mut Gone,
    ) -> Result<(), Refusal> {
        let has_taints = !kept.drops_taints;
        let causes = self.pressure.borrow().clone();
        let claims = prepared::read(&self.settings.cdi);
        let shares = claims.iter().flat_map(|claim| &claim.shares);
        let claimed = shares.map(|share| gpu::name(share.uuid)).collect();
        let wanted = |found: &[ResourceSlice]| {
            let mut devices = devices::devices(facts, maps_memory);
            if has_taints {
                taints::pressed(&mut devices, &facts.devices, &causes);
                devices.extend(gone.devices(found, &facts.devices, &claimed, Instant::now()));
                taints::keep_times(&mut devices, found);
            }
            slices::slices(node, &devices)
        };
        reconcile::reconcile(&self.cluster, wanted, kept, dry_run).await?;
        if has_taints && kept.drops_taints {
            log::line("the API server drops taints of devices (feature gate DRADeviceTaints)");
            // A device that is gone must not be offered without its taint.
            let devices = devices::devices(facts, maps_memory);
            let wanted = |_: &[ResourceSlice]| slices::slices(node, &devices);
            reconcile::reconcile(&self.cluster, wanted, kept, dry_run).await?;
        }
        Ok(())
    }

    /// Watches the guard's state, and asks for a round when the causes of pressure change.
    pub async fn watch_guard(self) {
        let mut pressure = Pressure::default();
        let host = self.settings.host();
        loop {
            let time = SystemTime::now().duration_since(UNIX_EPOCH);
            let causes = pressure::causes(
                guard::read(&host).as_ref(),
                time.map_or(0, |since| since.as_secs()),
            );
            let in_force = pressure.look(causes, Instant::now());
            let is_changed = self.pressure.send_if_modified(|old| {
                let is_changed = *old != in_force;
                old.clone_from(&in_force);
                is_changed
            });
            if is_changed {
                log::line(&format!("pressure: {}", pressure::shown(&in_force)));
                self.wake.notify_one();
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The facts of this machine, and why there is no list of GPUs, if there is none.
    fn facts(&self) -> Result<(Facts, Option<String>), String> {
        let host = self.settings.host();
        let policy = policy::read(&host).map_err(sentence)?;
        let missing = || {
            format!(
                "{UNLISTED}, {} (run gpuslice devices --write)",
                host.devices().display()
            )
        };
        let listed = list::read(&host).map_err(sentence);
        let (devices, unlisted) = match listed.and_then(|listed| listed.ok_or_else(missing)) {
            Ok(devices) => (devices, None),
            Err(why) => (Devices::none(), Some(why)),
        };
        let memory = read::open(&host.meminfo()).and_then(|file| read::capped(file, CAP));
        let memory = memory.ok().and_then(|text| meminfo::parse(&text));
        let driver = self
            .settings
            .on_host(Path::new("/sys/module/nvidia/version"));
        let driver = read::file(&driver, CAP).ok();
        let facts = Facts {
            devices,
            policy,
            host_memory: memory.map(|memory| memory.total),
            driver: driver.and_then(|text| String::from_utf8(text).ok()),
        };
        Ok((facts, unlisted))
    }

    /// The inode, size and time of change of each file that decides. One of them differs after a file
    /// was replaced or written. Files that the engine's configuration imports are read for each claim.
    fn fingerprint(&self) -> Vec<Option<[u64; 4]>> {
        let host = self.settings.host();
        let files = [host.devices(), host.policy()].into_iter();
        let files = files.chain(engine::configurations(&self.settings));
        let facts = files.map(|path| {
            let facts = path.metadata().ok()?;
            let times = [facts.ctime(), facts.ctime_nsec()].map(i64::cast_unsigned);
            let [seconds, nanoseconds] = times;
            Some([facts.ino(), facts.size(), seconds, nanoseconds])
        });
        facts.collect()
    }

    /// Watches the slices, and asks for a round when others change or delete one.
    pub async fn watch(self) {
        let mut pause = SOONEST;
        loop {
            self.state.until_ready().await;
            match self.cluster.changes().await {
                Err(_) => {
                    tokio::time::sleep(pause).await;
                    pause = pause.saturating_mul(2).min(LATEST);
                }
                Ok(changes) => {
                    let mut changes = std::pin::pin!(changes);
                    while let Some(Ok(change)) = changes.next().await {
                        pause = SOONEST;
                        if matches!(change, WatchEvent::Modified(_) | WatchEvent::Deleted(_)) {
                            self.wake.notify_one();
                        }
                    }
                    tokio::time::sleep(pause).await;
                    // A change may have been missed meanwhile.
                    self.wake.notify_one();
                }
            }
        }
    }
}

fn has_mapping(devices: &[Device]) -> bool {
    let mut all = devices.iter();
    all.any(|device| device.node_allocatable_resource_mappings.is_some())
}

/// An error with its causes, in one line.
fn sentence(error: impl Into<anyhow::Error>) -> String {
    format!("{:#}", error.into())
}
