//! The command line of `gpuslice-node`.
//! Touches: its arguments.

use std::ffi::OsString;
use std::path::PathBuf;

/// The text of `--help`.
const HELP: &str = "\
gpuslice-node install FOLDER [--settings DIR]
gpuslice-node on-host [--stay] PROGRAM [ARGUMENT...]
gpuslice-node uninstall FOLDER [--check]
gpuslice-node stay

Installs gpuslice on a node of a Kubernetes cluster, from a pod.

install     copies gpuslice, gpuslice-hook and libgpuslice.so from the image to FOLDER, and
            config.toml and gpusliced.toml from DIR to FOLDER/etc/gpuslice
on-host     becomes PROGRAM in the mount namespace of the node (the pod needs hostPID);
            with --stay, waits until PROGRAM has succeeded, and stays without rights
uninstall   waits until no slice of a container is running and no engine's configuration names FOLDER,
            removes FOLDER from the node, and stays; with --check, exits with 0 if FOLDER is removed
stay        does nothing, for a pod that only installs
";

/// A parsed command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Copy the files of the image.
    Install {
        /// The folder of the node.
        folder: PathBuf,
        /// The folder with the settings.
        settings: Option<PathBuf>,
    },
    /// Start a program of the node.
    OnHost {
        /// Its path on the node.
        program: PathBuf,
        /// Its arguments.
        arguments: Vec<OsString>,
        /// Stay once it has succeeded.
        stays: bool,
    },
    /// Remove the folder of the node.
    Uninstall(PathBuf),
    /// Report whether the folder is removed.
    IsRemoved(PathBuf),
    /// Do nothing, for ever.
    Stay,
    /// Print a text.
    Print(String),
}

/// Returns the argument as an absolute path.
fn path(argument: Option<OsString>, name: &str) -> Result<PathBuf, String> {
    let path = argument.map(PathBuf::from);
    let path = path.ok_or_else(|| format!("{name} is missing (see --help)"))?;
    match path.is_absolute() && path.parent().is_some() {
        true => Ok(path),
        false => Err(format!("{}: not an absolute path", path.display())),
    }
}

/// Returns the folder of the node. It is removed as a whole, so it must be gpuslice's alone.
fn folder(argument: Option<OsString>) -> Result<PathBuf, String> {
    let folder = path(argument, "FOLDER")?;
    match folder.ends_with("gpuslice") {
        true => Ok(folder),
        false => Err(format!(
            "{}: the folder must be called gpuslice, because uninstall removes it",
            folder.display()
        )),
    }
}

/// Parses a command line, given without the program's name.
///
/// # Errors
/// A message about the argument that is wrong.
pub(crate) fn parse(given: impl IntoIterator<Item = OsString>) -> Result<Command, String> {
    let mut given = given.into_iter();
    let verb = given.next().unwrap_or_default();
    let command = match verb.to_string_lossy().as_ref() {
        "install" => {
            let folder = folder(given.next())?;
            let settings = match given.next() {
                None => None,
                Some(option) if option == "--settings" => Some(path(given.next(), "DIR")?),
                Some(other) => return Err(unexpected(&other)),
            };
            Command::Install { folder, settings }
        }
        "on-host" => {
            let first = given.next();
            let stays = first.as_ref().is_some_and(|word| word == "--stay");
            Command::OnHost {
                program: path(if stays { given.next() } else { first }, "PROGRAM")?,
                arguments: given.by_ref().collect(),
                stays,
            }
        }
        "uninstall" => {
            let folder = folder(given.next())?;
            match given.next() {
                None => Command::Uninstall(folder),
                Some(option) if option == "--check" => Command::IsRemoved(folder),
                Some(other) => return Err(unexpected(&other)),
            }
        }
        "stay" => Command::Stay,
        "--help" => Command::Print(HELP.to_owned()),
        "--version" => Command::Print(format!("gpuslice-node {}\n", env!("CARGO_PKG_VERSION"))),
        "" => return Err("no command is given (--help lists them)".to_owned()),
        _ => return Err(unexpected(&verb)),
    };
    match given.next() {
        None => Ok(command),
        Some(other) => Err(unexpected(&other)),
    }
}

fn unexpected(argument: &OsString) -> String {
    format!("unexpected argument {argument:?} (see --help)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn parsed(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn a_wrong_command_line_is_an_error_that_names_the_argument() {
        for (line, fault) in [
            ("", "no command is given (--help lists them)"),
            ("remove", "unexpected argument \"remove\" (see --help)"),
            ("install", "FOLDER is missing (see --help)"),
            ("install opt", "opt: not an absolute path"),
            ("uninstall /", "/: not an absolute path"),
            ("on-host --stay", "PROGRAM is missing (see --help)"),
            (
                "install /opt/gpuslice --settings",
                "DIR is missing (see --help)",
            ),
            (
                "install /opt/gpuslice /etc",
                "unexpected argument \"/etc\" (see --help)",
            ),
            (
                "uninstall /opt/gpuslice --check x",
                "unexpected argument \"x\" (see --help)",
            ),
        ] {
            assert_eq!(parsed(line), Err(fault.to_owned()), "{line}");
        }
    }

    /// The commands of a manifest, each with its arguments. The chart writes each list on one line.
    fn commands(manifest: &Path) -> Vec<Vec<String>> {
        let text = std::fs::read_to_string(manifest).unwrap();
        let lists = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("command: "));
        lists
            .map(|list| serde_json::from_str(list).unwrap())
            .collect()
    }

    #[test]
    fn the_chart_starts_it_with_arguments_that_it_knows() {
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let manifest = top.join("packaging/kustomize/gpuslice/daemonset.yaml");
        let mut verbs = Vec::new();
        for command in commands(&manifest) {
            let [program, arguments @ ..] = command.as_slice() else {
                panic!("a container without a command");
            };
            if program == "/usr/bin/gpuslice-node" {
                parse(arguments.iter().map(OsString::from)).unwrap();
                verbs.push(arguments.first().cloned().unwrap());
            }
        }
        assert_eq!(verbs, ["install", "on-host", "on-host"]);
    }
}
