//! Reads the facts about a process in /proc/PID/status.
//! Touches: /proc.

use super::read::each_line;
use std::ops::ControlFlow;

/// The facts about a process in /proc/PID/status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Its name. The kernel cuts it after 15 bytes, even inside a character.
    pub(super) name: String,
    /// The process id in the process's innermost pid namespace.
    pub(super) own_number: Option<u32>,
    /// Its parent.
    pub(super) parent: u32,
    /// Its effective user.
    pub(in crate::commands::status) user: u32,
}

impl Facts {
    /// Reads the facts; None if the process has ended.
    pub(super) fn of(pid: u32) -> Option<Facts> {
        Facts::in_lines(|take| each_line(&format!("/proc/{pid}/status"), take))
    }

    /// Takes the facts from lines, as far as they are needed.
    pub(super) fn in_lines(
        lines: impl FnOnce(&mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> Option<()>,
    ) -> Option<Facts> {
        let (mut name, mut own_number, mut parent, mut user) = (None, None, None, None);
        lines(&mut |line| {
            if let Some(escaped) = line.strip_prefix(b"Name:\t") {
                name = Some(unescaped(escaped));
            } else if let Some(ids) = line.strip_prefix(b"PPid:") {
                parent = numbers(ids).next();
            } else if let Some(ids) = line.strip_prefix(b"Uid:") {
                user = numbers(ids).nth(1);
            } else if let Some(ids) = line.strip_prefix(b"NSpid:") {
                own_number = numbers(ids).last();
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Some(Facts {
            name: name?,
            own_number,
            parent: parent?,
            user: user?,
        })
    }
}

fn numbers(ids: &[u8]) -> impl Iterator<Item = u32> {
    let ids = str::from_utf8(ids).unwrap_or_default();
    ids.split_ascii_whitespace().map_while(|id| id.parse().ok())
}

/// Returns a name in which the kernel has escaped newlines and backslashes.
fn unescaped(escaped: &[u8]) -> String {
    let mut name = Vec::with_capacity(escaped.len());
    let mut bytes = escaped.iter();
    while let Some(byte) = bytes.next() {
        name.push(match byte {
            b'\\' => match bytes.next() {
                Some(b'n') => b'\n',
                Some(other) => *other,
                None => b'\\',
            },
            other => *other,
        });
    }
    let name = String::from_utf8_lossy(&name);
    name.trim_end_matches('\n').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::status::process::name;
    use std::fs;

    #[test]
    fn a_process_cannot_write_a_line_by_its_name() {
        let text = b"Name:\ta\\nUid:\\\\n\nPPid:\t7\nUid:\t1\t2\t3\t4\nNSpid:\t9\t1\nUid:\t5\t5";
        let facts = Facts {
            name: "a\nUid:\\n".to_owned(),
            own_number: Some(1),
            parent: 7,
            user: 2,
        };
        let found = Facts::in_lines(|take| {
            let mut lines = text.split(|byte| *byte == b'\n');
            lines.any(|line| take(line).is_break()).then_some(())
        });
        assert_eq!(found, Some(facts));
    }

    #[test]
    fn any_name_of_a_thread_is_the_one_of_its_comm_file() {
        let own = fs::read_to_string("/proc/thread-self/comm").unwrap();
        let id: u32 = nix::unistd::gettid().as_raw().try_into().unwrap();
        for bytes in [
            &b"a\nPPid:\t1"[..],
            b"\\n\\\\",
            b"\xff\xe6\x97 \t\r\x07",
            b"end\n",
            b" ",
        ] {
            fs::write("/proc/thread-self/comm", bytes).unwrap();
            let facts = Facts::of(id).unwrap();
            assert_eq!(Some(facts.name), name(id), "{bytes:?}");
            assert_eq!(facts.own_number, Some(id));
        }
        fs::write("/proc/thread-self/comm", own.trim_end()).unwrap();
    }
}
