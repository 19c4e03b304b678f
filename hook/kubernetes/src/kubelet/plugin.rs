//! The calls about claims, `DRAPlugin`, and about health, `DRAResourceHealth`.
//! Touches: all through [`crate::claims`].
//! Law: every claim of a call has an entry in the answer. A claim that fails fails alone. A driver that
//! is not ready prepares nothing, and takes claims back.

use crate::api::{Cluster, PATIENCE};
use crate::base::log;
use crate::base::settings::Settings;
use crate::claims::allocation;
use crate::claims::prepare::{self, Named, PrepareError};
use crate::kubelet::health;
use crate::kubelet::messages::{
    Claim, Claims, Device, Empty, Prepared, PreparedClaim, Unprepared, UnpreparedClaim,
};
use crate::kubelet::server::{self, Answer, Services};
use crate::ready::{self, state::State};
use gpuslice_host::base::text::shown;
use http::Request;
use hyper::body::Incoming;
use std::sync::Arc;
use tokio::sync::{Notify, watch};

/// The services of the driver's own socket.
pub struct Plugin {
    /// The command line.
    pub settings: Arc<Settings>,
    /// The cluster.
    pub cluster: Cluster,
    /// The driver's state.
    pub state: Arc<State>,
    /// Asks for the next round of publishing.
    pub wake: Arc<Notify>,
    /// The names of the published devices.
    pub published: watch::Receiver<Vec<String>>,
}

impl Services for Plugin {
    fn answer(self: Arc<Self>, request: Request<Incoming>) -> Answer {
        match request.uri().path() {
            "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
            | "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodePrepareResources" => {
                server::unary(request, move |claims| Arc::clone(&self).prepare(claims))
            }
            "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources"
            | "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodeUnprepareResources" => {
                server::unary(request, move |claims| {
                    std::future::ready(self.unprepare(&claims))
                })
            }
            "/v1.DRAResourceHealth/NodeWatchResources"
            | "/v1alpha1.DRAResourceHealth/NodeWatchResources" => {
                server::streamed(request, move |_: Empty| {
                    health::stream(self.cluster.node_name(), self.published.clone())
                })
            }
            _ => server::unknown(),
        }
    }
}

impl Plugin {
    async fn prepare(self: Arc<Self>, asked: Claims) -> Prepared {
        // The kubelet tries a claim that is refused again only after a minute, so a claim that comes
        // with the registration waits for the first check, and for the list of GPUs.
        self.state.checked(PATIENCE).await;
        let mut answer = Prepared::default();
        for claim in &asked.claims {
            let prepared = match self.prepare_one(claim).await {
                Ok(devices) => PreparedClaim {
                    devices,
                    error: String::new(),
                },
                Err(error) => {
                    log::line(&format!("{}: not prepared: {error}", name(claim)));
                    PreparedClaim {
                        devices: Vec::new(),
                        error: format!("gpuslice: {error}"),
                    }
                }
            };
            answer.claims.insert(claim.uid.clone(), prepared);
        }
        answer
    }

    async fn prepare_one(&self, claim: &Claim) -> Result<Vec<Device>, String> {
        self.state.now()?;
        // The state is that of the last round, and the engine's files may have changed since.
        ready::recheck(&self.settings, &self.state.engine())
            .inspect_err(|_| self.wake.notify_one())?;
        let named = Named {
            namespace: &claim.namespace,
            name: &claim.name,
            uid: &claim.uid,
        };
        let prepared = prepare::prepare(&self.settings, &self.cluster, named).await;
        let prepared = prepared.map_err(sentence)?;
        let devices = prepared.into_iter().map(|one| Device {
            // A container names the request, and not the alternative of it that was chosen.
            request_names: vec![allocation::main_request(&one.request).to_owned()],
            pool_name: one.pool,
            device_name: one.device,
            cdi_device_ids: one.cdi,
            share_id: one.share.map(|share| share.to_string()),
        });
        Ok(devices.collect())
    }

    fn unprepare(&self, asked: &Claims) -> Unprepared {
        let mut answer = Unprepared::default();
        for claim in &asked.claims {
            let error = match prepare::unprepare(&self.settings, &claim.uid) {
                Ok(()) => String::new(),
                Err(error) => {
                    let error = sentence(error);
                    log::line(&format!("{}: not taken back: {error}", name(claim)));
                    format!("gpuslice: {error}")
                }
            };
            let outcome = UnpreparedClaim { error };
            answer.claims.insert(claim.uid.clone(), outcome);
        }
        answer
    }
}

fn name(claim: &Claim) -> String {
    let Claim {
        namespace, name, ..
    } = claim;
    format!("claim {}/{}", shown(namespace), shown(name))
}

/// An error with its causes, in one line.
fn sentence(error: PrepareError) -> String {
    format!("{:#}", anyhow::Error::from(error))
}
