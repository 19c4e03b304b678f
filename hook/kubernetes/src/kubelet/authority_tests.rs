//! The authority of recorded and of arbitrary requests.

use super::*;
use proptest::prelude::*;

/// The first bytes of the kubelet's registration client, recorded with Kubernetes 1.36.2: preface,
/// settings, and the call GetInfo on `/var/lib/kubelet/plugins_registry/gpuslice.io-reg.sock`.
const RECORDED: &str = include_str!("../../tests/dra/registration.hex");

fn recorded() -> Vec<u8> {
    let digits: Vec<u8> = RECORDED.trim().bytes().collect();
    let pairs = digits.chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    pairs.map(byte).collect()
}

/// Passes bytes on in parts of this size, and returns those that the server reads.
fn passed(bytes: &[u8], size: usize) -> Vec<u8> {
    let mut frames = Frames::new();
    let mut out = Vec::new();
    for part in bytes.chunks(size) {
        frames.add(part);
        out.extend(frames.take(usize::MAX));
    }
    frames.end();
    out.extend(frames.take(usize::MAX));
    out
}

/// Characters with the bits of their Huffman codes, as in RFC 7541: those of the recorded path.
fn decoded(value: &[u8]) -> String {
    let five = "012aceiost";
    let six = " %-./3456789=A_bdfghlmnpru";
    let seven = ":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz";
    let mut text = String::new();
    let mut at = 0;
    while let Some((length, code)) = code(value, at) {
        let (letters, first) = match length {
            5 => (five, 0),
            6 => (six, 0x14),
            _ => (seven, 0x5c),
        };
        text.extend(letters.chars().nth(code.abs_diff(first) as usize));
        at = at.saturating_add(length);
    }
    text
}

#[test]
fn the_kubelets_authority_keeps_its_length_and_has_no_percent_sign() {
    let before = recorded();
    let after = passed(&before, before.len());
    assert_eq!(before.len(), after.len());
    let start = before.windows(2).position(|two| two == [0x41, 0xae]);
    let value = start.unwrap() + 2..start.unwrap() + 2 + 0x2e;
    assert_eq!(
        decoded(&before[value.clone()]),
        "%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fgpuslice.io-reg.sock"
    );
    assert_eq!(
        decoded(&after[value.clone()]),
        "-2Fvar-2Flib-2Fkubelet-2Fplugins_registry-2Fgpuslice.io-reg.sock"
    );
    assert_eq!(before[..value.start], after[..value.start]);
    assert_eq!(before[value.end..], after[value.end..]);
}

#[test]
fn only_the_authority_is_changed() {
    let mut block = b"\x83\x04\x03/%2\x01\x04%2Fa\x40\x02x%\x01%\x41\x01%".to_vec();
    let mut rest = block.as_mut_slice();
    while let Some(next) = field(rest) {
        rest = next;
    }
    assert_eq!(
        block,
        b"\x83\x04\x03/%2\x01\x04-2Fa\x40\x02x%\x01%\x41\x01-"
    );
}

proptest! {
    #[test]
    fn the_parts_in_which_bytes_come_change_nothing(size in 1_usize..300) {
        let bytes = recorded();
        prop_assert_eq!(passed(&bytes, size), passed(&bytes, bytes.len()));
    }

    #[test]
    fn any_bytes_pass_with_their_number(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        size in 1_usize..50,
    ) {
        let mut all = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        for part in bytes.chunks(40) {
            all.extend([0, 0, u8::try_from(part.len()).unwrap(), HEADERS, part[0], 0, 0, 0, 1]);
            all.extend(part);
        }
        prop_assert_eq!(passed(&all, size).len(), all.len());
    }
}
