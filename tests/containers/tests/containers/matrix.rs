//! Every engine, with every way to request a slice and everything that a container may bring. Each
//! start gives a slice or a refusal with the reason, and no container starts with the whole card.

use gpuslice_containers::check::Check;
use gpuslice_containers::cri::Cri;
use gpuslice_containers::docker::Docker;
use gpuslice_containers::engine::Engine;
use gpuslice_containers::host::{Done, Host};
use gpuslice_containers::podman::Podman;
use gpuslice_containers::ready::ready;
use gpuslice_containers::slice::{GIB, assert_nothing_left, assert_sliced};
use gpuslice_containers::spec::{Image, Spec};

/// How a container gets its slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By an annotation, or by the Docker runtime of that size.
    AnnotatedRequest,
    /// By the policy's default slice.
    Default,
    /// It gets none, and the policy refuses containers without a request.
    Deny,
    /// By a CDI device that the engine adds.
    Device,
    /// By a CDI device, with a policy that refuses containers without a request.
    DeviceDeny,
}

const WAYS: [Way; 3] = [Way::AnnotatedRequest, Way::Default, Way::Deny];

impl Way {
    pub(crate) fn has_device(self) -> bool {
        matches!(self, Way::Device | Way::DeviceDeny)
    }
}

/// The peculiarity of a container, and a word of the refusal that it leads to.
const BRINGS: [(&str, Option<&str>); 7] = [
    ("nothing", None),
    ("a large environment", None),
    ("a link as its list", Some("not a regular file")),
    ("a volume over /etc", Some("volume")),
    ("a file that is a volume over its list", None),
    ("musl", Some("musl")),
    ("a static program", Some("no dynamic loader")),
];

/// The images other than Debian's, by name and source folder.
const IMAGES: [(&str, &str); 3] = [
    ("musl", "/run/build/containers/musl"),
    ("static", "/run/build/containers/static"),
    ("linked", "/run/images/linked"),
];

/// Prepares the sources of images and volumes.
pub(crate) fn prepare(host: &Host) {
    host.sh(
        "mkdir -p /run/images/linked /run/images/upper /run/images/work /run/empty-etc
         mount -t overlay -o lowerdir=/run/build/containers/debian,upperdir=/run/images/upper,workdir=/run/images/work overlay /run/images/linked
         ln -s /nowhere /run/images/linked/etc/ld.so.preload && : >/run/empty-list",
    )
    .ok();
}

/// The engine whose image store is used.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Store {
    Podman,
    Docker,
    Containerd,
}

/// Imports the images other than Debian's into an engine.
pub(crate) fn import_images(host: &Host, store: Store) {
    for (name, folder) in IMAGES {
        let podman = format!("tar -C {folder} -c . | podman import -q - localhost/{name}:1");
        let script = match store {
            Store::Podman => podman,
            Store::Docker => format!("tar -C {folder} -c . | docker import - {name}:1"),
            Store::Containerd => format!(
                "{podman} &&
                 podman save -q --format oci-archive -o /run/{name}.tar localhost/{name}:1 &&
                 ctr -n k8s.io images import /run/{name}.tar && rm /run/{name}.tar"
            ),
        };
        host.sh(&script).ok();
    }
}

fn spec(brings: &str) -> Spec {
    let mut spec = Spec::new("cell");
    match brings {
        // Go escapes `<` as six bytes, which makes config.json 8.6 MB long.
        "a large environment" => {
            let long = "<".repeat(60_000);
            spec.env.extend((0..24).map(|at| format!("X{at}={long}")));
        }
        "a link as its list" => spec.image = Image::Linked,
        "a volume over /etc" => spec.mounts.push(("/run/empty-etc".into(), "/etc".into())),
        "a file that is a volume over its list" => spec
            .mounts
            .push(("/run/empty-list".into(), "/etc/ld.so.preload".into())),
        "musl" => spec.image = Image::Musl,
        "a static program" => spec.image = Image::Static,
        _ => {}
    }
    if matches!(spec.image, Image::Musl | Image::Static) {
        spec.command = vec!["/bin/hello".into(), "wait".into()];
    }
    spec
}

