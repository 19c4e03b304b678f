//! Fuzzes the messages that an engine sends to the NRI plugin: frames, calls, pods and containers.
//! A container that is adjusted has the hook afterwards, and no annotation of another system.
//! Touches: its input.
#![no_main]

use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::engine::hook_arguments::is_ours;
use gpuslice_host::machine::policy::Policy;
use gpuslice_readers::base::log;
use gpuslice_readers::nri::adjust::{Adjusting, adjust};
use gpuslice_readers::nri::api::{
    self, Container, CreateRequest, CreateResponse, SynchronizeRequest,
};
use gpuslice_readers::nri::mux;
use gpuslice_readers::nri::plugin::Plugin;
use gpuslice_readers::nri::session::session;
use gpuslice_readers::nri::ttrpc::{self, Message, Request, Response};
use prost::Message as _;
use std::io::{self, Read, Write};
use std::path::Path;

// The first byte of the input says whether the rest is what the engine sends, or one call's
// argument.
libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    log::redirect(|_| {});
    let Some((first, rest)) = input.split_first() else {
        return;
    };
    if *first & 1 == 0 {
        drop(answers(rest));
        return;
    }
    let method =
        ["Configure", "Synchronize", "CreateContainer", "Shutdown"][usize::from(first >> 1 & 3)];
    let call = Request {
        service: api::PLUGIN.to_owned(),
        method: method.to_owned(),
        payload: rest.to_vec(),
    };
    let message = Message {
        stream: 5,
        kind: ttrpc::REQUEST,
        payload: call.encode_to_vec(),
    };
    let mut wire = Vec::new();
    mux::write(&mut wire, mux::PLUGIN, &message.bytes()).expect("a list can be written to");
    let answers = answers(&wire);
    let [answer] = answers.as_slice() else {
        panic!("{method} has {} answers", answers.len())
    };
    assert_eq!(answer.stream, 5);
    let answer = Response::decode(answer.payload.as_slice()).expect("an answer is one");
    match method {
        "CreateContainer" => {
            let request = CreateRequest::decode(rest);
            assert_eq!(request.is_ok(), answer.status.is_none());
            if let Ok(request) = request {
                assert!(CreateResponse::decode(answer.payload.as_slice()).is_ok());
                adjusted(request);
            }
        }
        "Synchronize" => {
            assert_eq!(
                SynchronizeRequest::decode(rest).is_ok(),
                answer.status.is_none()
            );
        }
        _ => {}
    }
});

/// A message of the engine, and the answer of the plugin.
struct Wire<'a> {
    sent: &'a [u8],
    answered: Vec<u8>,
}

impl Read for &mut Wire<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.sent.read(into)
    }
}

impl Write for &mut Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.answered.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The answers of the plugin, in whole messages.
fn answers(sent: &[u8]) -> Vec<Message> {
    let answered = Vec::new();
    let mut wire = Wire { sent, answered };
    // No file can be below this root.
    let paths = HostPaths::below("/dev/null");
    let mut plugin = Plugin::new(paths, "/usr/bin/gpuslice-hook".into());
    let _ = session(&mut wire, &mut plugin, "10", &mut |_| Ok(()));
    let (mut left, mut bytes) = (wire.answered.as_slice(), Vec::new());
    while let Some((connection, part)) = mux::read(&mut left).expect("whole frames") {
        if connection == mux::PLUGIN {
            bytes.extend(part);
        }
    }
    let take = || ttrpc::take(&mut bytes).expect("a message of ours is not too long");
    let messages = std::iter::from_fn(take).collect();
    assert!(bytes.is_empty(), "a part of an answer");
    messages
}

fn adjusted(request: CreateRequest) {
    let policy = Policy::default();
    let host = Adjusting {
        policy: Some(&policy),
        hook: Path::new("/usr/bin/gpuslice-hook"),
    };
    let pod = request.pod.unwrap_or_default();
    let container = request.container.unwrap_or_default();
    let Some(adjustment) = adjust(&pod, &container, &host) else {
        return;
    };
    for (key, value) in &adjustment.annotations {
        assert!(key.starts_with("gpuslice.io/"), "{key} is another system's");
        assert_eq!(pod.annotations.get(key), Some(value));
        assert!(!container.annotations.contains_key(key));
    }
    let mut after: Container = container;
    after.annotations.extend(adjustment.annotations);
    if let Some(hooks) = adjustment.hooks {
        let all = after.hooks.get_or_insert_default();
        all.create_runtime.extend(hooks.create_runtime);
        all.poststop.extend(hooks.poststop);
    }
    let hooks = after
        .hooks
        .as_ref()
        .expect("an adjusted container has hooks");
    let mut starts = hooks.create_runtime.iter().chain(&hooks.prestart);
    assert!(starts.any(|hook| is_ours(Path::new(&hook.path), &hook.args)));
    assert!(
        adjust(&pod, &after, &host).is_none(),
        "a second adjustment changes more"
    );
}
