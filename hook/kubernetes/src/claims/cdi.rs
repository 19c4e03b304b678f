//! The CDI file of a claim: a device for each of its shares.
//! Touches: its arguments.

use crate::base::names::Uid;
use crate::claims::allocation::Share;
use crate::claims::gpu::{Access, OWN};
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_host::engine::hook_arguments::{MEMORY, NAME};
use gpuslice_host::engine::hook_entry::{ENVIRONMENT, STAGES};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The kind of the devices.
pub const KIND: &str = "k8s.gpuslice.io/claim";

/// The lowest CDI version that lets a device's name begin with a digit. containerd 1.7 reads no
/// version after 0.5.0.
const VERSION: &str = "0.5.0";

/// Keeps NVIDIA's own runtime from adding the GPUs that an image's environment asks for.
const NO_OTHER_GPU: &str = "NVIDIA_VISIBLE_DEVICES=void";

/// The file of a claim.
#[must_use]
pub fn file(folder: &Path, claim: &Uid) -> PathBuf {
    folder.join(format!("{OWN}{claim}.json"))
}

/// The name of a share's slice: all containers with the share use one slice.
#[must_use]
pub fn slice(claim: &Uid, share: &Share) -> String {
    match &share.id {
        Some(id) => format!("{claim}-{id}"),
        None => claim.to_string(),
    }
}

/// The name of a share's CDI device, without the kind.
#[must_use]
pub fn device(claim: &Uid, share: &Share) -> String {
    match &share.id {
        Some(id) => format!("{claim}-{}-{id}", share.device),
        None => format!("{claim}-{}", share.device),
    }
}

/// A share with its GPU.
#[derive(Clone, Debug)]
pub struct Granted {
    /// The share.
    pub share: Share,
    /// The GPU, or the MIG instance.
    pub uuid: DeviceUuid,
    /// How a container gets it.
    pub access: Access,
}

/// The options of the hook by which [`super::prepared`] finds the claims of a node again.
pub(super) const SLICE: &str = "--slice";
pub(super) const CLAIM: &str = "--claim";

/// The text of the file. `name` is the claim's, with its namespace.
#[must_use]
pub fn text(claim: &Uid, name: &str, granted: &[Granted], hook: &Path) -> String {
    let devices: Vec<Value> = granted
        .iter()
        .map(|one| {
            json!({
                "name": device(claim, &one.share),
                "containerEdits": edits(claim, name, one, hook),
            })
        })
        .collect();
    let spec = json!({"cdiVersion": VERSION, "kind": KIND, "devices": devices});
    format!("{spec:#}\n")
}

fn edits(claim: &Uid, name: &str, granted: &Granted, hook: &Path) -> Value {
    let Granted {
        share,
        uuid,
        access,
    } = granted;
    let hooks = STAGES.map(|stage| {
        let mut arguments = vec![
            NAME.to_owned(),
            SLICE.to_owned(),
            slice(claim, share),
            CLAIM.to_owned(),
            name.to_owned(),
            MEMORY.to_owned(),
            format!("{uuid}={}", share.memory.get()),
        ];
        arguments.extend(share.options.arguments());
        arguments.push(stage.to_owned());
        json!({
            "hookName": stage,
            "path": hook.to_string_lossy(),
            "args": arguments,
            "env": [ENVIRONMENT],
        })
    });
    let mut edits = json!({"env": [NO_OTHER_GPU], "hooks": hooks});
    if let (Access::Nodes(nodes), Some(edits)) = (access, edits.as_object_mut()) {
        edits.insert("deviceNodes".to_owned(), json!(nodes));
    }
    edits
}
