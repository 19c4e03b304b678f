//! Whose a slice is: a process by its number and the moment at which it started, which together
//! never come again.
//! Touches: /proc, which must be the host's.

use crate::read;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Its number, in the host's pid namespace.
    pub pid: i32,
    /// When it started, in ticks since boot.
    pub starttime: u64,
}

/// What the kernel says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// `R`, `S`, `Z`, ...
    pub state: u8,
    /// Its parent.
    pub parent: i32,
    /// When it started.
    pub starttime: u64,
}

/// Reads `/proc/PID/stat`.
#[must_use]
pub fn parse(stat: &[u8]) -> Option<Facts> {
    // The name may have spaces and parentheses in it; no field after it has.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end..)?.get(2..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().take(20).collect();
    Some(Facts {
        state: *fields.first()?.as_bytes().first()?,
        parent: fields.get(1)?.parse().ok()?,
        starttime: fields.get(19)?.parse().ok()?,
    })
}

fn facts(pid: i32) -> io::Result<Facts> {
    let text = read::file(&PathBuf::from(format!("/proc/{pid}/stat")), 4096)?;
    parse(&text).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

impl Owner {
    /// A process that lives.
    ///
    /// # Errors
    /// When there is none.
    pub fn of(pid: i32) -> io::Result<Owner> {
        let starttime = facts(pid)?.starttime;
        Ok(Owner { pid, starttime })
    }

    /// The parent of this process, by the host's numbers: in the container's pid namespace
    /// `getppid` would give another.
    ///
    /// # Errors
    /// When /proc is not the host's.
    pub fn parent() -> io::Result<Owner> {
        let text = read::file(&PathBuf::from("/proc/self/stat"), 4096)?;
        let facts = parse(&text).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        Owner::of(facts.parent)
    }

    /// Whether it still lives. What is a zombie holds nothing any more.
    #[must_use]
    pub fn lives(&self) -> bool {
        let same = |facts: Facts| facts.starttime == self.starttime;
        let gone = |state: u8| state == b'Z' || state == b'X';
        facts(self.pid).is_ok_and(|facts| same(facts) && !gone(facts.state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_cannot_forge_the_fields_after_it() {
        let stat = b"17 (a) R 1 2) S 5 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0\n";
        let facts = parse(stat).unwrap();
        assert_eq!(
            facts,
            Facts {
                state: b'S',
                parent: 5,
                starttime: 4711
            }
        );
        assert_eq!(parse(b"17 (a"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn a_number_that_came_again_is_somebody_else() {
        let own = Owner::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(own.lives());
        let earlier = Owner {
            starttime: own.starttime - 1,
            ..own
        };
        assert!(!earlier.lives());
        assert!(Owner::of(i32::MAX).is_err());
    }

    #[test]
    fn a_process_that_has_ended_holds_nothing_even_before_it_is_waited_for() {
        let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let owner = Owner::of(pid).unwrap();
        let ended = || facts(pid).is_ok_and(|facts| facts.state == b'Z');
        while !ended() {
            std::thread::yield_now();
        }
        assert!(!owner.lives());
        child.wait().unwrap();
        assert!(!owner.lives());
    }
}