fn set_policy(host: &Host, way: Way) {
    let policy = match way {
        Way::AnnotatedRequest | Way::Device => "",
        Way::Default => "[default]\nmemory = \"2GiB\"\n",
        Way::Deny | Way::DeviceDeny => "deny-unannotated = true\n",
    };
    let policy = format!("when-not-injectable = \"refuse\"\n{policy}");
    host.write("/etc/gpuslice/config.toml", policy);
}

/// Starts one container of each kind. Returns a description of each fault.
pub(crate) fn faults(host: &Host, engine: &mut dyn Engine, ways: &[Way]) -> Vec<String> {
    let mut faults = Vec::new();
    for way in ways.iter().copied() {
        set_policy(host, way);
        if way != Way::Deny {
            faults.extend(cut_ledger(engine, way));
        }
        for (brings, word) in BRINGS {
            let mut spec = spec(brings);
            if way == Way::AnnotatedRequest {
                spec = spec.memory("2GiB");
            }
            let refusal = match way {
                Way::Deny => Some("do not say how much"),
                _ => word,
            };
            let cell = format!("{}, {way:?}, {brings}", engine.name());
            let fault = fault(host, engine, &spec, refusal);
            faults.extend(fault.map(|fault| format!("{cell}: {fault}")));
        }
    }
    assert_nothing_left(host);
    faults
}

/// The free memory of a slice of 2 GiB in which the querying process has a context.
const LEFT: u64 = 2 * GIB - (254 << 20);

/// A container tries to cut its ledger. A sealed one cannot be cut. If an unsealed one is cut, the
/// container is refused all memory from then on.
fn cut_ledger(engine: &mut dyn Engine, way: Way) -> Option<String> {
    let spec = spec("nothing");
    let spec = if way == Way::AnnotatedRequest {
        spec.memory("2GiB")
    } else {
        spec
    };
    let cell = format!("{}, {way:?}", engine.name());
    let id = match engine.start(&spec) {
        Ok(id) => id,
        Err(done) => return Some(format!("{cell}: {done:?}")),
    };
    let cut = engine.exec(&id, &["truncate", "-s", "0", "/.gpuslice/ledger/ledger"]);
    let free = Check::run(engine, &id).free();
    engine.remove(&id);
    let expected = if cut.code == 0 { 0 } else { LEFT };
    (free != [expected]).then(|| {
        format!(
            "{cell}: the ledger was cut ({}), and {free:?} are free",
            cut.code
        )
    })
}

fn fault(
    host: &Host,
    engine: &mut dyn Engine,
    spec: &Spec,
    refusal: Option<&str>,
) -> Option<String> {
    let said = |done: &Done| format!("{}{}", done.out, done.err);
    match (engine.start(spec), refusal) {
        (Ok(id), None) => {
            // containerd accepts messages of at most 4 MiB, so it cannot exec in such a container.
            let by_containerd = ["docker", "containerd"]
                .iter()
                .any(|name| engine.name().starts_with(name));
            match spec.env.is_empty() || !by_containerd {
                true => assert_sliced(engine, &id, 2 * GIB),
                false => assert_mounted(host),
            }
            engine.remove(&id);
            None
        }
        (Ok(id), Some(word)) => {
            engine.remove(&id);
            Some(format!("it started, and should not: {word}"))
        }
        (Err(done), None) => Some(format!("it did not start: {}", said(&done))),
        (Err(done), Some(word)) => {
            let said = said(&done);
            (!said.contains(word)).then(|| format!("{word:?} is not the reason: {said}"))
        }
    }
}

