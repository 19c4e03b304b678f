//! The metrics of containers, as the hook records them.

use super::{HERE, samples, sum};
use crate::support::{Home, told};
use gpuslice_config::ledger::{Ledger, Open};
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::machine::pod::Pod;
use gpuslice_host::machine::process::InitProcess;
use gpuslice_host::slices::records::{DeviceBudget, Member, Registry, SliceRecord};
use std::ffi::CString;
use std::fs;
use std::process::{Child, Command, Stdio};

const UUID: &str = "GPU-3090aaaa-1111-4222-8333-444455550000";

pub(super) fn member(id: &str, process: &Child, no_slice: Option<&str>) -> Member {
    Member {
        id: id.to_owned(),
        name: format!("team/web/{id}"),
        owner: InitProcess::of(i32::try_from(process.id()).unwrap()).unwrap(),
        bundle: "/bundle".into(),
        drops: Vec::new(),
        no_slice: no_slice.map(str::to_owned),
        not_limited: None,
        claims: None,
        pod: Some(Pod {
            namespace: "team".to_owned(),
            name: "web".to_owned(),
            uid: "0e5c-11".to_owned(),
            container: format!("{id}-name"),
        }),
    }
}

/// Records a slice of containers, with the files that the hook makes. A named one is a claim's.
pub(super) fn record(places: &HostPaths, slice: &str, shared: bool, containers: Vec<Member>) {
    let first = containers[0].id.clone();
    let registry = Registry::lock(places).unwrap();
    let record = SliceRecord {
        version: SliceRecord::VERSION,
        slice: slice.to_owned(),
        name: format!("team/web/{slice}"),
        namespace: Some("team".to_owned()),
        shared,
        sandbox: None,
        named: slice.strip_prefix("named-").map(str::to_owned),
        devices: vec![DeviceBudget {
            uuid: UUID.parse().unwrap(),
            memory: Bytes::gib(8),
            integrated: false,
        }],
        promised: None,
        before_resize: None,
        containers,
    };
    registry.write(&record).unwrap();
    let (root, ledger) = (places.container_root(&first), places.ledger(slice));
    fs::create_dir_all(&root).unwrap();
    fs::create_dir_all(&ledger).unwrap();
    let text = format!(
        r#"{{"version": 1, "name": "team/web/{slice}", "devices": [{{"uuid": "{UUID}", "memory": 8589934592}}]}}"#
    );
    fs::write(root.join("slice.json"), text).unwrap();
    let ledger = CString::new(places.ledger_file(slice).display().to_string()).unwrap();
    let mode = Open::Create {
        mode: 0o600,
        devices: 1,
    };
    Ledger::open(&ledger, mode).unwrap();
}

#[test]
fn a_container_is_known_by_its_pod_and_one_without_its_slice_is_reported() {
    let home = Home::new();
    let root = tempfile::tempdir_in("/dev/shm").unwrap();
    let places = HostPaths::below(root.path());
    let mut sleep = Command::new("sleep");
    let mut process = sleep.arg("1000").stdin(Stdio::null()).spawn().unwrap();
    record(&places, "c1", false, vec![member("c1", &process, None)]);
    let both = vec![member("c2", &process, None), member("c3", &process, None)];
    record(&places, "pod-0123456789abcdef", true, both);
    let why = Some("its image has no libc");
    record(&places, "c4", false, vec![member("c4", &process, why)]);
    record(&places, "named-1", true, vec![member("c5", &process, None)]);
    let mut other = member("c7", &process, None);
    other.pod.as_mut().unwrap().name = "db".to_owned();
    let pods = vec![member("c6", &process, None), other];
    record(&places, "named-2", true, pods);

    let mut command = HERE.gpuslice();
    command.args(["metrics", "--compatible=hami,gpu-sharing", "--root"]);
    let (out, err, status) = told(home.of(&mut command).arg(root.path()));
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!((err.as_str(), status), ("", 0));
    let all = samples(&out);
    let limit = Some(8.0 * f64::from(1u32 << 30));
    let labels =
        r#"slice="team/web/c1",id="c1",user="root",namespace="team",pod="web",container="c1-name""#;
    assert_eq!(sum(&all, "gpuslice_limit_bytes", &[labels]), limit, "{out}");
    // The pod's slice has no container: containers come and go.
    let pod = r#"id="pod-0123456789abcdef",user="root",namespace="team",pod="web",gpu_uuid="#;
    assert_eq!(sum(&all, "gpuslice_limit_bytes", &[pod]), limit, "{out}");
    // A claim's slice has the container that uses it; that of several pods only their namespace.
    let one =
        r#"id="named-1",user="root",namespace="team",pod="web",container="c5-name",gpu_uuid="#;
    assert_eq!(sum(&all, "gpuslice_limit_bytes", &[one]), limit, "{out}");
    let two = r#"id="named-2",user="root",namespace="team",gpu_uuid="#;
    assert_eq!(sum(&all, "gpuslice_limit_bytes", &[two]), limit, "{out}");
    let in_force = |id| sum(&all, "gpuslice_slice_in_force", &[id]);
    assert_eq!(in_force(r#"id="c1""#), Some(1.0));
    assert_eq!(in_force(r#"id="c4""#), Some(0.0));
    let fence = [r#"id="c4""#, r#"fence="none""#, r#"pod_uid="0e5c-11""#];
    assert_eq!(sum(&all, "gpuslice_slice_info", &fence), Some(1.0));
    let hami = r#"{namespace="team",pod="web",container="c1-name",vdevice_index="0",device_uuid="#;
    assert_eq!(sum(&all, "hami_vgpu_memory_limit_bytes", &[hami]), limit);
    let sharing = r#"{namespace="team",pod="web",pod_uuid="0e5c-11","#;
    assert_eq!(
        sum(&all, "gpu_sharing_gpu_memory_used_bytes", &[sharing]),
        Some(0.0)
    );
}
