//! An engine's side of the protocol, and a host whose engine it is.
//! Touches: socket pairs, temporary folders.

use crate::program::Program;
use gpuslice_dra::nri::api::{
    Adjustment, ConfigureResponse, Container, CreateRequest, CreateResponse, PLUGIN, PodSandbox,
    RegisterRequest, SynchronizeRequest,
};
use gpuslice_dra::nri::ttrpc::{Message, Request, Response, Status};
use gpuslice_dra::nri::{End, Plugin, SessionError, mux, session};
use gpuslice_host::base::paths::HostPaths;
use prost::Message as _;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::Duration;
/// The engine's side of a connection.
pub(crate) struct Engine {
    pub(crate) stream: UnixStream,
    pub(crate) received: Vec<u8>,
    pub(crate) calls: u32,
    /// The bytes of a frame that the engine writes.
    pub(crate) frame: usize,
}

impl Engine {
    pub(crate) fn new(stream: UnixStream) -> Engine {
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        Engine {
            stream,
            received: Vec::new(),
            calls: 0,
            frame: usize::MAX,
        }
    }

    /// Reads the registration, and answers it.
    pub(crate) fn register(&mut self, result: Result<Vec<u8>, Status>) -> RegisterRequest {
        let (connection, bytes) = mux::read(&mut self.stream).unwrap().unwrap();
        assert_eq!(connection, mux::RUNTIME);
        // Ten bytes are the header of ttrpc.
        let stream = u32::from_be_bytes(bytes[4..8].try_into().unwrap());
        assert_eq!(stream % 2, 1, "a client's calls have odd numbers");
        let request = Request::decode(&bytes[10..]).unwrap();
        assert_eq!(request.service, "nri.pkg.api.v1alpha1.Runtime");
        assert_eq!(request.method, "RegisterPlugin");
        let answer = Message::response(stream, result).bytes();
        mux::write(&mut self.stream, mux::RUNTIME, &answer).unwrap();
        RegisterRequest::decode(request.payload.as_slice()).unwrap()
    }

    /// Calls a method, and returns the response.
    pub(crate) fn call(&mut self, method: &str, argument: &impl prost::Message) -> Response {
        self.calls += 2;
        let stream = self.calls - 1;
        let bytes = Message::request(stream, PLUGIN, method, argument).bytes();
        for part in bytes.chunks(self.frame) {
            mux::write(&mut self.stream, mux::PLUGIN, part).unwrap();
        }
        loop {
            if let Some(length) = self.received.first_chunk::<4>() {
                let end = 10 + usize::try_from(u32::from_be_bytes(*length)).unwrap();
                if self.received.len() >= end {
                    let message: Vec<u8> = self.received.drain(..end).collect();
                    assert_eq!(message[4..8], stream.to_be_bytes());
                    assert_eq!(message[8], 2, "a response");
                    return Response::decode(&message[10..]).unwrap();
                }
            }
            let (connection, part) = mux::read(&mut self.stream).unwrap().unwrap();
            assert_eq!(connection, mux::PLUGIN);
            self.received.extend(part);
        }
    }

    pub(crate) fn create(&mut self, pod: &PodSandbox, name: &str) -> Option<Adjustment> {
        let request = CreateRequest {
            pod: Some(pod.clone()),
            container: Some(Container {
                id: format!("id-{name}"),
                name: name.to_owned(),
                ..Container::default()
            }),
        };
        let response = self.call("CreateContainer", &request);
        assert_eq!(response.status, None);
        CreateResponse::decode(response.payload.as_slice())
            .unwrap()
            .adjust
    }
}

pub(crate) struct Host {
    pub(crate) folder: tempfile::TempDir,
}

impl Host {
    pub(crate) fn new(policy: &str) -> Host {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "etc/gpuslice",
            "run/gpuslice/slices",
            "usr/bin",
            "var/log/gpuslice",
        ] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let hook = folder.path().join("usr/bin/gpuslice-hook");
        std::fs::write(&hook, "").unwrap();
        std::fs::set_permissions(hook, Permissions::from_mode(0o755)).unwrap();
        std::fs::write(folder.path().join("etc/gpuslice/config.toml"), policy).unwrap();
        Host { folder }
    }

    pub(crate) fn paths(&self) -> HostPaths {
        HostPaths::below(self.folder.path())
    }

    pub(crate) fn events(&self) -> String {
        let path = self.folder.path().join("var/log/gpuslice/events.jsonl");
        std::fs::read_to_string(path).unwrap_or_default()
    }

    /// The program, its socket of the engine and its folder of plugins.
    pub(crate) fn program(&self) -> (Program, PathBuf, PathBuf) {
        let [socket, plugins] = ["nri.sock", "plugins"].map(|name| self.folder.path().join(name));
        let mut program = Command::new(env!("CARGO_BIN_EXE_gpuslice-dra"));
        program.arg("--plugins").arg(&plugins);
        program.arg("--host-root").arg(self.folder.path());
        program.arg("nri").arg("--socket").arg(&socket);
        (Program(program.spawn().unwrap()), socket, plugins)
    }

    /// A session of the plugin, and the engine's side of it.
    pub(crate) fn session(&self) -> (Engine, JoinHandle<Result<End, SessionError>>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut plugin = Plugin::new(self.paths(), "/usr/bin/gpuslice-hook".into());
        let served = thread::spawn(move || session(ours, &mut plugin, "10", &mut |_| Ok(())));
        (Engine::new(theirs), served)
    }

    /// Synchronizes with an engine that runs a container `of-ID` in each pod.
    pub(crate) fn synchronize(&self, pods: Vec<PodSandbox>) {
        let container = |pod: &PodSandbox| Container {
            id: format!("of-{}", pod.id),
            name: "main".to_owned(),
            pod_sandbox_id: pod.id.clone(),
            state: 3,
            ..Container::default()
        };
        let request = SynchronizeRequest {
            containers: pods.iter().map(container).collect(),
            pods,
            more: false,
        };
        let (mut engine, _served) = self.configured();
        engine.call("Synchronize", &request);
    }

    /// A session of a registered and configured plugin.
    pub(crate) fn configured(&self) -> (Engine, JoinHandle<Result<End, SessionError>>) {
        let (mut engine, served) = self.session();
        engine.register(Ok(Vec::new()));
        let response = engine.call("Configure", &RegisterRequest::default());
        let configured = ConfigureResponse::decode(response.payload.as_slice()).unwrap();
        assert_eq!(configured.events, 8, "CREATE_CONTAINER and nothing else");
        (engine, served)
    }
}

pub(crate) fn pod(annotations: &[(&str, &str)]) -> PodSandbox {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    PodSandbox {
        id: "sandbox".to_owned(),
        name: "web".to_owned(),
        uid: String::new(),
        namespace: "team".to_owned(),
        annotations: annotations.iter().map(owned).collect(),
    }
}
