//! The reasons why a config.json cannot be used.
//! Touches: its arguments.

use crate::request::annotations;
use crate::request::dialects;
use crate::request::json_filter::Ambiguous;
use gpuslice_host::machine::dialects::Dialects;
use std::io;
use std::path::PathBuf;

/// Why a config.json cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// It cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// Its path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Its content is not a container configuration.
    #[error("{path} is not an OCI config.json")]
    Content {
        /// Its path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A member appears twice, with two values.
    #[error("{path} contradicts itself")]
    Ambiguous {
        /// Its path.
        path: PathBuf,
        /// The member.
        #[source]
        source: io::Error,
    },
    /// The state names `/` as the bundle.
    #[error(
        "the container's state names / as its bundle, which has no config.json: crun before 1.27 does this for \
         containers with a user namespace and devices (use crun 1.27, runc or gpuslice-runtime)"
    )]
    RootBundle,
    /// The state names no bundle.
    #[error("the container's state names no bundle")]
    NoBundle,
}

impl SpecError {
    /// Whether the annotations are given twice, with a request for a slice among them, also in the
    /// words of these dialects.
    #[must_use]
    pub fn requests_twice(&self, dialects: Dialects) -> bool {
        let SpecError::Ambiguous { source, .. } = self else {
            return false;
        };
        let name = Ambiguous::of(source).map(|found| found.name.as_str());
        name.is_some_and(|name| {
            name.starts_with(annotations::PREFIX)
                || name == "annotations"
                || dialects::is_annotation(name, dialects)
        })
    }
}
