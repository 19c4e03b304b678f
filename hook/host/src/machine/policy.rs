//! Reads the operator's policy, `/etc/gpuslice/config.toml`.
//! Touches: that file.
//! Law: a key that is not understood is an error, and a file that others may write to is not used.

use crate::base::paths::HostPaths;
use crate::base::read;
use crate::base::toml_list;
use crate::machine::dialects::Dialects;
use crate::machine::meminfo::ShownBy;
use crate::machine::policy_values::{
    page_cache_word, present_as_word, pressure_word, selectors, size, some_size, thresholds,
    total_word,
};
use gpuslice_config::slice::thresholds::Thresholds;
use gpuslice_config::slice::{Fence, PageCache, PresentAs, Pressure, Total};
use gpuslice_config::words::device::Selector;
use gpuslice_config::words::units::Bytes;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// The bytes that are read of it.
pub const CAP: usize = 1 << 20;

/// The operator's policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Policy {
    /// Replaces `/usr/lib/gpuslice/libgpuslice.so`.
    pub library: Option<PathBuf>,
    /// Replaces `/usr/bin/gpuslice`.
    pub command: Option<PathBuf>,
    /// The GPUs that may be sliced, by index or uuid; absent: all.
    #[serde(deserialize_with = "selectors")]
    pub devices: Option<Vec<Selector>>,
    /// The memory that a host of unified memory keeps for itself.
    #[serde(deserialize_with = "size")]
    pub reserve: Option<Bytes>,
    /// Whether the slices' sizes together may exceed the memory.
    pub overcommit: bool,
    /// Whether a container without a request is refused when there is no default.
    pub deny_unannotated: bool,
    /// Kubernetes namespaces that the rules for containers without a request leave out. Only the NRI
    /// plugin uses it: the engine tells it the namespace. The hook reads the namespace from
    /// annotations, which images can forge.
    pub exempt_namespaces: Vec<String>,
    /// The treatment of a container whose slice fails.
    pub on_error: OnErrors,
    /// The treatment of a container whose image cannot load the library.
    pub when_not_injectable: NotInjectable,
    /// The slice of containers without a request.
    pub default: Option<DefaultSlice>,
    /// The most that one container, and one namespace, may have of each GPU.
    pub maximum: Maximum,
    /// Lower maxima for single namespaces.
    pub namespaces: BTreeMap<String, Maximum>,
    /// The treatment of models in the page cache.
    pub page_cache: PageCachePolicy,
    /// The pressure thresholds of a host of unified memory: `gpuslice run --threshold`.
    #[serde(deserialize_with = "thresholds")]
    pub thresholds: Thresholds,
    /// How `/proc/meminfo` shows slices of unified memory, to containers without the annotation.
    pub meminfo: Option<ShownBy>,
    /// The mechanism that enforces the limits of containers; absent: each container may choose.
    pub fence: Option<Fence>,
    /// The driver's own limits.
    pub driver_limits: DriverLimits,
    /// The runtimes that `gpuslice-runtime` tries in turn, by name or path.
    pub runtime: Vec<String>,
    /// The other systems whose requests count.
    pub dialects: Dialects,
}

/// Whether a container starts when something fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// It does not start.
    Refuse,
    /// It starts without a slice.
    Start,
}

/// Separate rules for containers with and without annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct OnErrors {
    /// For a container that requests a slice.
    pub annotated: OnError,
    /// For every other container.
    pub others: OnError,
}

impl Default for OnErrors {
    fn default() -> OnErrors {
        OnErrors {
            annotated: OnError::Refuse,
            others: OnError::Start,
        }
    }
}

/// The treatment of an image with another libc, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NotInjectable {
    /// The container starts, and one line reports that it has no slice.
    #[default]
    Warn,
    /// The container does not start.
    Refuse,
}

/// Whether the driver's own limit is set, too. `off` is the older form of `fence = "preload"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriverLimits {
    /// It is set if the driver supports limits.
    #[default]
    Auto,
    /// It is never set.
    Off,
}

/// Upper bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Maximum {
    /// Of one container on one GPU.
    #[serde(deserialize_with = "size")]
    pub container: Option<Bytes>,
    /// Of all containers of one namespace on one GPU.
    #[serde(deserialize_with = "size")]
    pub namespace: Option<Bytes>,
}

