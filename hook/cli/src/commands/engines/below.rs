//! Finds the runtime that gpuslice-runtime executes on this host.
//! Touches: the host's policy, the toolkit's file, the folders of runtimes (reads).

use anyhow::bail;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::engine::runtimes;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The name by which Docker's file may call runc.
const SHIM: &str = "io.containerd.runc.v2";

const POLICY: &str = "/etc/gpuslice/config.toml";

/// Returns the runtime that gpuslice-runtime would execute to create a container.
///
/// # Errors
/// When there is no such runtime, or the policy cannot be used.
pub(super) fn of(executable: &str) -> anyhow::Result<PathBuf> {
    let found = runtimes::below(Path::new(executable), &HostPaths::default());
    found.map_err(|failure| anyhow::anyhow!("gpuslice-runtime would start no container: {failure}"))
}

/// Refuses to replace a runtime by gpuslice-runtime if gpuslice-runtime would execute another one.
///
/// # Errors
/// When it would execute another runtime.
pub(super) fn would_run(executable: &str, binary: &str) -> anyhow::Result<()> {
    let found = of(executable)?;
    let wanted = runtimes::first(&[binary.to_owned()]);
    let identity = |path: &Path| {
        fs::metadata(path)
            .map(|facts| (facts.dev(), facts.ino()))
            .ok()
    };
    let is_same = wanted.is_some_and(|wanted| identity(&wanted) == identity(&found));
    if !is_same {
        bail!(
            "containers currently run with {binary}, but gpuslice-runtime would start {}: write runtime = \
             [\"{binary}\"] into {POLICY} first, or leave out --by runtime",
            found.display()
        );
    }
    Ok(())
}

/// Refuses to make gpuslice-runtime the default in place of a runtime that it would not execute, such
/// as one with a virtual machine. runc and crun do the same, so either may take the other's place.
///
/// # Errors
/// When containers would lose that runtime. `program`: its executable, if the engine's file names it.
pub(super) fn may_replace(
    executable: &str,
    name: &str,
    program: Option<&str>,
) -> anyhow::Result<()> {
    let program = program.unwrap_or(name);
    let file = Path::new(program).file_name().and_then(OsStr::to_str);
    let is_usual = |file: &str| {
        runtimes::USUAL.contains(&file) || [runtimes::WRAPPER, SHIM, super::NAME].contains(&file)
    };
    if file.is_some_and(is_usual) || would_run(executable, program).is_ok() {
        return Ok(());
    }
    bail!(
        "the default runtime is {name}, which gpuslice-runtime would not start: leave out \
         --set-as-default, and choose the runtime {} for the containers that need a slice",
        super::NAME
    );
}

/// Refuses to add gpuslice-runtime to a list of runtimes if the host's policy disagrees with the
/// list.
///
/// # Errors
/// When gpuslice-runtime would execute no runtime. When it would execute another runtime than the
/// first one of the list that exists.
pub(super) fn agrees(executable: &str, list: &[String]) -> anyhow::Result<PathBuf> {
    let policy = gpuslice_host::machine::policy::runtimes(&HostPaths::default())?;
    let others: Vec<String> = list
        .iter()
        .filter(|it| *it != executable)
        .cloned()
        .collect();
    let usual = ["runc".to_owned(), "crun".to_owned()];
    chosen(&policy, &others, &usual)
}

/// Returns the runtime that runs containers now, the first of `others` and `usual` that exists, if
/// gpuslice-runtime would start the same one by the policy's list.
fn chosen(policy: &[String], others: &[String], usual: &[String]) -> anyhow::Result<PathBuf> {
    let first = runtimes::first(&[others, usual].concat());
    let quoted: Vec<String> = others.iter().map(|name| format!("{name:?}")).collect();
    let line = format!("runtime = [{}]", quoted.join(", "));
    let Some(first) = first else {
        bail!(
            "gpuslice-runtime finds none of the runtimes {}: write their paths as {line} into {POLICY} first",
            others.join(", ")
        );
    };
    let named = runtimes::first(policy);
    let identity = |path: &Path| {
        fs::metadata(path)
            .map(|facts| (facts.dev(), facts.ino()))
            .ok()
    };
    match named {
        Some(named) if identity(&named) != identity(&first) => bail!(
            "containers currently run with {}, but {POLICY} makes gpuslice-runtime start {}: write {line} into \
             it first",
            first.display(),
            named.display()
        ),
        None if !policy.is_empty() => bail!(
            "gpuslice-runtime finds none of the runtimes {} of {POLICY}: write {line} into it first",
            policy.join(", ")
        ),
        _ => Ok(first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wrapper_starts_the_runtime_that_ran_containers_before_or_is_refused() {
        let list = |names: &[&str]| {
            names
                .iter()
                .map(|&name| name.to_owned())
                .collect::<Vec<_>>()
        };
        let decide = |policy: &[&str], others: &[&str], usual: &[&str]| {
            let chosen = chosen(&list(policy), &list(others), &list(usual));
            chosen.map_err(|error| error.to_string())
        };
        let is = |path: &str| Ok(PathBuf::from(path));
        assert_eq!(decide(&[], &[], &["/bin/true"]), is("/bin/true"));
        assert_eq!(
            decide(&[], &["/bin/false"], &["/bin/true"]),
            is("/bin/false")
        );
        assert_eq!(
            decide(&["/bin/true"], &["/nowhere/x", "/bin/true"], &[]),
            is("/bin/true")
        );
        for (policy, others, said) in [
            (
                &[][..],
                "/nowhere/x",
                "finds none of the runtimes /nowhere/x: write their paths as runtime = [\"/nowhere/x\"]",
            ),
            (
                &["/bin/true"],
                "/bin/false",
                "currently run with /bin/false, but /etc/gpuslice/config.toml makes gpuslice-runtime start \
                 /bin/true: write runtime = [\"/bin/false\"]",
            ),
            (
                &["/nowhere/y"],
                "/bin/false",
                "finds none of the runtimes /nowhere/y of /etc/gpuslice/config.toml: write runtime",
            ),
        ] {
            let error = decide(policy, &[others], &[]).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
