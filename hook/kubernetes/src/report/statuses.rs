//! Keeps `status.devices` of the claims that are prepared on this node.
//! Touches: the API server; the CDI folder, records, ledgers and slice files, by reading them.
//! Law: a claim is written at most once in the time that the command line gives, and only if a value
//! has changed.

use crate::api::{ApiError, Cluster};
use crate::base::log;
use crate::base::names::Uid;
use crate::base::settings::{DRIVER, Settings};
use crate::claims::gpu;
use crate::claims::prepared::{PreparedClaim, PreparedClaims, PreparedShare};
use crate::report::measured;
use crate::report::pace::Pace;
use crate::report::status::Status;
use gpuslice_host::base::clock;
use gpuslice_host::slices::records::{self, SliceRecord};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// A change that is not worth a request of its own is written after this time.
const STALE: Duration = Duration::from_secs(600);

/// The requests for all claims of a node: one in this time, and so many at once.
const INTERVAL: Duration = Duration::from_secs(5);
const BURST: u32 = 20;

/// The shortest time between two requests for a claim that was refused: by an admission policy or a
/// webhook, or because the API server is busy.
const REFUSED: Duration = Duration::from_secs(600);
const BUSY: Duration = Duration::from_secs(30);

/// The shortest and the longest time between two looks at the ledgers.
const SOONEST: Duration = Duration::from_millis(500);
const LATEST: Duration = Duration::from_secs(10);

/// A claim, and what the API server knows of it.
#[derive(Debug, Default)]
struct Known {
    /// Whether the API server was asked for the status that an earlier process has written.
    is_read: bool,
    /// The status that was written last.
    written: Vec<Status>,
    /// The status of the last look, whose peak may be higher.
    seen: Vec<Status>,
    /// The time of the last write.
    at: Option<Instant>,
    /// Whether the driver has stopped writing this claim: it is gone, or its status is invalid.
    is_given_up: bool,
    /// The time of the last request, whatever its outcome.
    tried: Option<Instant>,
    /// After a refusal, nothing is sent until then.
    refused: Option<Instant>,
}

impl Known {
    /// Whether a request may be sent now.
    fn may_ask(&self, now: Instant) -> bool {
        !self.is_given_up && self.refused.is_none_or(|until| now >= until)
    }

    /// Notes a request that failed, maybe not for ever.
    fn note_failed(&mut self, claim: &PreparedClaim, error: &ApiError, now: Instant) {
        // The pace of all requests has noted the others.
        if error.is_general() {
            return;
        }
        if self.refused.is_none() {
            let PreparedClaim {
                namespace, name, ..
            } = claim;
            log::line(&format!("claim {namespace}/{name}: no status yet: {error}"));
        }
        let pause = if error.is_final() { REFUSED } else { BUSY };
        self.refused = now.checked_add(pause);
    }
}

/// Writes the statuses.
pub struct Statuses {
    cluster: Cluster,
    settings: Arc<Settings>,
    claims: PreparedClaims,
    known: BTreeMap<Uid, Known>,
    pace: Pace,
    /// The place for ledgers.
    bytes: Vec<u8>,
}

impl Statuses {
    /// The statuses of this node.
    #[must_use]
    pub fn new(settings: Arc<Settings>, cluster: Cluster) -> Statuses {
        Statuses {
            claims: PreparedClaims::new(settings.cdi.clone()),
            cluster,
            settings,
            known: BTreeMap::new(),
            pace: Pace::new("statuses of claims", INTERVAL, BURST, Instant::now()),
            bytes: Vec::new(),
        }
    }

    /// Runs until the process ends.
    pub async fn keep(mut self) {
        let Some(every) = self.settings.status_every() else {
            return;
        };
        let third = every.checked_div(3).unwrap_or(every);
        let pause = third.clamp(SOONEST, LATEST);
        loop {
            tokio::time::sleep(pause).await;
            self.look(every).await;
        }
    }

    async fn look(&mut self, every: Duration) {
        let claims = self.claims.now().to_vec();
        let is_known = |uid: &Uid| claims.binary_search_by(|one| one.uid.cmp(uid)).is_ok();
        self.known.retain(|uid, _| is_known(uid));
        if claims.is_empty() {
            return;
        }
        // A damaged record may be that of any claim; the others are still true.
        let Ok((records, _)) = records::survey(&self.settings.host()) else {
            return;
        };
        for claim in in_turn(&claims, &self.known) {
            self.look_at(claim, &records, every).await;
            // The kubelet's calls come first.
            tokio::task::yield_now().await;
        }
    }

