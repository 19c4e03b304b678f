//! Refuses to serve where a container of a claim would start without its slice.
//! Touches: the API server, the engine's configuration and the hook's file, by reading them; the
//! file of the readiness probe.
//! Law: a doubt that only the API server can settle does not end a service that was ready. An answer
//! that a container would start unlimited always does. Claims are taken back in any case.

pub mod engine;
pub mod state;

use crate::api::{ApiError, Cluster};
use crate::base::settings::Settings;
use k8s_openapi::api::core::v1::Node;
use std::error::Error;
use std::os::unix::fs::PermissionsExt;

/// Why the driver does not serve.
#[derive(Debug)]
pub enum Refusal {
    /// A container would start without its slice, or never.
    Final(String),
    /// There is no list of GPUs. The devices that were published have a taint.
    Unlisted(String),
    /// The API server did not say.
    Unknown(String),
}

impl Refusal {
    /// The refusal for a failed request.
    #[must_use]
    pub fn of(doing: &str, error: &ApiError) -> Refusal {
        let cause = error.source().map(|cause| format!(": {cause}"));
        let text = format!("cannot {doing}: {error}{}", cause.unwrap_or_default());
        match error.is_final() {
            true => Refusal::Final(text),
            false => Refusal::Unknown(text),
        }
    }
}

/// Checks the hook and the node's engine, and returns the node and the name of the engine.
///
/// # Errors
/// [`Refusal`], in one sentence.
pub async fn check(settings: &Settings, cluster: &Cluster) -> Result<(Node, String), Refusal> {
    hook(settings).map_err(Refusal::Final)?;
    let node = cluster.node().await;
    let node = node.map_err(|error| Refusal::of("read this node", &error))?;
    let status = node.status.as_ref();
    let engine = status
        .and_then(|status| status.node_info.as_ref())
        .map(|info| info.container_runtime_version.clone())
        .unwrap_or_default();
    engine::check(settings, &engine).map_err(Refusal::Final)?;
    Ok((node, engine))
}

/// Checks the files of the hook and of this engine again, which may have changed since the last
/// [`check`].
///
/// # Errors
/// Why a container would start without its slice, or never.
pub fn recheck(settings: &Settings, engine: &str) -> Result<(), String> {
    hook(settings)?;
    engine::check(settings, engine)
}

/// Checks the file of the hook.
///
/// # Errors
/// Why no container would get its slice.
pub fn hook(settings: &Settings) -> Result<(), String> {
    let hook = settings.hook.display();
    if !settings.hook.is_absolute() || settings.hook.to_str().is_none() {
        return Err(format!("--hook {hook}: not an absolute path in UTF-8"));
    }
    let facts = settings.on_host(&settings.hook).metadata();
    let is_program =
        facts.is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0);
    match is_program {
        true => Ok(()),
        false => Err(format!(
            "there is no executable {hook} on this host, so no container would get its slice \
             (install gpuslice, or name the file by --hook)"
        )),
    }
}
