//! A container that uses a claim, as the hook leaves it on the node: a record, a slice file and a
//! ledger, in which this process holds memory.
//! Touches: the node's folder.

use crate::claims::CARD;
use crate::driver::Node;
use gpuslice_config::ledger::{Claim, Device, Kind, Ledger, Open};
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::machine::pod::Pod;
use gpuslice_host::machine::process::InitProcess;
use gpuslice_host::slices::records::{DeviceBudget, Member, SliceRecord};
use std::ffi::CString;
use std::fs;

pub struct Running {
    host: HostPaths,
    ledger: Ledger,
    device: Device,
}

/// The id of the container, and of its slice.
const ID: &str = "c0ffee";

impl Running {
    /// Starts the container `c` of the pod `d1` in a slice of 8 GiB. `named`: the slices of its claim.
    pub fn start(node: &Node, named: &str, no_slice: Option<&str>) -> Running {
        let host = node.host();
        let pod = Pod {
            namespace: "default".to_owned(),
            name: "d1".to_owned(),
            uid: String::new(),
            container: "c".to_owned(),
        };
        let record = SliceRecord {
            version: SliceRecord::VERSION,
            slice: ID.to_owned(),
            name: "default/d1/c".to_owned(),
            namespace: Some("default".to_owned()),
            shared: true,
            sandbox: None,
            named: Some(named.to_owned()),
            devices: vec![DeviceBudget {
                uuid: CARD.parse().unwrap(),
                memory: Bytes::gib(8),
                integrated: false,
            }],
            promised: None,
            before_resize: None,
            containers: vec![Member {
                id: ID.to_owned(),
                name: "default/d1/c".to_owned(),
                owner: InitProcess::of(i32::try_from(std::process::id()).unwrap()).unwrap(),
                bundle: "/bundle".into(),
                drops: Vec::new(),
                no_slice: no_slice.map(str::to_owned),
                not_limited: None,
                claims: None,
                pod: Some(pod),
            }],
        };
        fs::create_dir_all(host.container_root(ID)).unwrap();
        let file =
            format!(r#"{{"version":1,"devices":[{{"uuid":"{CARD}","memory":8589934592}}]}}"#);
        fs::write(host.container_root(ID).join("slice.json"), file).unwrap();
        fs::create_dir_all(host.ledger(ID)).unwrap();
        let path = CString::new(host.ledger_file(ID).to_str().unwrap()).unwrap();
        let create = Open::Create {
            mode: 0o600,
            devices: 1,
        };
        let ledger = Ledger::open(&path, create).unwrap();
        let device = ledger.device(&CARD.parse().unwrap()).unwrap();
        fs::create_dir_all(host.slices()).unwrap();
        fs::write(host.slice(ID), serde_json::to_vec(&record).unwrap()).unwrap();
        Running {
            host,
            ledger,
            device,
        }
    }

    pub fn takes(&self, memory: Bytes) {
        let taken = self
            .ledger
            .claim(self.device, memory, Kind::Linear, Bytes::MAX);
        assert_eq!(taken, Claim::Granted);
    }

    pub fn frees(&self, memory: Bytes) {
        self.ledger.release(self.device, memory, Kind::Linear);
    }

    pub fn is_refused(&self) {
        self.ledger.refused(self.device, Bytes::mib(38));
    }

    /// Ends it, as poststop does.
    pub fn ends(self) {
        fs::remove_file(self.host.slice(ID)).unwrap();
    }
}
