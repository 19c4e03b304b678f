//! `gpuslice status` lists the slices of `gpuslice env` that one owner has.

use super::Place;
use crate::support::{eventually, told};
use std::process::{Command, Stdio};

/// The variables of each may be used later, for example those in the kernel.json of a server.
#[test]
fn two_slices_of_one_name_and_owner_are_both_listed() {
    let place = Place::new("rtx3090", "[chat]\nmemory = \"3GiB\"\n");
    let mut owner = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let (pid, file) = (owner.id().to_string(), place.file_option());
    for count in 1..=3 {
        let words = ["env", "chat", "--format=json", "--sim=rtx3090", &file];
        let words = [&words[..], &["--owner", &pid]].concat();
        let (out, err, status) = told(&mut place.gpuslice(&words));
        assert_eq!(status, 0, "{out}{err}");
        let listed: Vec<String> = place.slices().into_iter().map(|(name, _)| name).collect();
        assert_eq!(listed, vec!["chat"; count], "{count}");
    }
    drop(owner.stdin.take());
    owner.wait().unwrap();
    eventually("the slices are removed", || place.is_empty());
}
