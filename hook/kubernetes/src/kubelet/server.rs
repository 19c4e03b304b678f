//! gRPC on a unix socket: connections, and calls by their paths.
//! Touches: the socket.
//! Law: only root can connect. A call that fails ends with a status, never with the process.

use crate::base::log;
use crate::kubelet::authority::Readable;
use gpuslice_host::base::files;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use std::convert::Infallible;
use std::fs::{self, Permissions};
use std::future::Future;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio_stream::Stream;
use tonic::body::Body;
use tonic::server::{Grpc, ServerStreamingService, UnaryService};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

/// The pause after a connection that could not be accepted, such as without a free descriptor.
const PAUSE: Duration = Duration::from_millis(100);

/// The answer to a call, when it is complete.
pub type Answer = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// The services of one socket.
pub trait Services: Send + Sync + 'static {
    /// Answers a call, which its path names.
    fn answer(self: Arc<Self>, request: Request<Incoming>) -> Answer;
}

/// A socket that this process has made.
#[derive(Debug)]
pub struct Made {
    path: PathBuf,
    place: Option<(u64, u64)>,
}

impl Made {
    /// Removes it. The socket of a later driver, which has taken its place, stays.
    pub fn remove(&self) {
        if self.place.is_some() && self.place == place(&self.path) {
            let _ = files::remove(&self.path);
        }
    }
}

/// The device and inode of a file.
fn place(path: &Path) -> Option<(u64, u64)> {
    let facts = fs::symlink_metadata(path).ok()?;
    Some((facts.dev(), facts.ino()))
}

/// Listens on a socket, in the place of one that a process before has left.
///
/// # Errors
/// When the socket cannot be made.
pub fn listen(path: &Path) -> io::Result<(UnixListener, Made)> {
    files::remove(path)?;
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    let made = Made {
        path: path.to_owned(),
        place: place(path),
    };
    Ok((listener, made))
}

/// Serves until the process ends.
pub async fn serve(listener: UnixListener, services: Arc<impl Services>) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                log::line(&format!("cannot accept a connection: {error}"));
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let services = Arc::clone(&services);
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let answer = Arc::clone(&services).answer(request);
                async { Ok::<_, Infallible>(answer.await) }
            });
            let server = http2::Builder::new(TokioExecutor::new());
            let stream = TokioIo::new(Readable::new(stream));
            // A connection that breaks is the kubelet's to open again.
            let _ = server.serve_connection(stream, service).await;
        });
    }
}

/// A call, with the function that answers it: by one message, or by a stream of them.
struct Call<F>(F);

impl<Q, A, F, W> UnaryService<Q> for Call<F>
where
    F: FnMut(Q) -> W,
    W: Future<Output = A> + Send + 'static,
{
    type Response = A;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<A>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<Q>) -> Self::Future {
        let answer = (self.0)(request.into_inner());
        Box::pin(async { Ok(tonic::Response::new(answer.await)) })
    }
}

/// Answers a call with one message.
pub fn unary<Q, A, W>(
    request: Request<Incoming>,
    answer: impl FnMut(Q) -> W + Send + 'static,
) -> Answer
where
    Q: Message + Default + 'static,
    A: Message + Send + 'static,
    W: Future<Output = A> + Send + 'static,
{
    Box::pin(async move {
        let mut grpc = Grpc::new(ProstCodec::<A, Q>::default());
        grpc.unary(Call(answer), request).await
    })
}

impl<Q, A, F, S> ServerStreamingService<Q> for Call<F>
where
    F: FnMut(Q) -> S,
    S: Stream<Item = A> + Send + 'static,
    A: 'static,
{
    type Response = A;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<A, Status>> + Send>>;
    type Future = std::future::Ready<Result<tonic::Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: tonic::Request<Q>) -> Self::Future {
        use tokio_stream::StreamExt;
        let stream: Self::ResponseStream = Box::pin((self.0)(request.into_inner()).map(Ok));
        std::future::ready(Ok(tonic::Response::new(stream)))
    }
}

/// Answers a call with a stream of messages.
pub fn streamed<Q, A, S>(
    request: Request<Incoming>,
    answer: impl FnMut(Q) -> S + Send + 'static,
) -> Answer
where
    Q: Message + Default + 'static,
    A: Message + Send + 'static,
    S: Stream<Item = A> + Send + 'static,
{
    Box::pin(async move {
        let mut grpc = Grpc::new(ProstCodec::<A, Q>::default());
        grpc.server_streaming(Call(answer), request).await
    })
}

/// The answer to a call of an unknown service.
#[must_use]
pub fn unknown() -> Answer {
    let status = Status::new(Code::Unimplemented, "gpuslice-dra has no such service");
    Box::pin(std::future::ready(status.into_http()))
}
