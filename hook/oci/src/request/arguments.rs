//! The hook's own arguments, which are the operator's.
//! Touches: its arguments.

use crate::base::crash_points::{CRASH_POINTS, CrashPoints};
use crate::request::hook_slices::{self, HookSlice};
use gpuslice_host::base::paths::HostPaths;
use std::ffi::OsString;
use std::path::PathBuf;

/// The text of `--help`.
pub const HELP: &str = "\
gpuslice-hook [OPTIONS] createRuntime|prestart|createContainer|poststart|poststop

An OCI hook: gives a container its slice of GPU memory. Reads the container's state on standard
input, as runtimes write it, and the size from annotations (gpuslice.io/memory: 8GiB).

  --memory SIZE   the slice (for CDI devices); an annotation with another size is refused
  --memory UUID=SIZE  the slice of one GPU; may be given for several GPUs
  --slice NAME    one slice for all containers with this name (for claims of Kubernetes)
  --claim NAMESPACE/NAME  the slice's ResourceClaim; the slice counts against the claim's namespace
  --total, --present-as, --headroom, --page-cache, --fence VALUE  as the annotations of these names
  --bundle DIR    the container's bundle, where the state names another (crun before 1.27)
  --dry-run       print what would be done, and do nothing
  --root DIR      DIR/run/gpuslice, DIR/etc/gpuslice and so on, for tests
  --die-at STEP   kill the hook at this step, for tests (--steps lists them)
  --version       print the version
";

/// The parsed command line.
#[derive(Clone, Debug, Default)]
pub struct Arguments {
    /// The paths on the host.
    pub paths: HostPaths,
    /// The slice, where the operator gives one.
    pub slice: HookSlice,
    /// The bundle, where the operator gives one.
    pub bundle: Option<PathBuf>,
    /// Only print the plan.
    pub dry_run: bool,
    /// The steps at which tests kill the hook.
    pub crash_points: CrashPoints,
    /// The runtime's operation.
    pub verb: String,
}

/// The action that a command line requests.
#[derive(Clone, Debug)]
pub enum Invocation {
    /// Run a stage.
    Stage(Box<Arguments>),
    /// Print a text.
    Print(String),
}

/// Parses a command line, given without the program's name.
///
/// # Errors
/// A message about the argument that is wrong.
pub fn parse(given: impl IntoIterator<Item = OsString>) -> Result<Invocation, String> {
    let mut arguments = Arguments::default();
    let mut given = given.into_iter();
    while let Some(argument) = given.next() {
        let text = argument.to_string_lossy().into_owned();
        let mut value = |name: &str| given.next().ok_or_else(|| format!("{name} needs a value"));
        match text.as_str() {
            "--root" => arguments.paths = HostPaths::below(PathBuf::from(value("--root")?)),
            word if let Some(option) = hook_slices::option(word) => {
                let value = value(word)?.to_string_lossy().into_owned();
                let set = arguments.slice.set(option, &value);
                set.map_err(|fault| fault.to_string())?;
            }
            "--bundle" => {
                let bundle = PathBuf::from(value("--bundle")?);
                if !bundle.is_absolute() {
                    return Err(format!(
                        "--bundle {}: not an absolute path",
                        bundle.display()
                    ));
                }
                arguments.bundle = Some(bundle);
            }
            "--dry-run" => arguments.dry_run = true,
            "--die-at" => {
                let name = value("--die-at")?.to_string_lossy().into_owned();
                let crash_point = CrashPoints::die_at(&name);
                arguments.crash_points =
                    crash_point.ok_or_else(|| format!("unknown step {name} (see --steps)"))?;
            }
            "--steps" => return Ok(Invocation::Print(format!("{}\n", CRASH_POINTS.join("\n")))),
            "--help" => return Ok(Invocation::Print(HELP.to_owned())),
            "--version" => {
                let version = env!("CARGO_PKG_VERSION");
                return Ok(Invocation::Print(format!("gpuslice-hook {version}\n")));
            }
            option if option.starts_with('-') => {
                return Err(format!("unknown option {option} (see --help)"));
            }
            _ if !arguments.verb.is_empty() => {
                return Err(format!(
                    "unexpected argument {text:?} (a stage is given already)"
                ));
            }
            _ => arguments.verb = text,
        }
    }
    if arguments.verb.is_empty() {
        return Err("no stage is given (--help lists them)".to_owned());
    }
    let slice = std::mem::take(&mut arguments.slice).check();
    arguments.slice = slice.map_err(|fault| fault.to_string())?;
    Ok(Invocation::Stage(Box::new(arguments)))
}
