//! The GPUs behind the devices of a claim: their names in the cluster, and their device nodes.
//! Touches: the host's /dev and its CDI files, by reading them.

use crate::base::settings::Settings;
use gpuslice_config::words::device::{DeviceKind, DeviceUuid};
use gpuslice_host::base::read;
use gpuslice_host::machine::devices::{Devices, SliceTarget};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// The major number of NVIDIA's devices.
const NVIDIA: u64 = 195;

/// The nodes that programs open besides that of the GPU, where the driver has made them.
const SHARED: [&str; 4] = [
    "nvidiactl",
    "nvidia-uvm",
    "nvidia-uvm-tools",
    "nvidia-modeset",
];

/// The kind of the CDI devices that NVIDIA's toolkit writes.
const NVIDIAS_KIND: &str = "nvidia.com/gpu";

/// The beginning of the names of this driver's own CDI files.
pub const OWN: &str = "k8s.gpuslice.io-claim-";

/// The largest CDI file that is read. That of eight GPUs takes 60 KiB.
const CAP: usize = 4 << 20;

/// A device's name in the cluster: its uuid in lower case. An index would name another GPU after
/// one was removed.
#[must_use]
pub fn name(uuid: DeviceUuid) -> String {
    uuid.to_string().to_ascii_lowercase()
}

/// The GPU, or the MIG instance, of a name.
#[must_use]
pub fn find<'a>(devices: &'a Devices, device: &str) -> Option<SliceTarget<'a>> {
    devices.targets().find(|target| name(target.uuid) == device)
}

/// How a container gets a GPU.
#[derive(Clone, Debug, PartialEq)]
pub enum Access {
    /// By a CDI device of NVIDIA's toolkit, which also brings the driver's libraries.
    Toolkit(String),
    /// By its device nodes. The image, or a mount, has to bring the driver's libraries.
    Nodes(Vec<Value>),
}

/// Why a container cannot get a GPU.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// It is a MIG instance, whose nodes only the toolkit knows.
    #[error("{0} is a MIG instance, and no CDI file names it (run nvidia-ctk cdi generate)")]
    Instance(DeviceUuid),
    /// Its device node is unknown.
    #[error(
        "the device node of {0} is unknown, and no CDI file names the GPU (run gpuslice devices \
         --write, or nvidia-ctk cdi generate)"
    )]
    NoNode(DeviceUuid),
}

/// How a container gets this GPU.
///
/// # Errors
/// [`AccessError`] if nothing on this host names the GPU's device nodes.
pub fn access(settings: &Settings, target: &SliceTarget<'_>) -> Result<Access, AccessError> {
    let named = target.uuid.to_string();
    let etc = settings.on_host(Path::new("/etc/cdi"));
    if [etc.as_path(), &settings.cdi]
        .iter()
        .any(|folder| toolkit_names(folder, &named))
    {
        return Ok(Access::Toolkit(format!("{NVIDIAS_KIND}={named}")));
    }
    if target.uuid.kind == DeviceKind::Mig {
        return Err(AccessError::Instance(target.uuid));
    }
    let minor = target
        .device
        .minor
        .ok_or(AccessError::NoNode(target.uuid))?;
    let mut nodes = vec![node(&format!("nvidia{minor}"), NVIDIA, minor.into())];
    nodes.extend(SHARED.iter().filter_map(|shared| {
        let path = settings.on_host(Path::new("/dev")).join(shared);
        let facts = fs::metadata(path).ok()?;
        let number = facts.rdev();
        facts.file_type().is_char_device().then(|| {
            node(
                shared,
                libc::major(number).into(),
                libc::minor(number).into(),
            )
        })
    }));
    Ok(Access::Nodes(nodes))
}

fn node(name: &str, major: u64, minor: u64) -> Value {
    json!({"path": format!("/dev/{name}"), "type": "c", "major": major, "minor": minor})
}

/// Whether a CDI file of NVIDIA's toolkit in this folder has a device of this name. The files are
/// YAML or JSON, and are compared word by word.
fn toolkit_names(folder: &Path, device: &str) -> bool {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.map(|entry| entry.path()).any(|path| {
        let is_cdi = path
            .extension()
            .is_some_and(|is| ["yaml", "yml", "json"].iter().any(|known| is == *known));
        // A node has a file of ours for each claim.
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let text = match is_cdi && !name.starts_with(OWN.as_bytes()) {
            true => read::file(&path, CAP).unwrap_or_default(),
            false => return false,
        };
        let text = String::from_utf8_lossy(&text);
        let has = |word: &str| {
            let is_between = |letter: char| letter.is_whitespace() || "\"':,{}[]".contains(letter);
            text.split(is_between).any(|found| found == word)
        };
        has(NVIDIAS_KIND) && has(device)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";

    #[test]
    fn a_cdi_file_of_the_toolkit_is_recognised_in_both_formats() {
        let folder = tempfile::tempdir().unwrap();
        let holds = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            let found = toolkit_names(folder.path(), UUID);
            fs::remove_file(path).unwrap();
            found
        };
        let yaml = format!("cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n  - name: {UUID}\n");
        let json = format!(r#"{{"kind":"nvidia.com/gpu","devices":[{{"name":"{UUID}"}}]}}"#);
        assert!(holds("nvidia.yaml", &yaml));
        assert!(holds("nvidia.json", &json));
        assert!(!holds("nvidia.txt", &yaml));
        assert!(!holds(
            "other.yaml",
            &yaml.replace("nvidia.com/gpu", "x.com/gpu")
        ));
        assert!(!holds("nvidia.yaml", &yaml.replace("c4\n", "c5\n")));
        assert!(!toolkit_names(Path::new("/nonexistent"), UUID));
    }
}
