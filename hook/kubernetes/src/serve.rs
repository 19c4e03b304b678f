//! Starts the driver's parts and ends them.
//! Touches: the kubelet's folders; all else through the rooms.

use crate::api::Cluster;
use crate::base::settings::Settings;
use crate::base::{log, names};
use crate::kubelet::plugin::Plugin;
use crate::kubelet::registration::Registration;
use crate::kubelet::server::{self, Made};
use crate::publish::keep::Keeper;
use crate::ready::state::State;
use crate::report::events::Events;
use crate::report::statuses::Statuses;
use anyhow::Context;
use gpuslice_host::base::files;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, watch};

/// Serves until a signal ends the process.
///
/// # Errors
/// When the driver cannot start: no credentials, or no socket.
pub async fn serve(settings: Settings) -> anyhow::Result<()> {
    names::subdomain("node name", &settings.node_name)
        .context("this node's name is not valid (set --node-name or NODE_NAME)")?;
    let settings = Arc::new(settings);
    let folder = settings.folder();
    let made = files::folder(&folder, 0o750);
    made.with_context(|| format!("cannot make {}", folder.display()))?;
    let state = Arc::new(State::new(settings.ready_file()));
    let cluster = match Cluster::connect(&settings).await {
        Ok(cluster) => cluster,
        Err(error) => {
            state.set(Err(format!("{error:#}")));
            return Err(error);
        }
    };
    let (wake, published) = (Arc::new(Notify::new()), watch::Sender::default());
    let registered = Arc::new(AtomicBool::new(false));
    let keeper = Keeper {
        settings: Arc::clone(&settings),
        cluster: cluster.clone(),
        state: Arc::clone(&state),
        wake: Arc::clone(&wake),
        registered: Arc::clone(&registered),
        published: published.clone(),
        pressure: watch::Sender::default(),
    };
    let statuses = Statuses::new(Arc::clone(&settings), cluster.clone());
    let events = Events::new(Arc::clone(&settings), cluster.clone());
    let plugin = Plugin {
        settings: Arc::clone(&settings),
        cluster,
        state: Arc::clone(&state),
        wake: Arc::clone(&wake),
        published: published.subscribe(),
    };
    let socket = settings.socket();
    let listener = server::listen(&socket);
    let (listener, socket) =
        listener.with_context(|| format!("cannot listen on {}", socket.display()))?;
    tokio::spawn(server::serve(listener, Arc::new(plugin)));
    tokio::spawn(keeper.clone().keep());
    tokio::spawn(keeper.clone().watch_guard());
    tokio::spawn(statuses.keep());
    tokio::spawn(events.keep());
    tokio::spawn(keeper.watch());
    let mut end = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
    let [terminate, interrupt] = &mut end;
    let (Ok(terminate), Ok(interrupt)) = (terminate, interrupt) else {
        anyhow::bail!("cannot wait for signals");
    };
    // The kubelet registers a driver as soon as its socket exists. It also does so where the driver
    // is not ready: the claims of pods that have ended are taken back in any case.
    let registration = register(&settings, wake, registered)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    log::line("ends");
    // Without the socket, the kubelet takes the driver out of its list at once. It deletes the
    // slices only if no driver has come back within 30 seconds.
    registration.remove();
    socket.remove();
    Ok(())
}

fn register(
    settings: &Arc<Settings>,
    wake: Arc<Notify>,
    registered: Arc<AtomicBool>,
) -> anyhow::Result<Made> {
    let socket = settings.registration_socket();
    let registration = Registration {
        settings: Arc::clone(settings),
        wake,
        registered,
    };
    let listener = server::listen(&socket);
    let (listener, made) =
        listener.with_context(|| format!("cannot listen on {}", socket.display()))?;
    tokio::spawn(server::serve(listener, Arc::new(registration)));
    Ok(made)
}
