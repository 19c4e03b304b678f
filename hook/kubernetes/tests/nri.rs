//! The NRI plugin against an engine's side of the protocol: registration, configuration, containers.
//! Touches: socket pairs, temporary folders, a child process.

#![expect(
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "a test that cannot be set up has failed"
)]

use gpuslice_dra::nri::api::{
    Adjustment, ConfigureResponse, Container, CreateRequest, CreateResponse, PLUGIN, PodSandbox,
    RegisterRequest, SynchronizeRequest,
};
use gpuslice_dra::nri::ttrpc::{Message, Request, Response, Status};
use gpuslice_dra::nri::{End, Plugin, SessionError, mux, session};
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::slices::records::{Member, SliceRecord};
use prost::Message as _;
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The engine's side of a connection.
struct Engine {
    stream: UnixStream,
    received: Vec<u8>,
    calls: u32,
    /// The bytes of a frame that the engine writes.
    frame: usize,
}

impl Engine {
    fn new(stream: UnixStream) -> Engine {
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
    fn register(&mut self, result: Result<Vec<u8>, Status>) -> RegisterRequest {
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
    fn call(&mut self, method: &str, argument: &impl prost::Message) -> Response {
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

    fn create(&mut self, pod: &PodSandbox, name: &str) -> Option<Adjustment> {
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

struct Host {
    folder: tempfile::TempDir,
}

impl Host {
    fn new(policy: &str) -> Host {
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

    fn paths(&self) -> HostPaths {
        HostPaths::below(self.folder.path())
    }

    fn events(&self) -> String {
        let path = self.folder.path().join("var/log/gpuslice/events.jsonl");
        std::fs::read_to_string(path).unwrap_or_default()
    }

    /// The program, its socket of the engine and its folder of plugins.
    fn program(&self) -> (Program, PathBuf, PathBuf) {
        let [socket, plugins] = ["nri.sock", "plugins"].map(|name| self.folder.path().join(name));
        let mut program = Command::new(env!("CARGO_BIN_EXE_gpuslice-dra"));
        program.arg("--plugins").arg(&plugins);
        program.arg("--host-root").arg(self.folder.path());
        program.arg("nri").arg("--socket").arg(&socket);
        (Program(program.spawn().unwrap()), socket, plugins)
    }

    /// A session of the plugin, and the engine's side of it.
    fn session(&self) -> (Engine, JoinHandle<Result<End, SessionError>>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut plugin = Plugin::new(self.paths(), "/usr/bin/gpuslice-hook".into());
        let served = thread::spawn(move || session(ours, &mut plugin, "10", &mut |_| Ok(())));
        (Engine::new(theirs), served)
    }

    /// Synchronizes with an engine that runs a container `of-ID` in each pod.
    fn synchronize(&self, pods: Vec<PodSandbox>) {
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
    fn configured(&self) -> (Engine, JoinHandle<Result<End, SessionError>>) {
        let (mut engine, served) = self.session();
        engine.register(Ok(Vec::new()));
        let response = engine.call("Configure", &RegisterRequest::default());
        let configured = ConfigureResponse::decode(response.payload.as_slice()).unwrap();
        assert_eq!(configured.events, 8, "CREATE_CONTAINER and nothing else");
        (engine, served)
    }
}

fn pod(annotations: &[(&str, &str)]) -> PodSandbox {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    PodSandbox {
        id: "sandbox".to_owned(),
        name: "web".to_owned(),
        uid: String::new(),
        namespace: "team".to_owned(),
        annotations: annotations.iter().map(owned).collect(),
    }
}

#[test]
fn a_plugin_registers_subscribes_and_adjusts_what_asks_for_a_slice() {
    let host = Host::new("");
    let (mut engine, served) = host.session();
    let registration = engine.register(Ok(Vec::new()));
    assert_eq!(
        registration,
        RegisterRequest {
            plugin_name: "gpuslice".into(),
            plugin_idx: "10".into()
        }
    );
    engine.call("Configure", &RegisterRequest::default());
    engine.call("Synchronize", &SynchronizeRequest::default());
    let asking = pod(&[("gpuslice.io/memory", "8GiB"), ("other", "x")]);
    let adjustment = engine.create(&asking, "main").unwrap();
    assert_eq!(adjustment.annotations.len(), 1);
    assert_eq!(
        adjustment.hooks.unwrap().create_runtime[0].args,
        ["gpuslice-hook", "createRuntime"]
    );
    assert_eq!(engine.create(&pod(&[("other", "x")]), "main"), None);
    drop(engine);
    assert_eq!(served.join().unwrap().unwrap(), End::Closed);
}

#[test]
fn messages_arrive_whole_however_the_engine_cuts_its_frames() {
    let host = Host::new("");
    let (mut engine, _served) = host.configured();
    let long = "x".repeat(20_000);
    let pod = pod(&[
        ("gpuslice.io/memory", "8GiB"),
        ("gpuslice.io/unknown", &long),
    ]);
    for frame in [1, 7, 10, 4096, usize::MAX] {
        engine.frame = frame;
        let adjustment = engine.create(&pod, "main").unwrap();
        assert_eq!(
            adjustment.annotations["gpuslice.io/unknown"], long,
            "{frame}"
        );
    }
}

#[test]
fn the_policy_is_read_again_for_each_container() {
    let host = Host::new("");
    let (mut engine, _served) = host.configured();
    let kai = pod(&[("gpu-memory", "8192")]);
    assert_eq!(engine.create(&kai, "main"), None);
    let policy = host.folder.path().join("etc/gpuslice/config.toml");
    std::fs::write(&policy, "[dialects]\nkai = true").unwrap();
    assert!(engine.create(&kai, "main").is_some());
    // With a policy that cannot be used, the hook decides, and refuses what asks for a slice.
    std::fs::write(&policy, "nonsense").unwrap();
    assert!(engine.create(&kai, "main").is_some());
}

#[test]
fn a_call_that_is_not_understood_is_answered_with_an_error() {
    let host = Host::new("");
    let (mut engine, _served) = host.configured();
    let unknown = engine
        .call("Evict", &RegisterRequest::default())
        .status
        .unwrap();
    assert_eq!(unknown.code, 12);
    assert!(
        unknown.message.contains("Plugin.Evict"),
        "{}",
        unknown.message
    );
    // An argument of another type: an engine refuses the container then.
    let broken = engine.call(
        "CreateContainer",
        &RegisterRequest {
            plugin_name: "\u{1}".into(),
            plugin_idx: String::new(),
        },
    );
    let status = broken.status.unwrap();
    assert_eq!(status.code, 9);
    assert!(
        status.message.starts_with("gpuslice: CreateContainer: "),
        "{}",
        status.message
    );
    // The connection goes on.
    assert!(
        engine
            .create(&pod(&[("gpuslice.io/memory", "1GiB")]), "main")
            .is_some()
    );
}

#[test]
fn a_plugin_that_is_refused_says_why() {
    let host = Host::new("");
    let (mut engine, served) = host.session();
    engine.register(Err(Status {
        code: 2,
        message: "no plugins here".to_owned(),
    }));
    let error = served.join().unwrap().unwrap_err();
    assert!(
        matches!(&error, SessionError::Refused(why) if why == "no plugins here"),
        "{error}"
    );
}

#[test]
fn what_is_not_nri_ends_the_session() {
    let host = Host::new("");
    for bytes in [
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        [[0, 0, 0, 1, 0, 0, 0, 10].as_slice(), &[255; 10]].concat(),
    ] {
        let (mut engine, served) = host.session();
        let _ = engine.stream.write_all(&bytes);
        drop(engine);
        served.join().unwrap().unwrap_err();
    }
}

#[test]
fn a_shutdown_is_answered_and_ends_the_session() {
    let host = Host::new("");
    let (mut engine, served) = host.configured();
    assert_eq!(
        engine.call("Shutdown", &RegisterRequest::default()).status,
        None
    );
    assert_eq!(served.join().unwrap().unwrap(), End::Shutdown);
}

#[test]
fn a_container_that_started_without_the_plugin_is_an_event() {
    let host = Host::new("");
    let (mut engine, _served) = host.configured();
    let container = |id: &str, pod: &str, state| Container {
        id: id.to_owned(),
        name: "main".to_owned(),
        pod_sandbox_id: pod.to_owned(),
        state,
        ..Container::default()
    };
    let asking = pod(&[("gpuslice.io/memory", "8GiB")]);
    let other = PodSandbox {
        id: "other".to_owned(),
        ..pod(&[])
    };
    // The containers come before their pods.
    let containers = vec![
        container("escaped", "sandbox", 3),
        container("stopped", "sandbox", 4),
        container("unasked", "other", 3),
    ];
    let first = SynchronizeRequest {
        pods: Vec::new(),
        containers,
        more: true,
    };
    let answer = engine.call("Synchronize", &first);
    assert_eq!(answer.payload, [0x10, 1], "more is understood");
    assert_eq!(host.events(), "");
    let last = SynchronizeRequest {
        pods: vec![asking, other],
        containers: Vec::new(),
        more: false,
    };
    engine.call("Synchronize", &last);
    let events = host.events();
    assert_eq!(events.lines().count(), 1, "{events}");
    assert!(events.contains(r#""event":"escape""#) && events.contains(r#""container":"escaped""#));
    assert!(events.contains("team/web/main") && events.contains("runs without a slice"));
}

#[test]
fn a_container_with_a_record_is_no_event() {
    let host = Host::new("");
    let record = serde_json::json!({
        "version": SliceRecord::VERSION, "slice": "c1", "name": "team/web/main",
        "devices": [], "containers": [{"id": "c1", "name": "team/web/main",
            "pid": 1, "starttime": 1, "bundle": "/b", "drops": []}],
    });
    let parsed: Result<SliceRecord, _> = serde_json::from_value(record.clone());
    let member: &Member = &parsed.unwrap().containers[0];
    assert_eq!(member.id, "c1");
    std::fs::write(host.paths().slice("c1"), record.to_string()).unwrap();
    let (mut engine, _served) = host.configured();
    let containers = vec![Container {
        id: "c1".to_owned(),
        name: "main".to_owned(),
        pod_sandbox_id: "sandbox".to_owned(),
        state: 3,
        ..Container::default()
    }];
    let pods = vec![pod(&[("gpuslice.io/memory", "8GiB")])];
    engine.call(
        "Synchronize",
        &SynchronizeRequest {
            pods,
            containers,
            more: false,
        },
    );
    assert_eq!(host.events(), "");
}

#[test]
fn a_request_that_the_hook_would_have_refused_is_an_event() {
    let host = Host::new("");
    let pod = |id: &str, key: &str, value: &str| PodSandbox {
        id: id.to_owned(),
        ..pod(&[(key, value)])
    };
    let pods = vec![
        pod("unknown", "gpuslice.io/memroy", "8GiB"),
        pod("size", "gpuslice.io/memory", "8 Gigs"),
        pod("other", "gpuslice.io/containers", "side"),
    ];
    host.synchronize(pods);
    let events = host.events();
    assert_eq!(events.lines().count(), 2, "{events}");
    assert!(events.contains(r#""container":"of-unknown""#));
    assert!(events.contains(r#""container":"of-size""#));
}

#[test]
fn a_damaged_record_hides_only_the_containers_that_it_may_name() {
    let host = Host::new("");
    let pods = || {
        let pod = |id: &str| PodSandbox {
            id: id.to_owned(),
            ..pod(&[("gpuslice.io/memory", "8GiB")])
        };
        vec![pod("one"), pod("two")]
    };
    std::fs::write(host.paths().slice("of-one"), "{").unwrap();
    host.synchronize(pods());
    let events = host.events();
    assert_eq!(events.lines().count(), 1, "{events}");
    assert!(events.contains(r#""container":"of-two""#));
    // A slice with a name may be of any container.
    let host = Host::new("");
    std::fs::write(host.paths().slice("named-0123456789abcdef"), "{").unwrap();
    host.synchronize(pods());
    assert_eq!(host.events(), "");
}

/// The program, which a test ends.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn probe(folder: &Path) -> (bool, String) {
    let mut probe = Command::new(env!("CARGO_BIN_EXE_gpuslice-dra"));
    let probe = probe.arg("--plugins").arg(folder).args(["ready", "--nri"]);
    let output = probe.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.success(), said)
}

fn ready(folder: &Path) -> bool {
    probe(folder).0
}

fn wait_for(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !so() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_program_connects_again_when_the_engine_restarts() {
    let host = Host::new("");
    let (_program, socket, plugins) = host.program();
    wait_for("it says that there is no engine", || {
        plugins.join("gpuslice.io/nri-ready").exists()
    });
    assert!(!ready(&plugins));
    for _ in 0..2 {
        let listener = UnixListener::bind(&socket).unwrap();
        let mut engine = Engine::new(listener.accept().unwrap().0);
        engine.register(Ok(Vec::new()));
        engine.call("Configure", &RegisterRequest::default());
        wait_for("it is ready", || ready(&plugins));
        assert!(
            engine
                .create(&pod(&[("gpuslice.io/memory", "1GiB")]), "main")
                .is_some()
        );
        drop((engine, listener));
        std::fs::remove_file(&socket).unwrap();
        wait_for("it is not ready", || !ready(&plugins));
    }
}

#[test]
fn the_program_is_not_ready_without_the_hook_and_still_adjusts() {
    let host = Host::new("");
    let (_program, socket, plugins) = host.program();
    let listener = UnixListener::bind(&socket).unwrap();
    let mut engine = Engine::new(listener.accept().unwrap().0);
    engine.register(Ok(Vec::new()));
    engine.call("Configure", &RegisterRequest::default());
    wait_for("it is ready", || ready(&plugins));
    let hook = host.folder.path().join("usr/bin/gpuslice-hook");
    std::fs::remove_file(&hook).unwrap();
    wait_for("it is not ready", || !ready(&plugins));
    let sentence = "there is no executable /usr/bin/gpuslice-hook on this host, so no container would \
                    get its slice (install gpuslice, or name the file by --hook)";
    let (_, said) = probe(&plugins);
    assert!(said.trim_end().ends_with(sentence), "{said}");
    // The engine cannot start the container. Without the plugin it would have the whole GPU.
    let asking = pod(&[("gpuslice.io/memory", "1GiB")]);
    assert!(engine.create(&asking, "main").is_some());
    std::fs::write(&hook, "").unwrap();
    std::fs::set_permissions(&hook, Permissions::from_mode(0o755)).unwrap();
    wait_for("it is ready again", || ready(&plugins));
}
