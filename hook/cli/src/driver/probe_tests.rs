//! Tests of the merge of CUDA's and NVML's lists.

use super::*;

fn cuda(first: u8, total: u64) -> CudaDevice {
    let mut uuid = [0; 16];
    uuid[0] = first;
    CudaDevice {
        uuid,
        name: format!("card {first}"),
        total,
        integrated: first == 9,
    }
}

fn nvml(index: u32, kind: DeviceKind, first: u8, total: u64) -> NvmlDevice {
    NvmlDevice {
        minor: None,
        driver_limits: false,
        index,
        uuid: DeviceUuid {
            kind,
            bytes: cuda(first, 0).uuid,
        },
        name: format!("card {first}"),
        total,
        mig: Vec::new(),
    }
}

fn list(devices: Vec<NvmlDevice>) -> Option<NvmlList> {
    Some(NvmlList {
        driver: Some("580.1".to_owned()),
        devices,
    })
}

/// Index, ordinal, first byte of the uuid, total.
fn rows(inventory: &Inventory) -> Vec<(u32, Option<u32>, u8, u64)> {
    let row = |device: &Device| {
        let first = device.uuid.bytes[0];
        (device.index, device.cuda_ordinal, first, device.total)
    };
    inventory.devices.iter().map(row).collect()
}

#[test]
fn indices_are_nvmls_and_totals_cudas_whatever_order_cuda_has() {
    let nvml = list(vec![
        nvml(0, DeviceKind::Gpu, 1, 110),
        nvml(1, DeviceKind::Gpu, 2, 220),
    ]);
    let merged = merge(&[cuda(2, 200), cuda(1, 100)], nvml);
    assert_eq!(rows(&merged), [(0, Some(1), 1, 100), (1, Some(0), 2, 200)]);
    assert_eq!(merged.driver.as_deref(), Some("580.1"));
}

#[test]
fn without_nvml_cudas_list_stands_alone() {
    let merged = merge(&[cuda(9, 100), cuda(1, 200)], None);
    assert_eq!(rows(&merged), [(0, Some(0), 9, 100), (1, Some(1), 1, 200)]);
    assert!(merged.devices[0].integrated && !merged.devices[1].integrated);
}

#[test]
fn a_gpu_that_only_cuda_lists_takes_no_others_index() {
    let nvml = list(vec![nvml(0, DeviceKind::Gpu, 1, 110)]);
    let merged = merge(&[cuda(9, 900), cuda(1, 100)], nvml);
    assert_eq!(rows(&merged), [(0, Some(1), 1, 100), (1, Some(0), 9, 900)]);
}

#[test]
fn a_divided_gpu_keeps_nvmls_total_and_its_instances() {
    let mut whole = nvml(0, DeviceKind::Gpu, 1, 140);
    whole.mig = vec![
        nvml(0, DeviceKind::Mig, 5, 71),
        nvml(1, DeviceKind::Mig, 6, 18),
    ];
    let merged = merge(&[cuda(5, 70)], list(vec![whole]));
    assert_eq!(rows(&merged), [(0, None, 1, 140)]);
    let instances: Vec<_> = merged.devices[0]
        .mig
        .iter()
        .map(|it| (it.cuda_ordinal, it.uuid.kind, it.total))
        .collect();
    assert_eq!(
        instances,
        [(Some(0), DeviceKind::Mig, 70), (None, DeviceKind::Mig, 18)]
    );
}

#[test]
fn an_answer_survives_its_way_from_child_to_parent() {
    let nvml = list(vec![nvml(0, DeviceKind::Gpu, 1, 110)]);
    let merged = merge(&[cuda(1, 100)], nvml);
    let text = serde_json::to_string(&Answer::Ok(merged.clone())).unwrap();
    let read: Answer = serde_json::from_str(&text).unwrap();
    assert_eq!(read.unwrap(), merged);
    let refused: Answer = Err(CudaError::Refused {
        call: "cuInit".to_owned(),
        code: 100,
        meaning: "CUDA_ERROR_NO_DEVICE".to_owned(),
    });
    let text = serde_json::to_string(&refused).unwrap();
    let read: Answer = serde_json::from_str(&text).unwrap();
    assert_eq!(
        read.unwrap_err().to_string(),
        "the NVIDIA driver does not work: cuInit returns 100 (CUDA_ERROR_NO_DEVICE)"
    );
}
