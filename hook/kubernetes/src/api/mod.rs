//! The API server: credentials, requests, errors.
//! Touches: the API server; the pod's credentials or a kubeconfig, by reading them.
//! Law: no request waits longer than [`PATIENCE`]. The kubelet waits for the driver meanwhile.

mod reports;

use crate::base::settings::{DRIVER, Settings};
use anyhow::Context;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube_client::api::{DeleteParams, ListParams, PostParams, WatchParams};
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::core::WatchEvent;
use kube_client::{Api, Client, Config};
use std::future::Future;
use std::time::Duration;
use tokio_stream::Stream;

/// The longest time of one request.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The seconds after which the API server ends a watch, so that a dead connection is noticed.
const WATCH_SECONDS: u32 = 290;

/// The cluster of this node.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    node: String,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The API server refused it.
    #[error("the API server answers {code} {reason}: {message}")]
    Refused {
        /// The HTTP status.
        code: u16,
        /// The reason, in one word.
        reason: String,
        /// The message.
        message: String,
    },
    /// There was no answer.
    #[error("the API server cannot be reached")]
    Unreachable(#[source] kube_client::Error),
    /// There was no answer in time.
    #[error("the API server does not answer within {} s", PATIENCE.as_secs())]
    TimedOut,
}

impl ApiError {
    /// The HTTP status of a refusal.
    #[must_use]
    pub const fn code(&self) -> Option<u16> {
        match self {
            ApiError::Refused { code, .. } => Some(*code),
            ApiError::Unreachable(_) | ApiError::TimedOut => None,
        }
    }

    /// Whether the object is gone, or another one has its name now.
    #[must_use]
    pub fn is_of_no_object(&self) -> bool {
        match self {
            ApiError::Refused { code: 404, .. } => true,
            ApiError::Refused { code, message, .. } => *code == 409 && is_by_uid(message),
            ApiError::Unreachable(_) | ApiError::TimedOut => false,
        }
    }

    /// Whether the API server decided, and will decide alike when asked again. 401 and 429 are not
    /// such: a token is replaced, and a server is relieved.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        matches!(self.code(), Some(400 | 403..=405 | 422))
    }

    /// Whether other requests of this kind fail alike: the server cannot be reached, the token is
    /// not valid, or the role lacks the right. Admission policies, quotas and webhooks refuse one
    /// object, and so does a namespace that is being deleted.
    #[must_use]
    pub fn is_general(&self) -> bool {
        match self {
            ApiError::Unreachable(_) | ApiError::TimedOut => true,
            ApiError::Refused { code: 401, .. } => true,
            ApiError::Refused { code, message, .. } => *code == 403 && is_by_role(message),
        }
    }
}

/// Whether a message of status 409 is about the object's uid. Other conflicts pass: the object was
/// changed meanwhile.
fn is_by_uid(message: &str) -> bool {
    message.contains("UID in precondition") || message.contains("uid mismatch")
}

/// Whether a message of status 403 is about a role: `events is forbidden: User "x" cannot create
/// resource "events" in API group "" in the namespace "team"`.
fn is_by_role(message: &str) -> bool {
    let user = message.split_once(" is forbidden: User \"");
    user.is_some_and(|(_, rest)| rest.contains("\" cannot "))
}

impl From<kube_client::Error> for ApiError {
    fn from(error: kube_client::Error) -> ApiError {
        match error {
            kube_client::Error::Api(status) => ApiError::Refused {
                code: status.code,
                reason: status.reason.clone(),
                message: status.message.clone(),
            },
            error => ApiError::Unreachable(error),
        }
    }
}

/// How a slice is written.
fn how(dry_run: bool) -> PostParams {
    PostParams {
        dry_run,
        ..PostParams::default()
    }
}

async fn within<T>(
    asked: impl Future<Output = Result<T, kube_client::Error>>,
) -> Result<T, ApiError> {
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(answered) => answered.map_err(ApiError::from),
        Err(_) => Err(ApiError::TimedOut),
    }
}

impl Cluster {
    /// Reads the credentials. Nothing is sent yet.
    ///
    /// # Errors
    /// When there are none, or they cannot be used.
    pub async fn connect(settings: &Settings) -> anyhow::Result<Cluster> {
        let config = match &settings.kubeconfig {
            None => Config::incluster().context("this process has no credentials of a pod")?,
            Some(file) => {
                let wrong = || format!("cannot use the kubeconfig {}", file.display());
                let read = Kubeconfig::read_from(file).with_context(wrong)?;
                let options = KubeConfigOptions::default();
                let config = Config::from_custom_kubeconfig(read, &options).await;
                config.with_context(wrong)?
            }
        };
        let client = Client::try_from(config).context("cannot use the API server's address")?;
        Ok(Cluster {
            client,
            node: settings.node_name.clone(),
        })
    }

