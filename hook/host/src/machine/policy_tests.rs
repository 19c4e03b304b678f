//! How the text of a policy is understood.
//! Touches: folders of its own.

use super::*;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

const WHOLE: &str = r#"
library = "/opt/lib/libgpuslice.so"
command = "/opt/bin/gpuslice"
devices = [0, "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4"]
reserve = "8GiB"
overcommit = true
deny-unannotated = true
exempt-namespaces = ["kube-system"]
when-not-injectable = "refuse"
meminfo = "mount"
fence = "preload"
driver-limits = "off"
runtime = ["crun"]
thresholds = ["full=7", "available=16GiB", "request=32MiB", "used=90", "freed=1GiB"]

[on-error]
annotated = "start"
others = "refuse"

[default]
memory = "4GiB"
total = "device"
pressure = "release"

[maximum]
container = "24GiB"
namespace = 51539607552

[namespaces.students]
container = "8GiB"

[page-cache]
mode = "drop"
mounts = ["/models"]

[dialects]
kai = true
"#;

#[test]
fn every_key_is_read() {
    let read = parse(WHOLE).unwrap();
    let uuid = "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4".parse().unwrap();
    let expected = Policy {
        library: Some("/opt/lib/libgpuslice.so".into()),
        command: Some("/opt/bin/gpuslice".into()),
        devices: Some(vec![Selector::Index(0), Selector::Uuid(uuid)]),
        reserve: Some(Bytes::gib(8)),
        overcommit: true,
        deny_unannotated: true,
        exempt_namespaces: vec!["kube-system".to_owned()],
        on_error: OnErrors {
            annotated: OnError::Start,
            others: OnError::Refuse,
        },
        when_not_injectable: NotInjectable::Refuse,
        default: Some(DefaultSlice {
            memory: Bytes::gib(4),
            total: Some(Total::Device),
            present_as: None,
            headroom: None,
            host_allowance: None,
            pressure: Some(Pressure::Release),
        }),
        maximum: Maximum {
            container: Some(Bytes::gib(24)),
            namespace: Some(Bytes::gib(48)),
        },
        namespaces: BTreeMap::from([(
            "students".to_owned(),
            Maximum {
                container: Some(Bytes::gib(8)),
                namespace: None,
            },
        )]),
        page_cache: PageCachePolicy {
            mode: Some(PageCache::Drop),
            mounts: vec!["/models".into()],
        },
        thresholds: Thresholds {
            file: None,
            full: Some(7),
            available: Some(Bytes::gib(16)),
            request: Some(Bytes::mib(32)),
            used: Some(90),
            freed: Some(Bytes::gib(1)),
        },
        meminfo: Some(ShownBy::Mount),
        fence: Some(Fence::Preload),
        driver_limits: DriverLimits::Off,
        runtime: vec!["crun".to_owned()],
        dialects: Dialects {
            kai: true,
            ..Dialects::default()
        },
    };
    assert_eq!(read, expected);
}

#[test]
fn a_namespace_can_only_lower_what_everybody_may_have() {
    let policy = parse(
        "[maximum]\ncontainer = \"8GiB\"\n[namespaces.a]\ncontainer = \"88GiB\"\n\
         [namespaces.b]\ncontainer = \"2GiB\"\nnamespace = \"3GiB\"\n",
    )
    .unwrap();
    let maximum = |namespace| policy.container_maximum(namespace);
    assert_eq!(maximum(None), Some(Bytes::gib(8)));
    assert_eq!(maximum(Some("a")), Some(Bytes::gib(8)));
    assert_eq!(maximum(Some("b")), Some(Bytes::gib(2)));
    assert_eq!(policy.namespace_maximum(Some("b")), Some(Bytes::gib(3)));
    assert_eq!(policy.namespace_maximum(Some("a")), None);
}

#[test]
fn what_is_not_understood_is_refused_with_its_line() {
    for (text, said) in [
        ("overcomit = true", "overcomit"),
        ("reserve = \"12Q\"", "not a size: unknown unit"),
        ("reserve = -1", "a size cannot be negative"),
        ("reserve = 1.5", "a text or a whole number"),
        ("[page-cache]\nmode = \"flush\"", "keep, drop, drop-behind"),
        ("thresholds = [\"full=101\"]", "\"101\" is not a percentage"),
        ("thresholds = [\"avg10=5\"]", "no threshold \"avg10\""),
        (
            "[default]\nmemory = \"1GiB\"\npressure = \"high\"",
            "refuse, release",
        ),
        ("[default]\ntotal = \"slice\"", "memory"),
        ("devices = [\"first\"]", "no index or uuid"),
        ("[on-error]\nannotated = \"shrug\"", "shrug"),
        ("x", "line 1"),
        ("\n\novercomit = true", "line 3: unknown field `overcomit`"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(said), "{text}: {error}");
    }
}

