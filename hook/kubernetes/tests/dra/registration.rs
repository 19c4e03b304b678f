//! The registration, as the kubelet's own client asks for it.

use crate::driver::Node;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The first bytes of the kubelet's registration client, recorded with Kubernetes 1.36.2. Its
/// `:authority` is `%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fgpuslice.io-reg.sock`.
const RECORDED: &str = include_str!("registration.hex");

fn recorded() -> Vec<u8> {
    let digits = RECORDED.trim().as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// The frames of the first stream, by type and payload.
fn frames(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut frames = Vec::new();
    while let Some((header, rest)) = bytes.split_at_checked(9) {
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        let Some((payload, rest)) = rest.split_at_checked(length) else {
            break;
        };
        if header[5..9] == [0, 0, 0, 1] {
            frames.push((header[3], payload.to_vec()));
        }
        bytes = rest;
    }
    frames
}

#[test]
fn the_kubelets_client_is_told_the_driver_and_its_socket() {
    let mut node = Node::new();
    node.start();
    let kubelet = node.kubelet();
    kubelet.register();
    let mut socket = UnixStream::connect(node.path("registry/gpuslice.io-reg.sock")).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    socket.write_all(&recorded()).unwrap();
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    let all = loop {
        let count = socket.read(&mut part).unwrap();
        bytes.extend(&part[..count]);
        let all = frames(&bytes);
        // HEADERS, DATA and HEADERS; or RST_STREAM.
        if count == 0 || all.len() == 3 || all.iter().any(|(kind, _)| *kind == 3) {
            break all;
        }
    };
    let kinds: Vec<u8> = all.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [1, 0, 1]);
    let info = String::from_utf8_lossy(&all[1].1).into_owned();
    let endpoint = node.path("plugins/gpuslice.io/dra.sock");
    for part in ["DRAPlugin", "gpuslice.io", endpoint.to_str().unwrap()] {
        assert!(info.contains(part), "{info}");
    }
}
