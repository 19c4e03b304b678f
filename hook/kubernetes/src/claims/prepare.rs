//! Prepares a claim and takes it back.
//! Touches: the claim's CDI file; the API server, devices.json and the host's /dev, by reading them.
//! Law: preparing twice has the result of preparing once, and taking back an unknown claim succeeds.

use crate::api::{ApiError, Cluster};
use crate::base::names::{self, NameError, Uid};
use crate::base::settings::Settings;
use crate::claims::allocation::{self, AllocationError};
use crate::claims::cdi::{self, Granted};
use crate::claims::gpu::{self, Access, AccessError};
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::files;
use gpuslice_host::base::text::shown;
use gpuslice_host::machine::devices::{self, Devices, DevicesError};
use std::io;
use std::path::PathBuf;

/// A claim, as the kubelet names it.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// The namespace.
    pub namespace: &'a str,
    /// The name.
    pub name: &'a str,
    /// The uid.
    pub uid: &'a str,
}

/// A device that is ready for containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// The request, or `request/subrequest`.
    pub request: String,
    /// The pool.
    pub pool: String,
    /// The device's name.
    pub device: String,
    /// The share's id.
    pub share: Option<Uid>,
    /// The CDI devices, by their whole names.
    pub cdi: Vec<String>,
}

/// Why a claim is not prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The kubelet's name of the claim is not a name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The claim cannot be read.
    #[error("cannot read the claim")]
    Api(#[from] ApiError),
    /// The allocation cannot be used.
    #[error(transparent)]
    Allocation(#[from] AllocationError),
    /// The list of GPUs cannot be read.
    #[error(transparent)]
    Devices(#[from] DevicesError),
    /// The device is not on this node.
    #[error("this node has no device \"{0}\" (the GPUs are {1})")]
    NoDevice(String, String),
    /// The share is larger than the GPU.
    #[error("{asked} is more than {device} has")]
    TooLarge {
        /// The GPU.
        device: String,
        /// The size of the share.
        asked: Bytes,
    },
    /// The container cannot get the GPU.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The CDI file cannot be changed.
    #[error("cannot {doing} {path}")]
    File {
        /// The operation.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Prepares a claim, and returns its devices.
///
/// # Errors
/// [`PrepareError`]; the claim's file is then as it was.
pub async fn prepare(
    settings: &Settings,
    cluster: &Cluster,
    named: Named<'_>,
) -> Result<Vec<Prepared>, PrepareError> {
    let uid: Uid = named.uid.parse()?;
    let namespace = names::subdomain("namespace", named.namespace)?;
    let name = names::subdomain("claim", named.name)?;
    let claim = cluster.claim(namespace, name).await?;
    let shares = allocation::shares(&claim, &uid, cluster.node_name())?;
    let devices = devices::read(&settings.host())?.unwrap_or_else(Devices::none);
    let granted: Vec<Granted> = shares
        .into_iter()
        .map(|share| {
            let target = gpu::find(&devices, &share.device)
                .ok_or_else(|| PrepareError::NoDevice(shown(&share.device), devices.indices()))?;
            if share.memory > target.memory {
                return Err(PrepareError::TooLarge {
                    device: target.to_string(),
                    asked: share.memory,
                });
            }
            Ok(Granted {
                access: gpu::access(settings, &target)?,
                uuid: target.uuid,
                share,
            })
        })
        .collect::<Result<_, _>>()?;
    let path = cdi::file(&settings.cdi, &uid);
    let text = cdi::text(
        &uid,
        &format!("{namespace}/{name}"),
        &granted,
        &settings.hook,
    );
    let written = files::folder(&settings.cdi, 0o755)
        .and_then(|()| files::replace(&path, text.as_bytes(), 0o644));
    written.map_err(|source| PrepareError::File {
        doing: "write",
        path,
        source,
    })?;
    Ok(granted.iter().map(|one| prepared(&uid, one)).collect())
}

fn prepared(uid: &Uid, granted: &Granted) -> Prepared {
    let share = &granted.share;
    let ours = format!("{}={}", cdi::KIND, cdi::device(uid, share));
    let toolkits = match &granted.access {
        Access::Toolkit(device) => Some(device.clone()),
        Access::Nodes(_) => None,
    };
    Prepared {
        request: share.request.clone(),
        pool: share.pool.clone(),
        device: share.device.clone(),
        share: share.id.clone(),
        cdi: toolkits.into_iter().chain([ours]).collect(),
    }
}

/// Takes a claim back.
///
/// # Errors
/// When the uid is not one, or the file cannot be removed.
pub fn unprepare(settings: &Settings, uid: &str) -> Result<(), PrepareError> {
    let uid: Uid = uid.parse()?;
    let path = cdi::file(&settings.cdi, &uid);
    // A driver that was killed while it wrote has left the incomplete file.
    let removed = files::remove(&path.with_extension(files::NEW));
    let removed = removed.and(files::remove(&path));
    removed.map_err(|source| PrepareError::File {
        doing: "remove",
        path,
        source,
    })
}
