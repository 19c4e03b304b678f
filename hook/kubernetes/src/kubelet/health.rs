//! The health of the devices: a device that was published and is published no longer has failed.
//! Touches: the clock.

use crate::kubelet::messages::{DeviceHealth, DeviceIdentifier, DevicesHealth, Health};
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, watch};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;

/// How often the health is reported without a change. The kubelet forgets it after 30 seconds.
const REPEAT: Duration = Duration::from_secs(15);

/// The health of all devices, now and after each change.
pub fn stream(
    pool: &str,
    mut published: watch::Receiver<Vec<String>>,
) -> impl Stream<Item = DevicesHealth> + use<> {
    let (sender, receiver) = mpsc::channel(1);
    let pool = pool.to_owned();
    tokio::spawn(async move {
        let mut known: BTreeSet<String> = BTreeSet::new();
        loop {
            let now: Vec<String> = published.borrow_and_update().clone();
            known.extend(now.iter().cloned());
            let devices = known
                .iter()
                .map(|name| health(&pool, name, now.contains(name)));
            let devices = devices.collect();
            if sender.send(DevicesHealth { devices }).await.is_err() {
                break;
            }
            tokio::select! {
                changed = published.changed() => if changed.is_err() { break },
                () = tokio::time::sleep(REPEAT) => {}
                () = sender.closed() => break,
            }
        }
    });
    ReceiverStream::new(receiver)
}

fn health(pool: &str, name: &str, is_published: bool) -> DeviceHealth {
    let (health, message) = match is_published {
        true => (Health::Healthy, ""),
        false => (Health::Unhealthy, "the list of this node's GPUs lacks it"),
    };
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    let time = time.map_or(0, |since| since.as_secs());
    DeviceHealth {
        device: Some(DeviceIdentifier {
            pool_name: pool.to_owned(),
            device_name: name.to_owned(),
        }),
        health: health.into(),
        last_updated_time: i64::try_from(time).unwrap_or(i64::MAX),
        message: message.to_owned(),
    }
}
