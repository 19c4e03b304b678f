//! Configures containerd on this host: its configuration files, their imports, and the
//! configuration in effect.
//! Touches: those files; runs `ctr` and `containerd config dump`.
//! Law: the base specification is never removed while a file names it. containerd would not start
//! without it.

mod distribution;

use super::change::{self, Change, Files};
use super::containerd::{self, By};
use super::imports::{self, Imported};
use super::toml_file::{list, parse, strings};
use super::{Changes, Configure, NAME, Way, below};
use anyhow::{Context, bail};
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::machine::dialects::Dialects;
use gpuslice_host::machine::policy;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use toml_edit::DocumentMut;

/// containerd's own configuration file.
pub(super) const CONFIG: &str = "/etc/containerd/config.toml";

/// The command that copies the handler `runc` into NVIDIA's own file.
pub(super) const NVIDIA_CTK: &str = "nvidia-ctk runtime configure --runtime containerd";

/// Plans the changes.
pub(super) fn plan(wanted: &Configure, way: Way) -> anyhow::Result<Changes> {
    let path = wanted.config(CONFIG)?;
    if wanted.config.is_none() && !wanted.remove && !path.exists() {
        distribution::refuse_where_another_is_read(&distribution::ALL)?;
    }
    let spec = path.with_file_name("gpuslice-base-spec.json");
    let old = change::read(&path)?;
    let wrong = || format!("cannot change {}", path.display());
    let mut notes = Vec::new();
    let wrapper;
    let mut origin = None;
    let (edit, base) = if wanted.remove {
        let new = old.as_deref().map(containerd::remove).transpose();
        let new = new.with_context(wrong)?.unwrap_or_default();
        let again = |text: Option<&str>| {
            if text.is_some_and(containerd::has) {
                return None;
            }
            let start = text.map(str::to_owned).or_else(|| importing(&path));
            let added = containerd::add(
                start.as_deref(),
                By::BaseSpec("x"),
                false,
                Dialects::default(),
            )
            .ok()?;
            containerd::remove(&added).ok()
        };
        (Change::back(&path, old, new, again), None)
    } else {
        let (by, base) = match way {
            Way::Hooks => {
                let file = spec.to_str().with_context(wrong)?;
                let base = containerd::base_spec(old.as_deref()).with_context(wrong)?;
                let base = base.filter(|base| Path::new(base) != spec);
                let (name, text) = base_spec(base)?;
                let base = containerd::with_hooks(&text, &wanted.hook()?)
                    .context("cannot put hooks into containerd's base specification")?;
                origin = Some((name, text));
                (By::BaseSpec(file), Some(base))
            }
            Way::Runtime => {
                wrapper = wanted.wrapper()?;
                if let Some(model) = containerd::binary(old.as_deref()).with_context(wrong)? {
                    below::would_run(&wrapper, &model)?;
                }
                (By::Runtime(&wrapper), None)
            }
        };
        let start = old.clone().or_else(|| importing(&path));
        let dialects = policy::read(&HostPaths::default())?.dialects;
        let new = containerd::add(start.as_deref(), by, wanted.set_as_default, dialects);
        (Change::edit(&path, old, new.with_context(wrong)?), base)
    };
    let mut whole = Change {
        origin,
        ..Change::whole(&spec, base)?
    };
    if whole.new.is_none() && whole.old.is_some() {
        let users = users(&path, edit.new.as_deref(), &spec);
        if !users.is_empty() {
            whole.new.clone_from(&whole.old);
            notes.push(format!(
                "kept {}: containerd does not start without it while {} names it; run {NVIDIA_CTK}, then \
                 this again",
                spec.display(),
                users.join(", "),
            ));
        }
        for template in distribution::templates_naming(&distribution::ALL, &path, &spec)? {
            whole.new.clone_from(&whole.old);
            notes.push(format!(
                "kept {}: containerd does not start without it while {} names it; remove the lines of \
                 handler {NAME} there, then run this again",
                spec.display(),
                template.display(),
            ));
        }
    }
    let next = distribution::next(
        &distribution::ALL,
        &path,
        edit.new.as_deref().map_or(1, containerd::version),
        wanted.remove,
    );
    // The base specification is written before the file that names it, because containerd does not
    // start if a named file does not exist. On removal, the order is reversed.
    let mut changes = vec![whole, edit];
    if wanted.remove {
        changes.reverse();
    }
    Ok(Changes {
        changes,
        notes,
        next: next.unwrap_or_else(|| "systemctl restart containerd".to_owned()),
    })
}

