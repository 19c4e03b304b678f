//! The plugin's methods, as the engine calls them.
//! Touches: the host's policy and registry, by reading; the event file and the host's log.

use super::adjust::{Adjusting, adjust};
use super::api::{
    CREATE_CONTAINER, ConfigureRequest, ConfigureResponse, Container, CreateRequest,
    CreateResponse, PLUGIN, PodSandbox, SynchronizeRequest, SynchronizeResponse,
};
use super::escapes;
use super::ttrpc::{FAILED, Request, Status, UNIMPLEMENTED};
use crate::base::log;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::events::journal;
use gpuslice_host::machine::policy::{self, Policy};
use gpuslice_host::slices::ended;
use prost::Message;
use std::path::PathBuf;

/// The plugin of one host.
#[derive(Debug)]
pub struct Plugin {
    paths: HostPaths,
    hook: PathBuf,
    /// The pods and containers of a synchronization that has not ended.
    seen: (Vec<PodSandbox>, Vec<Container>),
}

/// The result of a call.
#[derive(Debug)]
pub(super) enum Called {
    /// An answer.
    Answer(Vec<u8>),
    /// An answer, after the engine has said its name.
    Configured(Vec<u8>, String),
    /// An answer, and the end of the session.
    Shutdown,
}

impl Plugin {
    /// The plugin of a host. `hook`: gpuslice-hook, by its path on the host.
    #[must_use]
    pub fn new(paths: HostPaths, hook: PathBuf) -> Plugin {
        Plugin {
            paths,
            hook,
            seen: (Vec::new(), Vec::new()),
        }
    }

    /// Answers a call.
    pub(super) fn call(&mut self, request: &Request) -> Result<Called, Status> {
        let unknown = || Status {
            code: UNIMPLEMENTED,
            message: format!("gpuslice: no method {}.{}", request.service, request.method),
        };
        if request.service != PLUGIN {
            return Err(unknown());
        }
        match request.method.as_str() {
            "Configure" => {
                let engine: ConfigureRequest = decode(request)?;
                // The connection to an engine that went away may have ended in the middle of its list.
                self.seen = <(Vec<_>, Vec<_>)>::default();
                let name = format!("{} {}", engine.runtime_name, engine.runtime_version);
                let answer = ConfigureResponse {
                    events: CREATE_CONTAINER,
                };
                Ok(Called::Configured(answer.encode_to_vec(), name))
            }
            "Synchronize" => Ok(self.synchronize(decode(request)?)),
            "CreateContainer" => Ok(self.create(&decode(request)?)),
            "Shutdown" => Ok(Called::Shutdown),
            // Notices of events that have no call of their own; none is subscribed to.
            "StateChange" => Ok(Called::Answer(Vec::new())),
            _ => Err(unknown()),
        }
    }

    fn synchronize(&mut self, request: SynchronizeRequest) -> Called {
        self.seen.0.extend(request.pods);
        self.seen.1.extend(request.containers);
        if !request.more {
            let (pods, containers) = std::mem::take(&mut self.seen);
            let policy = self.policy();
            let host = self.adjusting(policy.as_ref());
            for event in escapes::of(&pods, &containers, &host, &self.paths) {
                log::line(&journal::line(&event));
                ended::write(&self.paths, &event);
            }
        }
        let answer = SynchronizeResponse { more: request.more };
        Called::Answer(answer.encode_to_vec())
    }

    fn create(&self, request: &CreateRequest) -> Called {
        let pod = request.pod.clone().unwrap_or_default();
        let container = request.container.clone().unwrap_or_default();
        let policy = self.policy();
        let host = self.adjusting(policy.as_ref());
        let adjust = adjust(&pod, &container, &host);
        if adjust.is_none() && host.leaves_privileged(&pod, &container) {
            log::line(&format!(
                "{}/{}/{} starts without a slice: it is privileged, requests none, and does not say that \
                 it uses a GPU",
                pod.namespace, pod.name, container.name
            ));
        }
        Called::Answer(CreateResponse { adjust }.encode_to_vec())
    }

    fn adjusting<'a>(&'a self, policy: Option<&'a Policy>) -> Adjusting<'a> {
        Adjusting {
            policy,
            hook: &self.hook,
        }
    }

    /// The policy. It is read for each container, as the hook reads it.
    fn policy(&self) -> Option<Policy> {
        let read = policy::read(&self.paths);
        read.inspect_err(|error| log::line(&error.to_string())).ok()
    }
}

/// The argument of a call. A container whose description is not understood is refused.
fn decode<T: Message + Default>(request: &Request) -> Result<T, Status> {
    T::decode(request.payload.as_slice()).map_err(|error| Status {
        code: FAILED,
        message: format!("gpuslice: {}: {error}", request.method),
    })
}
