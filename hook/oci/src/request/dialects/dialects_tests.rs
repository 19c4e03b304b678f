//! The table, key by key, and what becomes of values that contradict each other.

use super::*;
use proptest::prelude::*;

const ALL: Dialects = Dialects {
    kai: true,
    hami: true,
    nvidia: true,
};

const A: &str = "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";
const B: &str = "GPU-2b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";

fn translated(
    annotations: &[(&str, &str)],
    env: &[&str],
    visible: Option<&[DeviceUuid]>,
) -> Result<Translation, DialectError> {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    read(&Given {
        dialects: ALL,
        annotations: &annotations.iter().map(owned).collect(),
        env: &env.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>(),
        name: Some("main"),
        visible,
    })
}

fn asked(annotations: &[(&str, &str)]) -> Option<Amount> {
    translated(annotations, &[], None)
        .unwrap()
        .asked
        .map(|asked| asked.amount)
}

fn refused(annotations: &[(&str, &str)], env: &[&str]) -> String {
    translated(annotations, env, None).unwrap_err().to_string()
}

fn mib(count: u64) -> Option<Amount> {
    Some(Amount::Size(Bytes::mib(count)))
}

fn half() -> Option<Amount> {
    asked(&[("gpu-fraction", "0.5")])
}

/// What each key is expected to do, with a value of its own notation.
enum Does {
    /// Requests this many MiB.
    Asks(u64),
    /// Requests half of each GPU.
    AsksHalf,
    /// Lowers to this many MiB.
    Lowers(u64),
    /// Is reported.
    IsReported,
    /// Chooses the container.
    Chooses,
    /// Requests 3000 MiB of GPU A.
    Shares,
}

#[test]
fn every_key_of_the_table_does_what_it_says() {
    use Does::{Asks, AsksHalf, Chooses, IsReported, Lowers, Shares};
    let shares = format!("{A},NVIDIA,3000,0:;");
    let cases: &[(&str, &str, Does)] = &[
        ("gpu-memory", "2000", Asks(2000)),
        ("gpu-fraction", "0.5", AsksHalf),
        ("gpu-fraction-container-name", "other", Chooses),
        ("gpu-memory.limit", "2Gi", Asks(2048)),
        ("gpu-memory-limit", "4000", IsReported),
        ("gpu-fraction.limit", "0.5", AsksHalf),
        ("gpu-fraction-limit", "0.8", IsReported),
        (
            "nvidia.com/container.main.gpu-memory.request",
            "8Gi",
            Asks(8192),
        ),
        (
            "nvidia.com/container.main.gpu-memory.limit",
            "8Gi",
            Asks(8192),
        ),
        (
            "kai.scheduler/container.main.gpu-memory.portion.limit",
            "0.5",
            AsksHalf,
        ),
        (
            "nvidia.com/container.main.gpu-compute.mode",
            "sm-sharing",
            IsReported,
        ),
        ("mps", "true", IsReported),
        ("hami.io/vgpu-devices-allocated", &shares, Shares),
        ("CUDA_DEVICE_MEMORY_LIMIT", "3000m", Lowers(3000)),
        ("CUDA_DEVICE_MEMORY_LIMIT_0", "1g", Lowers(1024)),
        ("CUDA_DEVICE_SM_LIMIT", "30", IsReported),
        ("CUDA_TASK_PRIORITY", "1", IsReported),
        ("CUDA_OVERSUBSCRIBE", "true", IsReported),
        ("CUDA_DISABLE_CONTROL", "true", IsReported),
        ("NVIDIA_GPU_MEMORY_LIMIT", "8192", Lowers(8192)),
        (
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
            "0=1G,1=512MB",
            Lowers(512),
        ),
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "25", IsReported),
        ("CUDA_MPS_CLIENT_PRIORITY", "1", IsReported),
    ];
    assert_eq!(cases.len(), TABLE.len());
    for ((key, value, does), row) in cases.iter().zip(TABLE) {
        let variable = format!("{key}={value}");
        let found = match row.key {
            Key::Pod(_) | Key::Container(..) => translated(&[(key, value)], &[], None),
            Key::Variable(_) | Key::Numbered(_) => translated(&[], &[&variable], None),
        };
        let found = found.unwrap();
        let amount = found.asked.as_ref().map(|asked| asked.amount.clone());
        let ceiling = found.ceiling.as_ref().map(|(_, memory)| *memory);
        let (expected, lowered, lines) = match does {
            Asks(size) => (mib(*size), None, 0),
            AsksHalf => (half(), None, 0),
            Lowers(size) => (None, Some(Bytes::mib(*size)), 0),
            IsReported => (None, None, 1),
            Chooses => (None, None, 0),
            Shares => {
                let share = (A.parse().unwrap(), Bytes::mib(3000));
                (Some(Amount::Shares(vec![share])), None, 0)
            }
        };
        assert_eq!(amount, expected, "{key}");
        assert_eq!(ceiling, lowered, "{key}");
        assert_eq!(found.unheld.len(), lines, "{key}: {:?}", found.unheld);
        assert!(
            found
                .unheld
                .iter()
                .all(|line| line.contains(key) && line.contains(value))
        );
    }
}

