//! The health of the devices, as the kubelet watches it.

use crate::claims::{CARD, OTHER};
use crate::driver::{Node, gpu};
use gpuslice_dra::kubelet::messages::{DevicesHealth, Health};

fn states(health: &DevicesHealth) -> Vec<(String, Health)> {
    let state = |one: &gpuslice_dra::kubelet::messages::DeviceHealth| {
        let device = one.device.clone().unwrap();
        assert_eq!(device.pool_name, "node1");
        assert!(one.last_updated_time > 1_700_000_000);
        (device.device_name, one.health())
    };
    health.devices.iter().map(state).collect()
}

#[test]
fn a_gpu_that_leaves_the_list_is_unhealthy() {
    for service in ["v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"] {
        let (node, kubelet) = Node::registered();
        let one = kubelet.health(service, |health| health.devices.len() == 1);
        assert_eq!(states(&one), [(CARD.to_lowercase(), Health::Healthy)]);
        let changed = kubelet.health(service, |health| {
            // The stream is open when the change is made.
            if health.devices.len() == 1 {
                node.devices(&[gpu(OTHER, 0, "")]);
            }
            health.devices.len() == 2
        });
        let expected = [
            (CARD.to_lowercase(), Health::Unhealthy),
            (OTHER.to_lowercase(), Health::Healthy),
        ];
        assert_eq!(states(&changed), expected);
    }
}
