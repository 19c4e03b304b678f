//! Names commands that only ask another process, or start programs in another root.
//! Touches: PATH, and links on the way to the command's file.

use crate::launch::program;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

/// Programs whose containers and services another process starts.
const CLIENTS: [&str; 16] = [
    "crictl",
    "ctr",
    "docker",
    "docker-compose",
    "flatpak",
    "incus",
    "kubectl",
    "lxc",
    "machinectl",
    "nerdctl",
    "podman",
    "podman-compose",
    "ramalama",
    "snap",
    "systemctl",
    "systemd-run",
];

/// Programs that leave the work to a server of theirs, which may run already.
const OF_SERVERS: [&str; 5] = ["lms", "ollama", "pm2", "supervisorctl", "tmux"];

/// The subcommands of ollama that are the server.
const OLLAMA_SERVER: [&str; 2] = ["serve", "start"];

/// Programs that start a command in another root, without a daemon.
const SANDBOXES: [&str; 12] = [
    "apptainer",
    "bwrap",
    "ch-run",
    "chroot",
    "distrobox",
    "enroot",
    "proot",
    "schroot",
    "shifter",
    "singularity",
    "systemd-nspawn",
    "toolbox",
];

/// Programs that start a command without the variables of the dynamic loader, whatever their options are.
/// For users other than root they are set-user-ID programs, which do not load the library at all.
const CLEANERS: [&str; 3] = ["doas", "pkexec", "sudo"];

/// The folder of scripts that start flatpak's programs, in /var/lib and in a home.
const FLATPAK: &str = "flatpak/exports/bin";

/// Returns a message if the command starts programs that do not get its environment or its files.
#[must_use]
pub(crate) fn outside(command: &[OsString]) -> Option<String> {
    let (first, arguments) = command.split_first()?;
    let path = program::find(first);
    // The programs in /snap/bin are links to snap.
    let real = path.as_ref().and_then(|path| fs::canonicalize(path).ok());
    let paths = [Some(Path::new(first)), real.as_deref()];
    let mut messages = paths.into_iter().flatten();
    messages
        .find_map(|path| message(path, arguments))
        .or_else(|| {
            let is_flatpak = path.as_ref()?.parent()?.ends_with(FLATPAK);
            is_flatpak.then(|| of_client(&first.to_string_lossy()))
        })
}

fn message(path: &Path, arguments: &[OsString]) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let is_login = || {
        arguments
            .iter()
            .any(|it| it == "-" || it == "-l" || it == "--login")
    };
    if CLEANERS.contains(&name) || (name == "su" && is_login()) {
        return Some(format!(
            "{name} removes LD_PRELOAD, so no program that it starts is in the slice (start gpuslice run by \
             {name}, or use setpriv or runuser)"
        ));
    }
    if SANDBOXES.contains(&name) {
        return Some(format!(
            "{name} itself is in the slice, but no program that it starts in another root is, unless \
             libgpuslice.so and the slice's files are there at the same paths (run gpuslice check there)"
        ));
    }
    if OF_SERVERS.contains(&name) && !is_server(name, arguments) {
        return Some(format!(
            "{name} itself is in the slice, but its server is not, nor what that starts, if the server runs \
             already (start the server in a slice)"
        ));
    }
    CLIENTS.contains(&name).then(|| of_client(name))
}

fn of_client(name: &str) -> String {
    format!(
        "{name} itself is in the slice, but no container or service that it starts (for a container: \
         annotation gpuslice.io/memory)"
    )
}

fn is_server(name: &str, arguments: &[OsString]) -> bool {
    let mut words = arguments.iter().filter_map(|word| word.to_str());
    let first = words.find(|word| !word.starts_with('-'));
    name == "ollama" && first.is_some_and(|word| OLLAMA_SERVER.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn said(words: &[&str]) -> Option<String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        outside(&words)
    }

    #[test]
    fn a_client_is_named_whose_server_does_the_work() {
        for words in [
            &["ollama", "run", "llama3"][..],
            &["ollama", "run", "model", "start"],
            &["/nowhere/ollama"],
            &["tmux", "new", "-d", "vllm serve"],
            &["supervisorctl", "start", "vllm"],
        ] {
            let said = said(words).unwrap();
            assert!(said.contains("its server is not"), "{said}");
        }
        for words in [&["systemctl", "start", "vllm"][..], &["docker", "run", "x"]] {
            let said = said(words).unwrap();
            assert!(said.contains("no container or service"), "{said}");
        }
        for words in [
            &["/nowhere/ollama", "serve"][..],
            &["python3", "ollama"],
            &["sh"],
            &[],
        ] {
            assert_eq!(said(words), None, "{words:?}");
        }
    }

    #[test]
    fn programs_of_snap_and_flatpak_are_known_by_their_files() {
        let place = tempfile::tempdir().unwrap();
        let program = |path: &str| {
            let path = place.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "#!/bin/sh\n").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let link = place.path().join("blender");
        symlink(program("usr/bin/snap"), &link).unwrap();
        let exported = program("flatpak/exports/bin/org.blender.Blender");
        for path in [&link, &exported] {
            let said = said(&[path.to_str().unwrap()]).unwrap();
            assert!(said.contains("no container or service"), "{said}");
        }
        assert_eq!(said(&[program("bin/blender").to_str().unwrap()]), None);
    }
}
