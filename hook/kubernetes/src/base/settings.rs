//! The command line of gpuslice-dra.
//! Touches: its arguments, and the environment variable that they name.

use clap::{Args, Parser, Subcommand};
use gpuslice_host::base::paths::HostPaths;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The name of the driver, of its DeviceClass and of its sockets.
pub const DRIVER: &str = "gpuslice.io";

/// Gives containers the GPU memory that their ResourceClaims request: the DRA driver gpuslice.io.
#[derive(Clone, Debug, Parser)]
#[command(name = "gpuslice-dra", version)]
pub struct Settings {
    /// The task; without one, gpuslice-dra serves the kubelet.
    #[command(subcommand)]
    pub verb: Option<Verb>,

    /// This node's name in the cluster
    #[arg(long, env = "NODE_NAME", value_name = "NAME", default_value = "")]
    pub node_name: String,

    /// The kubelet's folder of plugins
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet/plugins")]
    pub plugins: PathBuf,

    /// The folder in which the kubelet looks for the sockets of new plugins
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/lib/kubelet/plugins_registry"
    )]
    pub plugins_registry: PathBuf,

    /// The folder in which the engine looks for CDI files
    #[arg(long, value_name = "DIR", default_value = "/var/run/cdi")]
    pub cdi: PathBuf,

    /// gpuslice-hook, by its path on the host
    #[arg(long, value_name = "FILE", default_value = "/usr/bin/gpuslice-hook")]
    pub hook: PathBuf,

    /// The host's root, as this process sees it
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub host_root: PathBuf,

    /// The shortest time between two writes of a claim's status.devices; 0 writes none
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub status_seconds: u64,

    /// A kubeconfig [default: the credentials of the pod]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

/// Commands besides serving.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    /// Exit with 0 if the driver serves this node, else print why it does not: a readiness probe
    Ready {
        /// Ask for the NRI plugin of this node
        #[arg(long)]
        nri: bool,
    },
    /// Serve the engine as an NRI plugin: pods with an annotation get slices without a RuntimeClass
    Nri(NriOptions),
}

/// The options of the NRI plugin.
#[derive(Clone, Debug, Args)]
pub struct NriOptions {
    /// The engine's socket for NRI plugins
    #[arg(long, value_name = "FILE", default_value = "/var/run/nri/nri.sock")]
    pub socket: PathBuf,

    /// The plugin's place among others: two digits
    #[arg(long, value_name = "NN", default_value = "10", value_parser = place)]
    pub index: String,
}

fn place(text: &str) -> Result<String, &'static str> {
    let is_place = text.len() == 2 && text.bytes().all(|digit| digit.is_ascii_digit());
    is_place.then(|| text.to_owned()).ok_or("not two digits")
}

impl Settings {
    /// The host's paths of gpuslice.
    #[must_use]
    pub fn host(&self) -> HostPaths {
        HostPaths::beside(&self.host_root, &self.hook)
    }

    /// A file of the host, by its absolute path there.
    #[must_use]
    pub fn on_host(&self, path: &Path) -> PathBuf {
        self.host_root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The shortest time between two writes of a claim's status; None if none is written.
    #[must_use]
    pub fn status_every(&self) -> Option<Duration> {
        let every = Duration::from_secs(self.status_seconds);
        (every > Duration::ZERO).then_some(every)
    }

    /// The file with the place up to which events of the host were posted.
    #[must_use]
    pub fn events_place(&self) -> PathBuf {
        self.folder().join("events-place")
    }

    /// The folder of this driver's socket, and of the state that the readiness probe reads.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.plugins.join(DRIVER)
    }

    /// The socket of the calls about claims.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder().join("dra.sock")
    }

    /// The socket of registration.
    #[must_use]
    pub fn registration_socket(&self) -> PathBuf {
        self.plugins_registry.join(format!("{DRIVER}-reg.sock"))
    }

    /// The file that tells the readiness probe whether the driver serves.
    #[must_use]
    pub fn ready_file(&self) -> PathBuf {
        self.folder().join("ready")
    }

    /// The same of the NRI plugin.
    #[must_use]
    pub fn nri_ready_file(&self) -> PathBuf {
        self.folder().join("nri-ready")
    }
}