/// Asserts from the host that its only container has a slice.
fn assert_mounted(host: &Host) {
    let records = host.list("/run/gpuslice/slices");
    assert_eq!(records.len(), 1, "{records:?}");
    let script = format!(
        "pid=$(grep -o '\"pid\":[0-9]*' /run/gpuslice/slices/{} | cut -d: -f2) && cd /proc/$pid/root &&
         cat etc/ld.so.preload .gpuslice/slice.json",
        records[0]
    );
    let said = host.sh(&script).ok();
    assert!(said.starts_with("/.gpuslice/libgpuslice.so\n"), "{said}");
    assert!(said.contains(&(2 * GIB).to_string()), "{said}");
}

#[test]
#[ignore = "about a hundred containers of three engines: make check-all"]
fn podman_starts_nothing_without_its_slice() {
    if !ready() {
        return;
    }
    let host = Host::new();
    prepare(&host);
    let mut podman = Podman::new(&host, "runc", "createRuntime");
    import_images(&host, Store::Podman);
    host.sh("rm /usr/share/containers/oci/hooks.d/*gpuslice*; gpuslice runtime configure --runtime podman --always")
        .ok();
    let mut faults = faults(&host, &mut podman, &WAYS);
    host.sh("gpuslice runtime configure --runtime podman --remove; rm -f /usr/share/containers/oci/hooks.d/*gpuslice*
             gpuslice runtime configure --runtime podman --by runtime")
        .ok();
    let mut wrapped = Podman::again(&host, "gpuslice");
    faults.extend(self::faults(&host, &mut wrapped, &WAYS));
    host.sh(
        "gpuslice runtime configure --runtime podman --by runtime --remove
             gpuslice cdi generate --size 2GiB --output /etc/cdi/gpuslice.yaml",
    )
    .ok();
    let mut by_device = ByDevice(podman);
    let ways = [Way::Default, Way::Device, Way::DeviceDeny];
    faults.extend(self::faults(&host, &mut by_device, &ways));
    assert_eq!(faults, Vec::<String>::new());
}

/// Podman with a CDI device of ours.
pub(crate) struct ByDevice<'h>(pub(crate) Podman<'h>);

impl Engine for ByDevice<'_> {
    fn name(&self) -> String {
        "podman with a CDI device".into()
    }

    fn start(&mut self, spec: &Spec) -> Result<String, Done> {
        let options = self.0.options(spec);
        let mut arguments = vec!["run", "-d", "--device=gpuslice.io/slice=2gib"];
        arguments.extend(options.iter().map(String::as_str));
        let done = self.0.podman(&arguments);
        if done.code == 0 {
            return Ok(spec.name.clone());
        }
        self.remove(&spec.name);
        Err(done)
    }

    fn exec(&self, id: &str, command: &[&str]) -> Done {
        self.0.exec(id, command)
    }

    fn restart(&mut self, id: &str) {
        self.0.restart(id);
    }

    fn remove(&mut self, id: &str) {
        self.0.remove(id);
    }
}

#[test]
#[ignore = "about a hundred containers of three engines: make check-all"]
fn docker_starts_nothing_without_its_slice() {
    if !ready() {
        return;
    }
    let host = Host::new();
    prepare(&host);
    host.sh("gpuslice runtime configure --runtime docker --size 2GiB")
        .ok();
    let mut docker = Docker::new(&host, "gpuslice");
    import_images(&host, Store::Docker);
    let faults = faults(&host, &mut docker, &WAYS);
    assert_eq!(faults, Vec::<String>::new());
}

#[test]
#[ignore = "about a hundred containers of three engines: make check-all"]
fn containerd_starts_no_pod_without_its_slice() {
    if !ready() {
        return;
    }
    for by in ["hooks", "runtime"] {
        let host = Host::new();
        prepare(&host);
        let configure = format!("gpuslice runtime configure --runtime containerd --by {by}");
        let mut cri = Cri::new(&host, "gpuslice", &configure);
        import_images(&host, Store::Containerd);
        let faults = faults(&host, &mut cri, &WAYS);
        assert_eq!(faults, Vec::<String>::new(), "--by {by}");
    }
}
