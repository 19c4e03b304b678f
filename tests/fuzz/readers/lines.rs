//! The reader of event files.
//! Touches: its arguments.

use super::read::Source;
use gpuslice_host::events::Event;
use std::path::PathBuf;

/// Reads the events in the lines of a file. The file is that of another user, if one is named.
pub fn events(text: &[u8], owner: Option<&str>) -> Vec<Event> {
    let source = Source {
        folder: PathBuf::new(),
        owner: owner.map(|name| (1, name.to_owned())),
    };
    let lines = source.lines(text).into_iter();
    lines.map(|line| line.event).collect()
}
