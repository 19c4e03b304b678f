//! The description of a container, for any runtime.
//! Touches: its arguments.

use serde_json::{Value, json};

/// The root of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// glibc, a shell, coreutils.
    Debian,
    /// A root with musl, a program linked to it, and a static busybox.
    Musl,
    /// One static program.
    Static,
    /// Debian's root with a link at `/etc/ld.so.preload`. The test that needs it makes it.
    Linked,
}

impl Image {
    /// The name of the image, and of the folder of `setup.sh` that it is made from.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Image::Debian => "debian",
            Image::Musl => "musl",
            Image::Static => "static",
            Image::Linked => "linked",
        }
    }
}

/// A container.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Its name or id.
    pub name: String,
    /// Its root.
    pub image: Image,
    /// Its annotations.
    pub annotations: Vec<(String, String)>,
    /// Its environment variables, in addition to those of all containers of these tests.
    pub env: Vec<String>,
    /// Whether its root is read-only.
    pub read_only: bool,
    /// Whether it has a user namespace, so that its ids differ from the host's.
    pub user_namespace: bool,
    /// `(source, destination)` of mounts in addition to the driver, its state and the program under
    /// test.
    pub mounts: Vec<(String, String)>,
    /// The command that it runs.
    pub command: Vec<String>,
    /// Capabilities in addition to those that Docker gives.
    pub capabilities: Vec<String>,
    /// The simulated GPUs of its machine.
    pub gpus: &'static str,
}

impl Spec {
    /// A Debian container that sleeps.
    #[must_use]
    pub fn new(name: &str) -> Spec {
        Spec {
            name: name.to_owned(),
            image: Image::Debian,
            annotations: Vec::new(),
            env: Vec::new(),
            read_only: false,
            user_namespace: false,
            mounts: Vec::new(),
            command: vec!["/usr/bin/sleep".into(), "1000000".into()],
            capabilities: Vec::new(),
            gpus: "rtx3090",
        }
    }

    /// Sets the requested memory.
    #[must_use]
    pub fn memory(self, memory: &str) -> Spec {
        self.annotated("gpuslice.io/memory", memory)
    }

    /// Adds an annotation.
    #[must_use]
    pub fn annotated(mut self, key: &str, value: &str) -> Spec {
        self.annotations.push((key.into(), value.into()));
        self
    }

    /// Sets the command.
    #[must_use]
    pub fn running(mut self, command: &[&str]) -> Spec {
        self.command = command.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// All its mounts, including those of every container of these tests: source, destination, `ro`
    /// or `rw`.
    #[must_use]
    pub fn all_mounts(&self) -> Vec<(String, String, &'static str)> {
        let mut all: Vec<(String, String, &str)> = [
            ("/run/build/sim", "/sim", "ro"),
            ("/run/sim", "/state", "rw"),
            ("/run/build/release/gpuslice", "/opt/gpuslice", "ro"),
        ]
        .map(|(from, to, how)| (from.to_owned(), to.to_owned(), how))
        .to_vec();
        all.extend(
            self.mounts
                .iter()
                .map(|(from, to)| (from.clone(), to.clone(), "rw")),
        );
        all
    }

    /// All its variables, including those of every container of these tests.
    #[must_use]
    pub fn all_env(&self) -> Vec<String> {
        let gpus = format!("GPUSLICE_SIM={}", self.gpus);
        let mut all = vec!["GPUSLICE_SIM_STATE=/state".to_owned(), gpus];
        all.extend(self.env.iter().cloned());
        all
    }

    /// Its annotations as JSON.
    #[must_use]
    pub fn annotations_json(&self) -> Value {
        let pairs = self.annotations.iter();
        Value::Object(
            pairs
                .map(|(key, value)| (key.clone(), json!(value)))
                .collect(),
        )
    }
}

/// The installed path of the hook.
pub const HOOK: &str = "/usr/bin/gpuslice-hook";

/// The definition of our hook at a stage. It always has an environment, because some runtimes
/// otherwise pass the image's to the hook.
#[must_use]
pub fn hook(stage: &str) -> Value {
    json!({
        "path": HOOK,
        "args": ["gpuslice-hook", stage],
        "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
    })
}

/// The `hooks` of a configuration with ours at one stage and at poststop.
#[must_use]
pub fn hooks(stage: &str) -> Value {
    json!({ stage: [hook(stage)], "poststop": [hook("poststop")] })
}