#[test]
fn a_dialect_that_is_off_is_not_read() {
    let annotations = [
        ("gpu-memory", "nonsense"),
        ("hami.io/vgpu-devices-allocated", "nonsense"),
    ];
    let annotations = annotations.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let nothing = read(&Given {
        dialects: Dialects::default(),
        annotations: &annotations.into_iter().collect(),
        env: &["NVIDIA_GPU_MEMORY_LIMIT=nonsense".to_owned()],
        name: Some("main"),
        visible: None,
    });
    assert_eq!(nothing, Ok(Translation::default()));
}

#[test]
fn every_key_reaches_the_translation() {
    for row in TABLE {
        let (starts, key) = match row.key {
            Key::Pod(key) | Key::Container(key, _) => (table::ANNOTATIONS, key.to_owned()),
            Key::Variable(name) => (table::VARIABLES, format!("{name}=")),
            Key::Numbered(name) => (table::VARIABLES, name.to_owned()),
        };
        assert!(starts.iter().any(|start| key.starts_with(start)), "{key}");
    }
}

#[test]
fn a_containers_own_key_overrides_its_pods() {
    let own = "nvidia.com/container.main.gpu-memory.request";
    assert_eq!(asked(&[("gpu-fraction", "0.5"), (own, "8Gi")]), mib(8192));
    let other = "nvidia.com/container.other.gpu-memory.request";
    assert_eq!(asked(&[(other, "8Gi")]), None);
    let named = [
        ("gpu-memory", "2000"),
        ("gpu-fraction-container-name", "main"),
    ];
    assert_eq!(asked(&named), mib(2000));
    let named = [
        ("gpu-memory", "2000"),
        ("gpu-memory.limit", "4Gi"),
        ("gpu-fraction-container-name", "other"),
    ];
    assert_eq!(asked(&named), None);
}

#[test]
fn two_requests_that_differ_are_refused_with_both_keys() {
    let two = [("gpu-memory", "2000"), ("gpu-fraction", "0.5")];
    assert_eq!(
        refused(&two, &[]),
        "gpu-memory says 2000, and gpu-fraction says 0.5: leave one of them out"
    );
    let shares = format!("{A},NVIDIA,3000,0:;");
    let own = "nvidia.com/container.main.gpu-memory.request";
    let two = [(own, "8Gi"), ("hami.io/vgpu-devices-allocated", &*shares)];
    assert!(refused(&two, &[]).contains(own));
}

#[test]
fn a_value_in_another_notation_is_refused_with_its_key() {
    for (key, value) in [
        ("gpu-memory", "2Gi"),
        ("gpu-memory", "0"),
        ("gpu-fraction", "1.5"),
        ("nvidia.com/container.main.gpu-memory.request", "8GiB"),
        ("hami.io/vgpu-devices-allocated", "GPU-1,NVIDIA,3000,0:;"),
        ("hami.io/vgpu-devices-allocated", "3000"),
    ] {
        let said = refused(&[(key, value)], &[]);
        assert!(
            said.starts_with(&format!("{key}: \"{value}\" is not ")),
            "{said}"
        );
    }
    let said = refused(&[], &["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=1G"]);
    assert!(
        said.ends_with("is not a list of sizes such as 0=4G"),
        "{said}"
    );
}

#[test]
fn a_limit_above_the_request_is_reported() {
    let request = ("nvidia.com/container.main.gpu-memory.request", "8Gi");
    let limit = |value| ("nvidia.com/container.main.gpu-memory.limit", value);
    let burst = translated(&[request, limit("16Gi")], &[], None).unwrap();
    assert_eq!(burst.asked.unwrap().amount, Amount::Size(Bytes::gib(8)));
    assert_eq!(
        burst.unheld,
        [
            "nvidia.com/container.main.gpu-memory.limit 16Gi is not honoured: a slice limits memory, \
          and has one size"
        ]
    );
    let equal = translated(&[request, limit("8192Mi")], &[], None).unwrap();
    assert_eq!(equal.unheld, Vec::<String>::new());
}