/// Returns the first lines of a new file, or None if it needs none. Without a file, containerd 2
/// reads the folder beside it. A new file must therefore import that folder.
fn importing(main: &Path) -> Option<String> {
    let all = main.with_file_name("conf.d").join("*.toml");
    let text = format!("version = 2\nimports = [{:?}]\n", all.to_str()?);
    (!imports::of(main, Some(&text)).is_empty()).then_some(text)
}

/// Returns the files that name a base specification.
fn users(main: &Path, text: Option<&str>, spec: &Path) -> Vec<String> {
    let names = |document: &DocumentMut| {
        let all = containerd::handlers_of(document);
        all.iter()
            .any(|handler| handler.spec.as_deref().map(Path::new) == Some(spec))
    };
    let own = parse(text).is_ok_and(|document| names(&document));
    let own = own.then(|| main.display().to_string());
    let imported = imports::of(main, text).into_iter();
    let imported = imported.filter(|file| names(&file.document));
    own.into_iter()
        .chain(imported.map(|file| file.path.display().to_string()))
        .collect()
}

/// Returns the specification that gpuslice's is made from, and its name: the configured one, or
/// containerd's own.
fn base_spec(configured: Option<String>) -> anyhow::Result<(String, String)> {
    if let Some(file) = configured {
        let text = change::read(Path::new(&file))?;
        let text = text.with_context(|| {
            format!("containerd's configuration names {file}, which does not exist")
        })?;
        return Ok((file, text));
    }
    let asked = Command::new("ctr").args(["oci", "spec"]).output();
    let asked = asked.context(
        "cannot run ctr, which knows containerd's own base specification (or use --by runtime)",
    )?;
    if !asked.status.success() {
        let said = String::from_utf8_lossy(&asked.stderr);
        bail!("ctr oci spec failed ({}): {}", asked.status, said.trim());
    }
    let text = containerd::without_rlimits(&String::from_utf8(asked.stdout)?)?;
    Ok(("`ctr oci spec`, without its rlimits".to_owned(), text))
}

/// The configuration that containerd reports for all of its files; `None` if it cannot be queried.
pub(super) fn dump(main: &Path) -> Option<DocumentMut> {
    let asked = Command::new("containerd")
        .arg("--config")
        .arg(main)
        .args(["config", "dump"])
        .stdin(Stdio::null())
        .output();
    let asked = asked.ok().filter(|asked| asked.status.success())?;
    parse(Some(&String::from_utf8(asked.stdout).ok()?)).ok()
}

/// Reports whether annotated pods will get slices after containerd has read its files again, and
/// the settings that are missing.
pub(super) fn result(wanted: &Configure, files: Files<'_>) -> anyhow::Result<Vec<String>> {
    let path = wanted.config(CONFIG)?;
    let text = files.read(&path)?;
    let imported = imports::of(&path, text.as_deref());
    if wanted.remove {
        return Ok(left(&path, text.as_deref(), &imported));
    }
    let dump = match files.change_of(&path).and(text.as_deref()) {
        Some(text) => dump_of(&path, text),
        None => dump(&path),
    };
    Ok(gained(
        wanted,
        &path,
        text.as_deref(),
        &imported,
        dump.as_ref(),
    ))
}

/// The configuration that containerd would report if its file had this text; `None` if it cannot be
/// queried.
fn dump_of(main: &Path, text: &str) -> Option<DocumentMut> {
    let folder = tempfile::tempdir().ok()?;
    let copy = folder.path().join("config.toml");
    let mut document = parse(Some(text)).ok()?;
    // containerd looks up relative imports in the file's folder.
    if let Some(all) = document.get("imports").and_then(strings) {
        let beside = main.parent().unwrap_or(Path::new("/"));
        let absolute: Vec<String> = all
            .iter()
            .map(|pattern| beside.join(pattern).to_string_lossy().into_owned())
            .collect();
        document.insert("imports", list(absolute.iter().map(String::as_str)));
    }
    fs::write(&copy, document.to_string()).ok()?;
    dump(&copy)
}

