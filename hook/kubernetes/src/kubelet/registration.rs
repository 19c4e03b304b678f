//! The registration of the driver with the kubelet, which calls on a socket in its folder.
//! Touches: nothing.

use crate::base::log;
use crate::base::settings::{DRIVER, Settings};
use crate::kubelet::messages::{Empty, PluginInfo, RegistrationStatus};
use crate::kubelet::server::{self, Answer, Services};
use http::Request;
use hyper::body::Incoming;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// The services that the driver has, as the kubelet names them.
const VERSIONS: [&str; 4] = [
    "v1.DRAPlugin",
    "v1beta1.DRAPlugin",
    "v1.DRAResourceHealth",
    "v1alpha1.DRAResourceHealth",
];

/// The service `pluginregistration.Registration`.
pub struct Registration {
    /// The command line.
    pub settings: Arc<Settings>,
    /// Asks for the slices to be published. The kubelet deletes them when it starts, so each
    /// registration is a cause.
    pub wake: Arc<Notify>,
    /// Whether the kubelet has registered the driver.
    pub registered: Arc<AtomicBool>,
}

impl Services for Registration {
    fn answer(self: Arc<Self>, request: Request<Incoming>) -> Answer {
        match request.uri().path() {
            "/pluginregistration.Registration/GetInfo" => {
                let info = self.info();
                server::unary(request, move |_: Empty| std::future::ready(info.clone()))
            }
            "/pluginregistration.Registration/NotifyRegistrationStatus" => {
                server::unary(request, move |status| {
                    self.notified(&status);
                    std::future::ready(Empty {})
                })
            }
            _ => server::unknown(),
        }
    }
}

impl Registration {
    fn info(&self) -> PluginInfo {
        PluginInfo {
            kind: "DRAPlugin".to_owned(),
            name: DRIVER.to_owned(),
            endpoint: self.settings.socket().to_string_lossy().into_owned(),
            supported_versions: VERSIONS.map(str::to_owned).to_vec(),
        }
    }

    fn notified(&self, status: &RegistrationStatus) {
        match status.plugin_registered {
            true => log::line("the kubelet has registered the driver"),
            false => log::line(&format!(
                "the kubelet has not registered the driver: {}",
                status.error
            )),
        }
        self.registered
            .store(status.plugin_registered, Ordering::Relaxed);
        self.wake.notify_one();
    }
}
