//! The kubelet's side: finds the driver's socket, registers it, and calls as the kubelet 1.36.2 was
//! seen to.
//! Touches: the sockets.

use gpuslice_dra::kubelet::messages::{
    Claim, Claims, DevicesHealth, Empty, PluginInfo, Prepared, PreparedClaim, RegistrationStatus,
    Unprepared,
};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

pub const V1: &str = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin";
pub const V1BETA1: &str = "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin";

/// A kubelet.
pub struct Kubelet {
    registry: PathBuf,
    runtime: Runtime,
}

/// The claim of this uid, by the name `c1` in `default`.
pub fn named(name: &str, uid: &str) -> Claim {
    Claim {
        namespace: "default".to_owned(),
        uid: uid.to_owned(),
        name: name.to_owned(),
    }
}

impl Kubelet {
    pub fn new(registry: PathBuf) -> Kubelet {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        Kubelet { registry, runtime }
    }

    fn registration(&self) -> PathBuf {
        self.registry.join("gpuslice.io-reg.sock")
    }

    pub fn sees_driver(&self) -> bool {
        self.registration().exists()
    }

    /// Registers the driver, once its socket is there.
    pub fn register(&self) -> PluginInfo {
        let info = self.info();
        self.notify(true, "");
        info
    }

    /// Asks the driver for its name, once its socket is there.
    pub fn info(&self) -> PluginInfo {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let asked = self.call(
                &self.registration(),
                "pluginregistration.Registration",
                "GetInfo",
                &Empty {},
            );
            match asked {
                Ok(info) => return info,
                Err(error) => assert!(
                    Instant::now() < end,
                    "the driver does not register: {error}"
                ),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn notify(&self, plugin_registered: bool, error: &str) {
        let status = RegistrationStatus {
            plugin_registered,
            error: error.to_owned(),
        };
        let service = "pluginregistration.Registration";
        let method = "NotifyRegistrationStatus";
        let _: Empty = self
            .call(&self.registration(), service, method, &status)
            .unwrap();
    }

    fn socket(&self) -> PathBuf {
        let plugins = self.registry.with_file_name("plugins");
        plugins.join("gpuslice.io/dra.sock")
    }

    pub fn prepare(&self, claims: &[Claim]) -> Prepared {
        self.prepare_by(V1, claims)
    }

    pub fn prepare_by(&self, service: &str, claims: &[Claim]) -> Prepared {
        let claims = Claims {
            claims: claims.to_vec(),
        };
        let socket = self.socket();
        self.call(&socket, service, "NodePrepareResources", &claims)
            .unwrap()
    }

    /// Prepares one claim, and returns its entry.
    pub fn prepare_one(&self, claim: &Claim) -> PreparedClaim {
        let mut prepared = self.prepare(std::slice::from_ref(claim));
        assert_eq!(prepared.claims.len(), 1);
        prepared.claims.remove(&claim.uid).unwrap()
    }

    pub fn unprepare(&self, claims: &[Claim]) -> Unprepared {
        let claims = Claims {
            claims: claims.to_vec(),
        };
        let socket = self.socket();
        self.call(&socket, V1, "NodeUnprepareResources", &claims)
            .unwrap()
    }

    /// The health of the devices, once it is such.
    pub fn health(&self, service: &str, is: impl Fn(&DevicesHealth) -> bool) -> DevicesHealth {
        let wait = Duration::from_secs(60);
        let call = async {
            let socket = self.socket();
            let mut answer = send(&socket, service, "NodeWatchResources", &Empty {})
                .await
                .unwrap();
            let mut bytes = Vec::new();
            loop {
                let frame = answer.frame().await.unwrap().unwrap();
                bytes.extend_from_slice(frame.data_ref().unwrap());
                while let Some((message, rest)) = message(&bytes) {
                    let health = DevicesHealth::decode(message).unwrap();
                    bytes = rest.to_vec();
                    if is(&health) {
                        return health;
                    }
                }
            }
        };
        let within = async { tokio::time::timeout(wait, call).await };
        self.runtime.block_on(within).unwrap()
    }

    pub fn call<A: Message + Default>(
        &self,
        socket: &Path,
        service: &str,
        method: &str,
        asked: &impl Message,
    ) -> Result<A, String> {
        self.runtime.block_on(async {
            let answer = send(socket, service, method, asked).await?;
            let all = answer.collect().await.map_err(|error| error.to_string())?;
            let status = all.trailers().and_then(|all| all.get("grpc-status"));
            let status = status.map(|status| status.to_str().unwrap().to_owned());
            let bytes = all.to_bytes();
            match (status.as_deref(), message(&bytes)) {
                (Some("0"), Some((message, []))) => Ok(A::decode(message).unwrap()),
                answer => Err(format!("{answer:?}")),
            }
        })
    }

    /// The status of a call that is refused at once.
    pub fn refusal(&self, service: &str, method: &str) -> String {
        let called = self.call::<Empty>(&self.socket(), service, method, &Empty {});
        called.unwrap_err()
    }
}

/// The first message of a stream, and what follows it.
fn message(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (head, rest) = bytes.split_at_checked(5)?;
    assert_eq!(head[0], 0, "the message is compressed");
    let length = u32::from_be_bytes(head[1..].try_into().unwrap());
    rest.split_at_checked(usize::try_from(length).unwrap())
}

async fn send(
    socket: &Path,
    service: &str,
    method: &str,
    asked: &impl Message,
) -> Result<hyper::body::Incoming, String> {
    let text = |error: &dyn std::error::Error| error.to_string();
    let stream = UnixStream::connect(socket)
        .await
        .map_err(|error| text(&error))?;
    let client = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = client.await.map_err(|error| text(&error))?;
    tokio::spawn(connection);
    let message = asked.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap();
    let body = [&[0], length.to_be_bytes().as_slice(), &message].concat();
    let request = http::Request::post(format!("http://localhost/{service}/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    let answer = sender
        .send_request(request)
        .await
        .map_err(|error| text(&error))?;
    match answer.headers().get("grpc-status") {
        None => Ok(answer.into_body()),
        Some(status) => Err(format!("status {}", status.to_str().unwrap())),
    }
}
