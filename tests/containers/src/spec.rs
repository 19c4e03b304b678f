//! What container is wanted, whatever runtime starts it.
//! Touches: its arguments.

use serde_json::{Value, json};

/// The root of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// glibc, a shell, coreutils.
    Debian,
    /// musl's libc, a program that is linked to it, a static busybox.
    Musl,
    /// One static program.
    Static,
    /// Debian's, with a link as `/etc/ld.so.preload`; made by the test that wants it.
    Linked,
}

impl Image {
    /// The folder that `setup.sh` has made, and the name of the image that is made of it.
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
    /// Its environment, beside what all of these have.
    pub env: Vec<String>,
    /// A root that cannot be written.
    pub read_only: bool,
    /// Ids of the container are others on the host.
    pub user_namespace: bool,
    /// `(source, destination)` beside the driver, its state and the program under test.
    pub mounts: Vec<(String, String)>,
    /// What runs in it.
    pub command: Vec<String>,
    /// Capabilities beside those that Docker gives.
    pub capabilities: Vec<String>,
    /// The simulated GPUs of the machine that it is on.
    pub gpus: &'static str,
}

impl Spec {
    /// A Debian that sleeps.
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

    /// The same, with so much memory.
    #[must_use]
    pub fn memory(self, memory: &str) -> Spec {
        self.annotated("gpuslice.io/memory", memory)
    }

    /// The same, with an annotation.
    #[must_use]
    pub fn annotated(mut self, key: &str, value: &str) -> Spec {
        self.annotations.push((key.into(), value.into()));
        self
    }

    /// The same, running another program.
    #[must_use]
    pub fn running(mut self, command: &[&str]) -> Spec {
        self.command = command.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// The mounts of all containers of these tests and its own: source, destination, `ro` or `rw`.
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

    /// The variables of all containers of these tests and its own.
    #[must_use]
    pub fn all_env(&self) -> Vec<String> {
        let gpus = format!("GPUSLICE_SIM={}", self.gpus);
        let mut all = vec!["GPUSLICE_SIM_STATE=/state".to_owned(), gpus];
        all.extend(self.env.iter().cloned());
        all
    }

    /// The annotations as JSON has them.
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

/// Where the hook is installed.
pub const HOOK: &str = "/usr/bin/gpuslice-hook";

/// What a runtime's configuration says to run at a stage. An environment of its own, always:
/// without one some runtimes pass the image's.
#[must_use]
pub fn hook(stage: &str) -> Value {
    json!({
        "path": HOOK,
        "args": ["gpuslice-hook", stage],
        "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
    })
}

/// The `hooks` of a configuration with ours at one stage, and after the end.
#[must_use]
pub fn hooks(stage: &str) -> Value {
    json!({ stage: [hook(stage)], "poststop": [hook("poststop")] })
}