/// The slice of a container without a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DefaultSlice {
    /// Its budget on each GPU.
    #[serde(deserialize_with = "some_size")]
    pub memory: Bytes,
    /// The value reported as total memory.
    #[serde(default, deserialize_with = "total_word")]
    pub total: Option<Total>,
    /// How unified memory is presented.
    #[serde(default, deserialize_with = "present_as_word")]
    pub present_as: Option<PresentAs>,
    /// The bytes subtracted from the reported total.
    #[serde(default, deserialize_with = "size")]
    pub headroom: Option<Bytes>,
    /// Host memory that is not charged.
    #[serde(default, deserialize_with = "size")]
    pub host_allowance: Option<Bytes>,
    /// The reaction to memory pressure.
    #[serde(default, deserialize_with = "pressure_word")]
    pub pressure: Option<Pressure>,
}

/// The treatment of models in the page cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct PageCachePolicy {
    /// For containers that do not request a mode.
    #[serde(deserialize_with = "page_cache_word")]
    pub mode: Option<PageCache>,
    /// The mounts of models, by their paths in containers. Unless the container's mode is `keep`,
    /// their resident pages are dropped before it starts and after it has stopped.
    pub mounts: Vec<PathBuf>,
}

/// Why a policy cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// It cannot be read, or is not root's alone.
    #[error("cannot use {path}")]
    Read {
        /// The policy's path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// It is not valid.
    #[error("{path}: {fault}")]
    Parse {
        /// The policy's path.
        path: PathBuf,
        /// The line, and the error.
        fault: String,
    },
}

/// The runtimes that the host's policy names. Containers must be stoppable and deletable even if
/// another key is invalid. So if the file does not parse, only its list `runtime` is used.
///
/// # Errors
/// When the file exists and cannot be read.
pub fn runtimes(paths: &HostPaths) -> Result<Vec<String>, PolicyError> {
    let path = paths.policy();
    match text(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(PolicyError::Read { path, source }),
        Ok(text) => Ok(named(&text)),
    }
}

/// Like [`runtimes`], for callers that only stop, delete or query containers. No error in the file
/// prevents these. If the file is unreadable, or users other than root may have written it, or it is
/// invalid and no runtime is found in it, returns no runtimes, and the cause.
#[must_use]
pub fn runtimes_in_any_case(paths: &HostPaths) -> (Vec<String>, Option<PolicyError>) {
    let path = paths.policy();
    match roots(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => (Vec::new(), None),
        Err(source) => (Vec::new(), Some(PolicyError::Read { path, source })),
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let runtimes = named(&text);
            let fault = parse(&text).err().filter(|_| runtimes.is_empty());
            (
                runtimes,
                fault.map(|fault| PolicyError::Parse { path, fault }),
            )
        }
    }
}

fn named(text: &str) -> Vec<String> {
    let of_no_table = |line: &&str| !line.trim_start().starts_with('[');
    match parse(text) {
        Ok(policy) => policy.runtime,
        Err(_) => toml_list::texts(&mut text.lines().take_while(of_no_table), "runtime"),
    }
}

/// Reads the host's policy. A host without one has no restrictions.
///
/// # Errors
/// When the policy exists but cannot be used.
pub fn read(paths: &HostPaths) -> Result<Policy, PolicyError> {
    let path = paths.policy();
    let text = match text(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Policy::default()),
        Err(source) => return Err(PolicyError::Read { path, source }),
        Ok(text) => text,
    };
    parse(&text).map_err(|fault| PolicyError::Parse { path, fault })
}

fn text(path: &Path) -> io::Result<String> {
    String::from_utf8(roots(path)?).map_err(|_| io::Error::other("it is not UTF-8"))
}

/// Reads a file that only root can write to.
fn roots(path: &Path) -> io::Result<Vec<u8>> {
    let file = read::open_unless_absent(path)?;
    read::only_roots(&file)?;
    read::whole(file, CAP)
}

/// Parses the text of a policy.
///
/// # Errors
/// A message with the line and the error.
pub fn parse(text: &str) -> Result<Policy, String> {
    let policy: Policy = toml::from_str(text).map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let breaks = before.map_or(0, |before| before.matches('\n').count());
        let line = breaks.saturating_add(1);
        format!("line {line}: {}", error.message())
    })?;
    let uses_driver = policy.fence.is_some_and(|fence| fence != Fence::Preload);
    match uses_driver && policy.driver_limits == DriverLimits::Off {
        true => {
            Err("fence contradicts driver-limits = \"off\" (leave driver-limits out)".to_owned())
        }
        false => Ok(policy),
    }
}

impl Policy {
    /// The mechanism that enforces the limits of all containers; `None` where each may choose.
    #[must_use]
    pub fn fence_for_all(&self) -> Option<Fence> {
        match self.driver_limits {
            DriverLimits::Off => Some(Fence::Preload),
            DriverLimits::Auto => self.fence.filter(|fence| *fence != Fence::Auto),
        }
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
