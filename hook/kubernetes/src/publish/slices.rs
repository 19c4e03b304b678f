//! The ResourceSlices of a node: its devices, in as many slices as the API server's limit asks for.
//! Touches: its arguments.

use crate::base::settings::DRIVER;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{Device, ResourcePool, ResourceSlice, ResourceSliceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// The most devices of one slice. Without taints the limit would be 128.
const DEVICES: usize = 64;

/// The longest name of an object.
const LONGEST: usize = 253;

/// The slices of a node, of generation 0. Without a device there is none.
#[must_use]
pub fn slices(node: &Node, devices: &[Device]) -> Vec<ResourceSlice> {
    let node_name = node.metadata.name.clone().unwrap_or_default();
    let parts: Vec<&[Device]> = devices.chunks(DEVICES).collect();
    let count = parts.len();
    let owner = node.metadata.uid.clone().map(|uid| OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node_name.clone(),
        uid,
        controller: Some(true),
        ..OwnerReference::default()
    });
    let slice = |(place, devices): (usize, &&[Device])| ResourceSlice {
        metadata: ObjectMeta {
            name: Some(name(&node_name, place)),
            owner_references: owner.clone().map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: ResourceSliceSpec {
            driver: DRIVER.to_owned(),
            node_name: Some(node_name.clone()),
            pool: ResourcePool {
                name: node_name.clone(),
                generation: 0,
                resource_slice_count: i64::try_from(count).unwrap_or(i64::MAX),
            },
            devices: Some(devices.to_vec()),
            ..ResourceSliceSpec::default()
        },
    };
    parts.iter().enumerate().map(slice).collect()
}

/// A slice's name. A node's own name may be as long as a name can be, so it may be cut; two nodes
/// whose names then are equal get an error, not each other's slice.
fn name(node: &str, place: usize) -> String {
    let end = match place {
        0 => format!(".{DRIVER}"),
        place => format!("-{place}.{DRIVER}"),
    };
    let start = node.get(..LONGEST.saturating_sub(end.len()));
    let start = start.unwrap_or(node).trim_end_matches(['-', '.']);
    format!("{start}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::names;

    fn node(name: &str) -> Node {
        Node {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                uid: Some("1-2".to_owned()),
                ..ObjectMeta::default()
            },
            ..Node::default()
        }
    }

    #[test]
    fn more_devices_than_a_slice_may_have_are_spread_over_several() {
        let devices = vec![Device::default(); 130];
        let slices = slices(&node("node1"), &devices);
        let names = slices.iter().map(|one| one.metadata.name.clone());
        let names: Vec<String> = names.map(Option::unwrap_or_default).collect();
        assert_eq!(
            names,
            [
                "node1.gpuslice.io",
                "node1-1.gpuslice.io",
                "node1-2.gpuslice.io"
            ]
        );
        let counts = slices.iter().map(|one| one.spec.devices.as_ref());
        let counts: Vec<usize> = counts.map(|all| all.map_or(0, Vec::len)).collect();
        assert_eq!(counts, [64, 64, 2]);
        let count = |one: &ResourceSlice| one.spec.pool.resource_slice_count == 3;
        assert!(slices.iter().all(count));
        assert!(super::slices(&node("node1"), &[]).is_empty());
    }

    #[test]
    fn the_longest_node_name_still_gives_a_valid_name() {
        for letters in [1, 63, 240, 241, 242, 253] {
            let name = name(&format!("{}a", "a.".repeat(letters / 2)), 1);
            assert!(names::subdomain("name", &name).is_ok(), "{name}");
        }
    }
}