    fn all_slices(&self) -> Api<ResourceSlice> {
        Api::all(self.client.clone())
    }

    /// Selects this driver's slices of this node.
    fn ours(&self) -> String {
        format!("spec.driver={DRIVER},spec.nodeName={}", self.node)
    }

    /// This driver's slices of this node.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn slices(&self) -> Result<Vec<ResourceSlice>, ApiError> {
        let selected = ListParams::default().fields(&self.ours());
        let list = within(self.all_slices().list(&selected)).await?;
        Ok(list.items)
    }

    /// Creates a slice, and returns it as the API server keeps it. `dry_run`: as it would keep it.
    ///
    /// # Errors
    /// [`ApiError`]; 409 if the name is taken.
    pub async fn create(
        &self,
        slice: &ResourceSlice,
        dry_run: bool,
    ) -> Result<ResourceSlice, ApiError> {
        within(self.all_slices().create(&how(dry_run), slice)).await
    }

    /// Replaces a slice, and returns it as the API server keeps it. `dry_run`: as it would keep it.
    ///
    /// # Errors
    /// [`ApiError`]; 409 if it has changed meanwhile, 404 if it is gone.
    pub async fn replace(
        &self,
        name: &str,
        slice: &ResourceSlice,
        dry_run: bool,
    ) -> Result<ResourceSlice, ApiError> {
        let slices = self.all_slices();
        within(slices.replace(name, &how(dry_run), slice)).await
    }

    /// Deletes a slice. A slice that is gone is deleted.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn delete(&self, name: &str) -> Result<(), ApiError> {
        let slices = self.all_slices();
        match within(slices.delete(name, &DeleteParams::default())).await {
            Err(error) if error.code() != Some(404) => Err(error),
            _ => Ok(()),
        }
    }

    /// The changes of this driver's slices of this node, until the API server ends the watch.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn changes(
        &self,
    ) -> Result<
        impl Stream<Item = Result<WatchEvent<ResourceSlice>, kube_client::Error>> + use<>,
        ApiError,
    > {
        let slices = self.all_slices();
        let selected = WatchParams::default()
            .fields(&self.ours())
            .timeout(WATCH_SECONDS);
        // From version 0, the API server answers from its cache.
        within(slices.watch(&selected, "0")).await
    }

    /// A claim.
    ///
    /// # Errors
    /// [`ApiError`]; 404 if there is none.
    pub async fn claim(&self, namespace: &str, name: &str) -> Result<ResourceClaim, ApiError> {
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), namespace);
        within(claims.get(name)).await
    }

    /// This node.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn node(&self) -> Result<Node, ApiError> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        within(nodes.get(&self.node)).await
    }

    /// This node's name.
    #[must_use]
    pub fn node_name(&self) -> &str {
        &self.node
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_busy_or_wants_a_new_token_is_asked_again() {
        let refused = |code| ApiError::Refused {
            code,
            reason: String::new(),
            message: String::new(),
        };
        assert!(
            [400, 403, 404, 422]
                .map(refused)
                .iter()
                .all(ApiError::is_final)
        );
        let mut others = [401, 409, 429, 500, 503].map(refused).into_iter();
        assert!(!others.any(|error| error.is_final()));
        assert!(!ApiError::TimedOut.is_final());
    }

    #[test]
    fn a_refusal_of_one_object_is_told_from_a_missing_permission() {
        let refused = |code, message: &str| ApiError::Refused {
            code,
            reason: String::new(),
            message: message.to_owned(),
        };
        // As Kubernetes 1.36 answers.
        let role = "events is forbidden: User \"system:serviceaccount:gpuslice:gpuslice\" cannot \
                    create resource \"events\" in API group \"\" in the namespace \"team\"";
        for error in [
            refused(401, "Unauthorized"),
            refused(403, role),
            ApiError::TimedOut,
        ] {
            assert!(error.is_general(), "{error}");
        }
        let policy = "events \"web.1\" is forbidden: ValidatingAdmissionPolicy 'x' with binding 'x' \
                      denied request: no";
        let quota = "events \"web.1\" is forbidden: exceeded quota: q, requested: count/events=1";
        for (code, message) in [(403, policy), (403, quota), (429, "busy"), (500, "webhook")] {
            let error = refused(code, message);
            assert!(!error.is_general(), "{error}");
        }
    }
}
