//! Reads the environment with which a process was started.
//! Touches: /proc.
//!
//! While a process executes a new program, it has no environment for a moment: the kernel has
//! discarded the old one and not yet written the new one. On a busy machine that was seen to take
//! 17 ms. If the reader opened `/proc/PID/environ` before that moment, the file ends early. A reader
//! that trusts an empty or shortened environment overlooks a process of a slice.

use std::io;
use std::time::Duration;

/// How often an environment that is not whole is read again.
const TRIES: u32 = 100;

/// The time between two readings.
const INTERVAL: Duration = Duration::from_millis(10);

/// Returns the environment of a process, as `/proc/PID/environ` has it. Waits up to a second for a
/// process that is executing a program; then returns the last reading, which may be incomplete. A
/// kernel thread and a process that has ended have an empty one.
///
/// # Errors
/// When there is no such process, or when this process may not read it.
pub fn of(pid: i32) -> io::Result<Vec<u8>> {
    let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}"));
    let mut environment = read("environ")?;
    for _ in 0..TRIES {
        match length(&read("stat")?) {
            Length::Bytes(bytes) if bytes != environment.len() => {}
            Length::Bytes(_) | Length::Unknown => return Ok(environment),
            Length::NotYetWritten => std::thread::sleep(INTERVAL),
        }
        environment = read("environ")?;
    }
    Ok(environment)
}

/// The length of a process's environment.
#[derive(Debug, PartialEq, Eq)]
enum Length {
    Bytes(usize),
    /// The process is executing a program.
    NotYetWritten,
    /// The kernel does not report it.
    Unknown,
}

/// Returns the length of the environment by `/proc/PID/stat`: the size of the process's memory, the
/// start of its code, and the start and the end of its environment are the fields 23, 26, 50 and 51
/// of proc_pid_stat(5). The kernel's `load_elf_binary` sets the start of the code after the
/// environment.
fn length(stat: &[u8]) -> Length {
    let fields = || -> Option<[usize; 4]> {
        let name_end = stat.iter().rposition(|byte| *byte == b')')?;
        let after_name = std::str::from_utf8(stat.get(name_end..)?.get(1..)?).ok()?;
        // The first field after the name is the third of all.
        let mut fields = after_name.split_ascii_whitespace();
        let mut next = |skipped| fields.nth(skipped)?.parse::<usize>().ok();
        Some([next(20)?, next(2)?, next(23)?, next(0)?])
    };
    match fields() {
        None => Length::Unknown,
        Some([memory, 0, _, _]) if memory > 0 => Length::NotYetWritten,
        Some([_, _, start, end]) => Length::Bytes(end.saturating_sub(start)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_that_executes_programs_always_has_its_environment() {
        // Each program replaces itself by the next.
        let script = "[ $0 = 0 ] || exec sh -c \"$SCRIPT\" $(($0 - 1))";
        let mut child = Command::new("sh")
            .args(["-c", script, "300"])
            .env("SCRIPT", script)
            .env("MARK", "here")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let mut readings = 0_u32;
        while child.try_wait().unwrap().is_none() {
            // The process may end between the two lines.
            let Ok(environment) = of(pid) else { break };
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            if stat.is_empty() || stat.contains(") Z ") {
                break;
            }
            let variables = environment.split(|byte| *byte == 0);
            assert!(
                variables
                    .into_iter()
                    .any(|variable| variable == b"MARK=here"),
                "reading {readings}: {:?}\n{stat}",
                String::from_utf8_lossy(&environment)
            );
            readings = readings.saturating_add(1);
        }
        child.wait().unwrap();
        assert!(readings > 100, "{readings}");
    }

    #[test]
    fn an_empty_environment_and_a_kernel_thread_are_no_execution() {
        let mut child = Command::new("sleep").arg("60").env_clear().spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let environment = of(pid).unwrap();
        let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(environment.is_empty());
        assert_eq!(length(&stat), Length::Bytes(0));
        let thread =
            b"2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0 184 0 0 0 0 \
            0 0 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0";
        assert_eq!(length(thread), Length::Bytes(0));
    }

    #[test]
    fn memory_without_code_is_an_execution() {
        // Seen with Linux 6.18 while setpriv(1) was being executed.
        let executes =
            b"77 (set) priv) R 1 2 3 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 4096 1 184 0 0 0 \
            0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0";
        assert_eq!(length(executes), Length::NotYetWritten);
    }
}