#[test]
fn no_policy_allows_everything_and_one_that_others_may_write_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let paths = HostPaths::below(root.path());
    assert_eq!(super::read(&paths).unwrap(), Policy::default());
    let path = paths.policy();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "overcommit = true").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    let error = super::read(&paths).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot use {}", path.display()));
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    if nix::unistd::geteuid().is_root() {
        assert!(super::read(&paths).unwrap().overcommit);
    }
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused_without_a_panic(text in ".{0,80}") {
        let _ = parse(&text);
    }
}

#[test]
fn the_runtimes_are_known_also_where_another_key_is_wrong() {
    let place = tempfile::tempdir().unwrap();
    let paths = HostPaths::below(place.path());
    let file = paths.policy();
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    assert!(runtimes(&paths).unwrap().is_empty());
    std::fs::write(&file, "maximum = 1\nruntime = [\"crun\"]\n").unwrap();
    assert_eq!(runtimes(&paths).unwrap(), ["crun"]);
    assert!(super::read(&paths).is_err());
    std::fs::write(&file, "runtime = [\"runc\", \"crun\"]\nmaximum = [\n").unwrap();
    assert_eq!(runtimes(&paths).unwrap(), ["runc", "crun"]);
    for list in ["[\n  \"crun\",\n]", "['crun']", "[ 'crun' ] # or \"runc\""] {
        std::fs::write(&file, format!("runtime = {list}\nwrong = 1\n")).unwrap();
        assert_eq!(runtimes(&paths).unwrap(), ["crun"], "{list}");
    }
    for list in [
        "['crun'] # not \"runc\"",
        "[ # ours\n 'crun', # or \"runc\"\n]",
    ] {
        std::fs::write(&file, format!("runtime = {list}\nmaximum = [\n")).unwrap();
        assert_eq!(runtimes(&paths).unwrap(), ["crun"], "{list}");
    }
    // A key of a table is another one.
    std::fs::write(&file, "wrong = 1\n[default]\nruntime = ['crun']\n").unwrap();
    assert!(runtimes(&paths).unwrap().is_empty());
}

#[test]
fn a_wrong_policy_without_a_runtime_is_reported_to_whoever_stops_a_container() {
    let place = tempfile::tempdir().unwrap();
    let paths = HostPaths::below(place.path());
    fs::create_dir_all(paths.policy().parent().unwrap()).unwrap();
    for (text, is_reported) in [
        ("wrong = 1\n", true),
        ("maximum = [\n", true),
        ("runtime = [\"crun\"]\nwrong = 1\n", false),
        ("overcommit = true\n", false),
    ] {
        fs::write(paths.policy(), text).unwrap();
        if nix::unistd::geteuid().is_root() {
            let (_, fault) = runtimes_in_any_case(&paths);
            assert_eq!(fault.is_some(), is_reported, "{text}");
        }
    }
}

#[test]
fn a_link_to_nothing_is_no_policy_that_allows_everything() {
    let root = tempfile::tempdir().unwrap();
    let paths = HostPaths::below(root.path());
    assert_eq!(read(&paths).unwrap(), Policy::default());
    let linked = |place: &Path| {
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink("/nowhere/at/all", place).unwrap();
        let said = format!("{} is a dangling link", place.display());
        let error = anyhow::Error::new(read(&paths).unwrap_err());
        assert_eq!(
            format!("{error:#}"),
            format!("cannot use {}: {said}", paths.policy().display())
        );
        assert!(runtimes(&paths).is_err());
        assert!(runtimes_in_any_case(&paths).1.is_some());
        fs::remove_file(place).unwrap();
    };
    linked(&paths.policy());
    fs::remove_dir(root.path().join("etc/gpuslice")).unwrap();
    linked(&root.path().join("etc/gpuslice"));
    // A link to a policy is accepted.
    let policy = paths.policy();
    fs::create_dir(policy.parent().unwrap()).unwrap();
    let other = root.path().join("other.toml");
    fs::write(&other, "overcommit = true").unwrap();
    std::os::unix::fs::symlink(&other, &policy).unwrap();
    if nix::unistd::geteuid().is_root() {
        assert!(read(&paths).unwrap().overcommit);
    }
}

#[test]
fn the_policy_chooses_what_holds_the_limits_of_all_containers() {
    let of = |text: &str| parse(text).unwrap().fence_for_all();
    assert_eq!((of(""), of("fence = \"auto\"")), (None, None));
    assert_eq!(of("fence = \"driver\""), Some(Fence::Driver));
    assert_eq!(of("fence = \"preload\""), Some(Fence::Preload));
    assert_eq!(of("driver-limits = \"off\""), Some(Fence::Preload));
    for contradiction in ["driver", "auto"] {
        let text = format!("fence = \"{contradiction}\"\ndriver-limits = \"off\"");
        assert!(parse(&text).unwrap_err().contains("contradicts"), "{text}");
    }
    assert!(
        parse("fence = \"kernel\"")
            .unwrap_err()
            .starts_with("line 1: ")
    );
}
