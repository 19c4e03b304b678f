//! The claims that are prepared on this node, as their CDI files say.
//! Touches: the CDI folder, by reading it.
//! Law: nothing is remembered beside these files, so a process that has just started knows as much as
//! the one before it.

use crate::base::names::{self, Uid};
use crate::claims::cdi::{CLAIM, SLICE};
use crate::claims::gpu::OWN;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::read;
use gpuslice_host::engine::hook_arguments;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The largest file that is read. That of a claim with 32 devices takes 40 KiB.
const CAP: usize = 1 << 20;

/// A folder that has changed within this time is read again, because its time of change has a
/// granularity.
const SETTLED: Duration = Duration::from_secs(2);

/// A prepared claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedClaim {
    /// Its uid.
    pub uid: Uid,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its parts of this node's devices.
    pub shares: Vec<PreparedShare>,
}

/// A prepared claim's part of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedShare {
    /// The name of its slice.
    pub slice: String,
    /// Its id.
    pub id: Option<Uid>,
    /// The GPU, or the MIG instance.
    pub uuid: DeviceUuid,
    /// Its size.
    pub memory: Bytes,
}

/// The prepared claims of a folder, which is read again when it has changed.
#[derive(Debug)]
pub struct PreparedClaims {
    folder: PathBuf,
    changed: Option<SystemTime>,
    claims: Vec<PreparedClaim>,
}

impl PreparedClaims {
    /// The claims of a folder.
    #[must_use]
    pub fn new(folder: PathBuf) -> PreparedClaims {
        PreparedClaims {
            folder,
            changed: None,
            claims: Vec::new(),
        }
    }

    /// The claims of this moment.
    pub fn now(&mut self) -> &[PreparedClaim] {
        let changed = self.folder.metadata().and_then(|facts| facts.modified());
        let changed = changed.ok();
        if changed.is_none() || changed != self.changed {
            self.claims = read(&self.folder);
        }
        let age = changed.and_then(|changed| changed.elapsed().ok());
        self.changed = changed.filter(|_| age.is_some_and(|age| age > SETTLED));
        &self.claims
    }
}

/// Reads the claims of a folder. A file that is not understood is left out.
#[must_use]
pub fn read(folder: &Path) -> Vec<PreparedClaim> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut claims: Vec<PreparedClaim> = files
        .filter_map(|file| {
            let name = file.file_name().into_string().ok()?;
            let uid = name.strip_prefix(OWN)?.strip_suffix(".json")?;
            let text = read::file(&file.path(), CAP).ok()?;
            claim(uid.parse().ok()?, &serde_json::from_slice(&text).ok()?)
        })
        .collect();
    claims.sort_by(|one, other| one.uid.cmp(&other.uid));
    claims
}

fn claim(uid: Uid, file: &Value) -> Option<PreparedClaim> {
    let devices = file.get("devices")?.as_array()?;
    let mut place = None;
    let mut shares = Vec::new();
    for device in devices {
        let arguments = device.pointer("/containerEdits/hooks/0/args")?.as_array()?;
        let after = |option: &str| {
            let mut rest = arguments.iter().skip_while(|word| *word != option);
            rest.nth(1)?.as_str()
        };
        let slice = after(SLICE)?;
        place = place.or(after(CLAIM)?.split_once('/'));
        let (uuid, memory) = after(hook_arguments::MEMORY)?.split_once('=')?;
        let id = slice.strip_prefix(uid.as_str())?.strip_prefix('-');
        shares.push(PreparedShare {
            slice: slice.to_owned(),
            id: id.map(str::parse).transpose().ok()?,
            uuid: uuid.parse().ok()?,
            memory: Bytes::new(memory.parse().ok()?),
        });
    }
    let (namespace, name) = place?;
    let is_name =
        names::subdomain("namespace", namespace).is_ok() && names::subdomain("claim", name).is_ok();
    is_name.then(|| PreparedClaim {
        uid,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        shares,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::allocation::Share;
    use crate::claims::cdi::{self, Granted};
    use crate::claims::gpu::Access;
    use crate::claims::options::Options;
    use gpuslice_host::base::files;

    const UID: &str = "4f8f2b6c-0a1b-4c3d-8e9f-001122334455";
    const SHARE: &str = "a3c1de52-7c1e-4f6a-9d53-6f0e2b8f1c01";
    const CARD: &str = "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";

    fn granted(id: Option<&str>) -> Granted {
        Granted {
            share: Share {
                request: "r".to_owned(),
                pool: "node1".to_owned(),
                device: CARD.to_ascii_lowercase(),
                id: id.map(|id| id.parse().unwrap()),
                memory: Bytes::gib(8),
                options: Options::default(),
            },
            uuid: CARD.parse().unwrap(),
            access: Access::Nodes(Vec::new()),
        }
    }

    #[test]
    fn a_claims_file_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let uid: Uid = UID.parse().unwrap();
        let mut known = PreparedClaims::new(folder.path().to_owned());
        assert!(known.now().is_empty());
        for id in [Some(SHARE), None] {
            let hook = Path::new("/usr/bin/gpuslice-hook");
            let text = cdi::text(&uid, "team/chat", &[granted(id)], hook);
            let path = cdi::file(folder.path(), &uid);
            files::replace(&path, text.as_bytes(), 0o644).unwrap();
            let share = PreparedShare {
                slice: cdi::slice(&uid, &granted(id).share),
                id: id.map(|id| id.parse().unwrap()),
                uuid: CARD.parse().unwrap(),
                memory: Bytes::gib(8),
            };
            let expected = PreparedClaim {
                uid: uid.clone(),
                namespace: "team".to_owned(),
                name: "chat".to_owned(),
                shares: vec![share],
            };
            assert_eq!(known.now(), [expected]);
        }
        fs::remove_file(cdi::file(folder.path(), &uid)).unwrap();
        assert!(known.now().is_empty());
    }

    #[test]
    fn a_file_that_is_not_understood_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let uid: Uid = UID.parse().unwrap();
        let hook = Path::new("/usr/bin/gpuslice-hook");
        let good = cdi::text(&uid, "team/chat", &[granted(None)], hook);
        for text in [
            "",
            "{}",
            &good.replace("team/chat", "team"),
            &good.replace("team/chat", "../chat"),
            &good.replace("--claim", "--other"),
            &good.replace(CARD, "card"),
        ] {
            fs::write(cdi::file(folder.path(), &uid), text).unwrap();
            assert!(read(folder.path()).is_empty(), "{text}");
        }
        fs::write(folder.path().join("nvidia.json"), good).unwrap();
        fs::remove_file(cdi::file(folder.path(), &uid)).unwrap();
        assert!(read(folder.path()).is_empty());
    }
}