#[test]
fn a_container_without_a_name_cannot_tell_which_keys_are_its_own() {
    for key in [
        "nvidia.com/container.main.gpu-memory.limit",
        "gpu-fraction-container-name",
    ] {
        let annotations = [(key.to_owned(), "8Gi".to_owned())].into_iter().collect();
        let given = Given {
            dialects: ALL,
            annotations: &annotations,
            env: &[],
            name: None,
            visible: None,
        };
        assert_eq!(read(&given), Err(DialectError::NoName(key.to_owned())));
    }
}

#[test]
fn the_lowest_of_several_variables_counts_and_zero_is_no_limit() {
    let env = [
        "CUDA_DEVICE_MEMORY_LIMIT=0m",
        "CUDA_DEVICE_MEMORY_LIMIT_0=4g",
        "NVIDIA_GPU_MEMORY_LIMIT=3072",
        "NVIDIA_GPU_MEMORY_LIMIT=5000",
    ];
    let found = translated(&[], &env, None).unwrap();
    let lowest = ("NVIDIA_GPU_MEMORY_LIMIT".to_owned(), Bytes::gib(3));
    assert_eq!(found.ceiling, Some(lowest));
}

/// HAMi's annotation: an init container without a GPU, one with both GPUs, one with GPU A.
fn hami(env: &[&str], visible: Option<&[&str]>) -> Result<Translation, DialectError> {
    let list = format!(";{A},NVIDIA,3000,30:{B},NVIDIA,1000,30:;{A},NVIDIA,500,0:;");
    let visible: Option<Vec<DeviceUuid>> =
        visible.map(|all| all.iter().map(|uuid| uuid.parse().unwrap()).collect());
    translated(
        &[("hami.io/vgpu-devices-allocated", &list)],
        env,
        visible.as_deref(),
    )
}

fn sizes(found: Translation) -> Vec<u64> {
    match found.asked.unwrap().amount {
        Amount::Shares(shares) => shares
            .iter()
            .map(|(_, memory)| memory.whole_mib())
            .collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_share_of_hamis_list_is_found_by_gpus_or_by_variables() {
    assert_eq!(
        hami(&[], None),
        Err(DialectError::WhichShare("hami.io/vgpu-devices-allocated"))
    );
    assert_eq!(sizes(hami(&[], Some(&[A])).unwrap()), [500]);
    let both = [
        "CUDA_DEVICE_MEMORY_LIMIT_0=3000m",
        "CUDA_DEVICE_MEMORY_LIMIT_1=1000m",
    ];
    let found = hami(&both, Some(&[A, B])).unwrap();
    assert_eq!(found.ceiling, None, "each number lowers its own GPU");
    assert!(
        found.unheld[0].contains("30 % of the cores"),
        "{:?}",
        found.unheld
    );
    assert_eq!(sizes(found), [3000, 1000]);
    // No share is of the container's GPUs: it is one without a share.
    assert_eq!(hami(&[], Some(&[B])).unwrap().asked, None);
}

#[test]
fn a_variable_never_enlarges_a_share() {
    let list = format!("{A},NVIDIA,3000,0:;");
    let annotation = [("hami.io/vgpu-devices-allocated", &*list)];
    for (limit, size) in [
        ("9000m", 3000),
        ("3000m", 3000),
        ("700m", 700),
        ("0m", 3000),
    ] {
        let env = format!("CUDA_DEVICE_MEMORY_LIMIT_0={limit}");
        let found = translated(&annotation, &[&env], None).unwrap();
        assert_eq!(sizes(found), [size], "{limit}");
    }
}

proptest! {
    #[test]
    fn any_values_are_read_or_refused_without_a_panic(
        row in 0..TABLE.len(), value in ".{0,40}", other in 0..TABLE.len(), second in "[0-9.=,:;aGMi-]{0,20}",
    ) {
        let pairs = [(row, value), (other, second)];
        let mut annotations = Annotations::new();
        let mut env = Vec::new();
        for (row, value) in pairs {
            match TABLE[row].key {
                Key::Pod(key) => { annotations.insert(key.to_owned(), value); }
                Key::Container(prefix, suffix) => { annotations.insert(format!("{prefix}main{suffix}"), value); }
                Key::Variable(key) => env.push(format!("{key}={value}")),
                Key::Numbered(key) => env.push(format!("{key}0={value}")),
            }
        }
        let _ = read(&Given { dialects: ALL, annotations: &annotations, env: &env, name: Some("main"), visible: None });
    }
}
