//! Requests that report something: the status of a claim's devices, and events.
//! Touches: the API server.

use super::{ApiError, Cluster, within};
use crate::base::settings::DRIVER;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube_client::Api;
use kube_client::api::{Patch, PatchParams, PostParams};
use serde_json::Value;

impl Cluster {
    /// Applies (server-side) a status to a claim. The entries that this driver has applied before and
    /// does not repeat are removed, and those of others stay.
    ///
    /// # Errors
    /// [`ApiError`]; 404 if the claim is gone, 409 if another claim has this name.
    pub async fn apply_status(
        &self,
        namespace: &str,
        name: &str,
        status: &Value,
    ) -> Result<(), ApiError> {
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), namespace);
        let how = PatchParams::apply(DRIVER).force();
        let patch = Patch::Apply(status);
        within(claims.patch_status(name, &how, &patch)).await?;
        Ok(())
    }

    /// Creates an event.
    ///
    /// # Errors
    /// [`ApiError`]; 409 if there is one of this name.
    pub async fn create_event(&self, namespace: &str, event: &Event) -> Result<(), ApiError> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        within(events.create(&PostParams::default(), event)).await?;
        Ok(())
    }

    /// Changes values of an event.
    ///
    /// # Errors
    /// [`ApiError`]; 404 if it is gone: events are kept for an hour.
    pub async fn patch_event(
        &self,
        namespace: &str,
        name: &str,
        values: &Value,
    ) -> Result<(), ApiError> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let patch = Patch::Merge(values);
        within(events.patch(name, &PatchParams::default(), &patch)).await?;
        Ok(())
    }
}