/// Returns the handlers that still give slices after `--remove`.
fn left(path: &Path, text: Option<&str>, imported: &[Imported]) -> Vec<String> {
    let main = parse(text).ok().map(|document| (path.to_owned(), document));
    let others = imported
        .iter()
        .map(|file| (file.path.clone(), file.document.clone()));
    let goes_on = |document: &DocumentMut| {
        let handlers = containerd::handlers_of(document);
        let spec = |handler: &containerd::Handler| {
            let spec = handler.spec.as_deref().unwrap_or_default();
            handler.name == NAME || spec.ends_with("/gpuslice-base-spec.json")
        };
        let names = handlers
            .iter()
            .filter(|it| spec(it))
            .map(|it| it.name.clone());
        names.collect::<Vec<String>>()
    };
    let files = main.into_iter().chain(others);
    let left = files.map(|(path, document)| (path, goes_on(&document)));
    left.filter(|(_, handlers)| !handlers.is_empty())
        .map(|(path, handlers)| {
            format!(
                "pods of handler {} still get slices: {} has it; run {NVIDIA_CTK}, then this again",
                handlers.join(", "),
                path.display()
            )
        })
        .collect()
}

fn gained(
    wanted: &Configure,
    path: &Path,
    text: Option<&str>,
    imported: &[Imported],
    dump: Option<&DocumentMut>,
) -> Vec<String> {
    let replacing: Vec<&Imported> = imported
        .iter()
        .filter(|file| containerd::has_cri(&file.document))
        .collect();
    let files = replacing.iter().map(|file| file.path.display().to_string());
    let files = files.collect::<Vec<String>>().join(", ");
    let is_nvidias = replacing.iter().any(|file| {
        let handlers = containerd::handlers_of(&file.document);
        handlers.iter().any(containerd::Handler::is_nvidia)
    });
    let remedy = match is_nvidias {
        true => format!("run {NVIDIA_CTK}, which copies the handler there"),
        false => "name that file by --config".to_owned(),
    };
    let of = |document: &DocumentMut| {
        let handlers = containerd::handlers_of(document);
        handlers.into_iter().find(|handler| handler.name == NAME)
    };
    let main = parse(text).ok();
    let ours = match dump {
        Some(dump) => of(dump),
        None => main.as_ref().and_then(of),
    };
    let Some(ours) = ours else {
        let why = match files.is_empty() {
            true => format!(
                "containerd config dump does not show it ({})",
                path.display()
            ),
            false => format!("{files} replaces the CRI plugin's whole table; {remedy}"),
        };
        return vec![format!(
            "no pod gets a slice yet: handler {NAME} has no effect, because {why}"
        )];
    };
    if !ours.lacks(Dialects::default()).is_empty() {
        return vec![format!(
            "no pod gets a slice yet: handler {NAME} passes no annotations on; {remedy}"
        )];
    }
    let mut lines = Vec::new();
    let default = dump.and_then(containerd::default_of);
    let is_default = wanted.set_as_default && default.as_ref().is_none_or(|name| name == NAME);
    lines.push(match is_default {
        true => "every pod with annotation gpuslice.io/memory gets a slice".to_owned(),
        false => format!(
            "a pod with runtimeClassName of handler {NAME} and annotation gpuslice.io/memory gets a slice; \
             a pod without the class does not"
        ),
    });
    if let (true, false, Some(name)) = (wanted.set_as_default, is_default, default) {
        lines.push(format!(
            "the default handler is still {name}, by {files}; {remedy}"
        ));
    }
    if dump.is_none() && !replacing.is_empty() {
        lines.push(format!(
            "containerd could not be asked: before 2.0 {files} replaces the CRI plugin's whole table; there \
             {remedy}"
        ));
    }
    let all = dump
        .or(main.as_ref())
        .map(containerd::handlers_of)
        .unwrap_or_default();
    let others = imported
        .iter()
        .flat_map(|file| containerd::handlers_of(&file.document));
    let nvidia = all
        .into_iter()
        .chain(others)
        .find(containerd::Handler::is_nvidia);
    if let Some(nvidia) = nvidia.filter(|_| !ours.is_nvidia()) {
        lines.push(format!(
            "handler {NAME} does not run NVIDIA's runtime: the GPU comes by CDI devices, not by \
             NVIDIA_VISIBLE_DEVICES; for pods of handler {} use gpuslice runtime configure --runtime nvidia",
            nvidia.name
        ));
    }
    lines
}

/// Returns the reason why containerd would ignore CDI devices, if containerd can be queried.
pub(crate) fn without_cdi() -> Option<String> {
    let dump = Path::new(CONFIG)
        .exists()
        .then(|| dump(Path::new(CONFIG)))??;
    (!containerd::knows_cdi(&dump)).then(|| {
        "containerd ignores CDI devices: set enable_cdi = true in its CRI plugin (1.7), or use an annotation"
            .to_owned()
    })
}

#[cfg(test)]
#[path = "containerd_host_tests.rs"]
mod tests;