    async fn look_at(&mut self, claim: &PreparedClaim, records: &[SliceRecord], every: Duration) {
        let host = self.settings.host();
        let mut known = self.known.remove(&claim.uid).unwrap_or_default();
        let shares = claim.shares.iter();
        let measured: Vec<_> = shares
            .map(|share| measured::measure(&host, share, records, &mut self.bytes))
            .collect();
        if !known.is_read && known.may_ask(Instant::now()) {
            self.read(claim, &mut known).await;
        }
        // A claim whose containers have not started yet has nothing to say.
        let is_new = known.seen.is_empty() && measured.iter().all(Option::is_none);
        if known.is_read && !known.is_given_up && !is_new {
            let now = clock::rfc3339(seconds());
            let each = claim.shares.iter().zip(&measured);
            known.seen = each
                .map(|(share, measured)| {
                    let before = find(&known.seen, share).or_else(|| find(&known.written, share));
                    Status::of(share, measured.as_ref(), before, &now)
                })
                .collect();
            if is_due(&known, every) && known.may_ask(Instant::now()) {
                self.write(claim, &mut known).await;
            }
        }
        self.known.insert(claim.uid.clone(), known);
    }

    /// Reads the status that an earlier process has written, so that a restart writes nothing.
    async fn read(&mut self, claim: &PreparedClaim, known: &mut Known) {
        let now = Instant::now();
        if !self.pace.take(now) {
            return;
        }
        known.tried = Some(now);
        let read = self.cluster.claim(&claim.namespace, &claim.name).await;
        self.pace.note(&read, now);
        let found = match read {
            Ok(found) => found,
            Err(error) if error.code() == Some(404) => {
                known.is_given_up = true;
                return;
            }
            Err(error) => return known.note_failed(claim, &error, now),
        };
        known.refused = None;
        // A claim of the same name is another one.
        known.is_given_up = found.metadata.uid.as_deref() != Some(claim.uid.as_str());
        known.is_read = !known.is_given_up;
        let devices = found.status.and_then(|status| status.devices);
        let own = devices.iter().flatten();
        let own = own.filter(|one| one.driver == DRIVER && one.pool == self.cluster.node_name());
        let found: Vec<Status> = own.filter_map(Status::read).collect();
        let shares = claim.shares.iter();
        known.written = shares
            .filter_map(|share| find(&found, share).cloned())
            .collect();
        known.seen.clone_from(&known.written);
        known.at = (!known.written.is_empty()).then_some(now);
    }

    async fn write(&mut self, claim: &PreparedClaim, known: &mut Known) {
        let now = Instant::now();
        if !self.pace.take(now) {
            return;
        }
        let status = applied(claim, &known.seen, self.cluster.node_name());
        let PreparedClaim {
            namespace, name, ..
        } = claim;
        known.tried = Some(now);
        let applied = self.cluster.apply_status(namespace, name, &status).await;
        self.pace.note(&applied, now);
        match applied {
            Ok(()) => {
                known.refused = None;
                known.written.clone_from(&known.seen);
                known.at = Some(now);
            }
            // The claim is gone, or another one has its name now.
            Err(error) if error.is_of_no_object() => known.is_given_up = true,
            Err(error) if matches!(error.code(), Some(400 | 422)) => {
                log::line(&format!("claim {namespace}/{name}: no status: {error}"));
                known.is_given_up = true;
            }
            Err(error) => known.note_failed(claim, &error, now),
        }
    }
}

/// The claims in the order of their visits: first those for which nothing was sent yet, and then
/// those whose last request is the oldest. So all of them share the pace evenly.
fn in_turn<'a>(
    claims: &'a [PreparedClaim],
    known: &BTreeMap<Uid, Known>,
) -> Vec<&'a PreparedClaim> {
    let mut turn: Vec<&PreparedClaim> = claims.iter().collect();
    turn.sort_by_key(|claim| known.get(&claim.uid).and_then(|known| known.tried));
    turn
}

/// The status of a share among these.
fn find<'a>(statuses: &'a [Status], share: &PreparedShare) -> Option<&'a Status> {
    let device = gpu::name(share.uuid);
    let id = share.id.as_ref().map(Uid::as_str);
    let mut all = statuses.iter();
    all.find(|one| one.device == device && one.share.as_deref() == id)
}

/// Whether the claim is to be written now.
fn is_due(known: &Known, every: Duration) -> bool {
    let age = known.at.map(|at| at.elapsed());
    let is_old = |least: Duration| age.is_none_or(|age| age >= least);
    let is_news = known.written.len() != known.seen.len()
        || std::iter::zip(&known.written, &known.seen).any(|(old, new)| old.differs_much(new));
    let is_any = known.written != known.seen;
    (is_news && is_old(every)) || (is_any && is_old(every.max(STALE)) && known.at.is_some())
}

/// The claim as it is applied. With its uid, no other claim of its name is meant.
fn applied(claim: &PreparedClaim, statuses: &[Status], pool: &str) -> Value {
    let devices: Vec<Value> = statuses.iter().map(|one| one.entry(pool)).collect();
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": claim.name,
            "namespace": claim.namespace,
            "uid": claim.uid.as_str(),
        },
        "status": {"devices": devices},
    })
}

fn seconds() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
#[path = "statuses_tests.rs"]
mod tests;
