//! Fuzzes the HTTP requests that gpusliced reads. A request is decided by its head, whatever
//! follows it.
//! Touches: its input.
#![no_main]

use gpuslice_readers::commands::daemon::requests::{Request, request};

libfuzzer_sys::fuzz_target!(|input: &[u8]| match request(input) {
    Request::Partial => assert!(input.len() < 8 << 10, "a request without an end"),
    Request::Whole(path) => {
        assert!(
            !path.contains(['?', '#'])
                && !path.contains(|letter: char| letter.is_ascii_whitespace())
        );
        let more = [input, b"more"].concat();
        assert_eq!(request(&more), Request::Whole(path));
    }
    Request::Refused(answer) => {
        assert!(answer.starts_with(b"HTTP/1.1 4") && answer.ends_with(b"\r\n\r\n"));
    }
});
