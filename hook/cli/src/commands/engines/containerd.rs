//! Edits containerd's config.toml: a runtime handler for Kubernetes' RuntimeClass.
//! Touches: its arguments.

use super::toml_file::{self, find, list, parse, put, table};
use anyhow::{Context, bail};
use gpuslice_host::engine::hook_entry::{self as hooks, Ours};
use gpuslice_host::engine::{json_edit, runtimes};
use gpuslice_host::machine::dialects::Dialects;
use std::ffi::OsStr;
use std::path::Path;
use toml_edit::{DocumentMut, Item, Table, TableLike, value};

/// Selects how containers get the hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By<'a> {
    /// Through the handler's base specification, at this path.
    BaseSpec(&'a str),
    /// Through this runtime, which changes the specification of each container.
    Runtime(&'a str),
}

/// The annotations that the handler must pass on. Without them, the annotations of a pod do not
/// reach its containers.
const ANNOTATIONS: [&str; 1] = ["gpuslice.io/*"];

/// The keys of the lists of annotations: of pods, and of their containers.
pub(super) const KEYS: [&str; 2] = ["pod_annotations", "container_annotations"];

/// Returns the CRI plugin's name, which two versions of the format have changed.
fn plugin(document: &DocumentMut) -> anyhow::Result<&'static str> {
    let version = match document.get("version") {
        None if document.is_empty() => Some(NEWEST_FOR_ALL),
        None => Some(1),
        Some(version) => version.as_integer(),
    };
    match version {
        Some(1) => Ok("cri"),
        Some(2) => Ok("io.containerd.grpc.v1.cri"),
        Some(3 | 4) => Ok("io.containerd.cri.v1.runtime"),
        _ => bail!("it has a version that gpuslice does not know (1 to 4 are known)"),
    }
}

/// Returns the version of the format of a file that containerd reads.
pub(super) fn version(text: &str) -> i64 {
    let document = parse(Some(text)).ok();
    let version = document.and_then(|it| it.get("version").and_then(Item::as_integer));
    version.unwrap_or(1)
}

/// Returns the tables of handlers of a document, for any version of containerd's format.
fn handlers(document: &DocumentMut) -> Option<(&dyn TableLike, &Item)> {
    let plugins = document.get("plugins")?;
    let names = [
        "io.containerd.cri.v1.runtime",
        "io.containerd.grpc.v1.cri",
        "cri",
    ];
    // containerd ignores a table that has the plugin's name in another version.
    let names = plugin(document).into_iter().chain(names);
    names.into_iter().find_map(|name| {
        let containerd = plugins.get(name)?.get("containerd")?;
        Some((containerd.get("runtimes")?.as_table_like()?, containerd))
    })
}

/// The relevant facts about a runtime handler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Handler {
    /// Its name.
    pub(super) name: String,
    /// The runtime that it executes; None for runc.
    pub(super) binary: Option<String>,
    /// Its base specification.
    pub(super) spec: Option<String>,
    /// The annotations that it passes on: those of a pod, and those of a container.
    annotations: [Vec<String>; 2],
}

impl Handler {
    /// Checks whether NVIDIA's wrapper provides the GPU.
    pub(super) fn is_nvidia(&self) -> bool {
        let binary = self.binary.as_deref().map(Path::new);
        let name = binary.and_then(Path::file_name).unwrap_or_default();
        name.to_string_lossy()
            .starts_with("nvidia-container-runtime")
    }

    /// Returns the annotations that slices need and that it does not pass on.
    pub(super) fn lacks(&self, dialects: Dialects) -> Vec<&'static str> {
        let passes = |pattern: &&str| {
            let mut lists = self.annotations.iter();
            lists.all(|list| list.iter().any(|own| covers(own, pattern)))
        };
        let needed = needed(dialects).into_iter();
        needed.filter(|pattern| !passes(pattern)).collect()
    }
}

/// Returns the annotations that a handler must pass on: gpuslice's own, and those of other systems that
/// the policy names.
pub(super) fn needed(dialects: Dialects) -> Vec<&'static str> {
    [ANNOTATIONS.as_slice(), &dialects.annotations()].concat()
}

/// Checks whether each annotation of a pattern is one of another. As in containerd, `*` ends at a slash.
fn covers(own: &str, pattern: &str) -> bool {
    let start = own.strip_suffix('*');
    let rest = start.and_then(|start| pattern.strip_prefix(start));
    own == pattern || rest.is_some_and(|rest| !rest.contains('/'))
}

/// Returns the handlers in a document.
pub(super) fn handlers_of(document: &DocumentMut) -> Vec<Handler> {
    let Some((runtimes, _)) = handlers(document) else {
        return Vec::new();
    };
    let handler = |(name, item): (&str, &Item)| {
        let text = |item: Option<&Item>| {
            let text = item.and_then(Item::as_str).filter(|text| !text.is_empty());
            text.map(str::to_owned)
        };
        let passed = |key: &str| item.get(key).and_then(toml_file::strings);
        Handler {
            name: name.to_owned(),
            binary: text(item.get("options").and_then(|it| it.get("BinaryName"))),
            spec: text(item.get(BASE_SPEC)),
            annotations: KEYS.map(|key| passed(key).unwrap_or_default()),
        }
    };
    runtimes.iter().map(handler).collect()
}

/// Returns the handler of pods that do not name a handler.
pub(super) fn default_of(document: &DocumentMut) -> Option<String> {
    let (_, containerd) = handlers(document)?;
    containerd.get(DEFAULT)?.as_str().map(str::to_owned)
}

/// Checks whether a document has a table of the CRI plugin. containerd 1.x lets the table of an
/// imported file replace the whole table of the other files.
pub(super) fn has_cri(document: &DocumentMut) -> bool {
    let plugins = document.get("plugins");
    [
        "io.containerd.cri.v1.runtime",
        "io.containerd.grpc.v1.cri",
        "cri",
    ]
    .iter()
    .any(|name| plugins.is_some_and(|plugins| plugins.get(name).is_some()))
}

/// Checks whether CDI devices are enabled in containerd's effective configuration. Version 3 and
/// later always enable them; in earlier versions, `enable_cdi` decides.
pub(super) fn knows_cdi(dump: &DocumentMut) -> bool {
    let version = dump.get("version").and_then(Item::as_integer);
    let cri = dump.get("plugins").and_then(|plugins| {
        let names = ["io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri"];
        names.iter().find_map(|name| plugins.get(name))
    });
    let enabled = cri.and_then(|cri| cri.get("enable_cdi")?.as_bool());
    enabled.unwrap_or_else(|| version.is_some_and(|version| version >= 3))
}

/// Checks whether a file has gpuslice's handler.
pub(super) fn has(text: &str) -> bool {
    let document = parse(Some(text));
    document.is_ok_and(|document| {
        handlers_of(&document)
            .iter()
            .any(|it| it.name == super::NAME)
    })
}

/// The newest format version that both containerd 1.x and 2.x read.
const NEWEST_FOR_ALL: i64 = 2;

const RUNC: &str = "runc";
const DEFAULT: &str = "default_runtime_name";
const BASE_SPEC: &str = "base_runtime_spec";

/// Returns the base specification that the default handler's containers use, if they use one.
/// gpuslice's base specification is made from it.
pub(super) fn base_spec(text: Option<&str>) -> anyhow::Result<Option<String>> {
    let document = parse(text)?;
    let model = model(&document, plugin(&document)?);
    let spec = model.and_then(|model| model.get(BASE_SPEC)?.as_str().map(str::to_owned));
    Ok(spec.filter(|spec| !spec.is_empty()))
}

/// Adds the hooks to a base specification.
pub(super) fn with_hooks(spec: &str, hook: &str) -> anyhow::Result<String> {
    let ours = Ours {
        path: hook,
        options: &[],
        bundle: None,
        is_again: false,
    };
    let mut text = hooks::add(spec, &ours)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// Removes the resource limits from containerd's own base specification, as its CRI does. `ctr oci
/// spec` sets a hard limit of 1024 open files, which no container could raise.
pub(super) fn without_rlimits(spec: &str) -> anyhow::Result<String> {
    let root = json_edit::root(spec)?;
    match json_edit::member(spec, &root, "process")? {
        Some(process) => Ok(json_edit::remove(spec, &process.value, "rlimits")?),
        None => Ok(spec.to_owned()),
    }
}

/// Returns the runtime that the default handler executes; None for runc, and for gpuslice-runtime, which
/// an earlier `runtime configure` has chosen. gpuslice's handler is made from the default handler.
pub(super) fn binary(text: Option<&str>) -> anyhow::Result<Option<String>> {
    let document = parse(text)?;
    let model = model(&document, plugin(&document)?);
    let binary = model.and_then(|model| model.get("options")?.get("BinaryName")?.as_str());
    let is_own = |it: &str| Path::new(it).file_name() == Some(OsStr::new(runtimes::WRAPPER));
    let other = binary.filter(|it| !it.is_empty() && !is_own(it));
    Ok(other.map(str::to_owned))
}

/// Returns the file's text with gpuslice's handler, which passes on the annotations of gpuslice and
/// of these dialects.
pub(super) fn add(
    text: Option<&str>,
    by: By<'_>,
    default: bool,
    dialects: Dialects,
) -> anyhow::Result<String> {
    let mut document = parse(text)?;
    let plugin = plugin(&document)?;
    if document.is_empty() {
        document.insert("version", value(NEWEST_FOR_ALL));
    }
    let mut handler = model(&document, plugin).map_or_else(Table::new, copy);
    // An existing handler of gpuslice's is removed first, because the handler that it was made from
    // may have changed.
    remove_from(&mut document, plugin)?;
    if !handler.contains_key("runtime_type") {
        handler.insert("runtime_type", value("io.containerd.runc.v2"));
    }
    let ours = needed(dialects);
    for key in KEYS {
        let there = handler.get(key).and_then(toml_file::strings);
        let there = there.unwrap_or_default();
        let others = there.iter().map(String::as_str);
        let others = others.filter(|it| !ours.contains(it));
        handler.insert(key, list(others.chain(ours.iter().copied())));
    }
    match by {
        By::BaseSpec(file) => {
            handler.insert(BASE_SPEC, value(file));
        }
        By::Runtime(runtime) => {
            let kind = handler.get("runtime_type").and_then(Item::as_str);
            if let Some(other) = kind.filter(|kind| !kind.starts_with("io.containerd.runc.")) {
                bail!(
                    "its default runtime is {other}, which runs no gpuslice-runtime: leave out --by runtime"
                );
            }
            let options = handler
                .entry("options")
                .or_insert_with(|| Item::Table(Table::new()));
            let options = options.as_table_like_mut();
            let options = options.context("the options of its default runtime are not a table")?;
            options.insert("BinaryName", value(runtime));
        }
    }
    let containerd = ["plugins", plugin, "containerd"];
    let runtimes = [&containerd[..], &["runtimes"]].concat();
    let runtimes = table(&mut document, &runtimes)?;
    let alone = runtimes.is_empty();
    runtimes.insert(super::NAME, Item::Table(handler));
    if alone {
        runtimes.insert(RUNC, Item::Table(usual()));
    }
    if default {
        let containerd = table(&mut document, &containerd)?;
        put(containerd, DEFAULT, value(super::NAME));
    }
    Ok(toml_file::text(&document, text))
}

/// Returns containerd's own table of runtimes. A table of runtimes in a file replaces this table.
/// The CRI does not start if the default runtime is missing from the table in force, and Debian's
/// file does not name it.
fn usual() -> Table {
    let mut usual = Table::new();
    usual.insert("runtime_type", value("io.containerd.runc.v2"));
    usual.decor_mut().set_prefix(USUAL);
    usual
}

/// The comment that marks a table added by gpuslice, so that `--remove` finds it.
const USUAL: &str = "\n# As without this table (gpuslice).\n";

/// Returns the file's text without gpuslice's handler.
pub(super) fn remove(text: &str) -> anyhow::Result<String> {
    let mut document = parse(Some(text))?;
    let plugin = plugin(&document)?;
    remove_from(&mut document, plugin)?;
    let containerd = ["plugins", plugin, "containerd"];
    if find(&document, &[&containerd[..], &[DEFAULT]].concat()).and_then(Item::as_str)
        == Some(super::NAME)
    {
        table(&mut document, &containerd)?.remove(DEFAULT);
        toml_file::drop_empty_header(&mut document, &containerd);
    }
    Ok(toml_file::text(&document, Some(text)))
}

fn remove_from(document: &mut DocumentMut, plugin: &str) -> anyhow::Result<()> {
    let path = ["plugins", plugin, "containerd", "runtimes"];
    if find(document, &[&path[..], &[super::NAME]].concat()).is_some() {
        table(document, &path)?.remove(super::NAME);
    }
    let runc = find(document, &[&path[..], &[RUNC]].concat()).and_then(Item::as_table);
    let prefix = runc.and_then(|runc| runc.decor().prefix()?.as_str());
    if prefix == Some(USUAL) {
        table(document, &path)?.remove(RUNC);
    }
    Ok(())
}

/// Returns the table of the default handler. gpuslice's handler is made from it, because settings
/// such as the cgroup driver must hold there too. If gpuslice's handler is the default already, it
/// has these settings itself.
fn model<'a>(document: &'a DocumentMut, plugin: &str) -> Option<&'a dyn TableLike> {
    let containerd = find(document, &["plugins", plugin, "containerd"])?;
    let default = containerd.get(DEFAULT).and_then(Item::as_str);
    let default = default.unwrap_or(RUNC);
    containerd.get("runtimes")?.get(default)?.as_table_like()
}

/// Copies a table's entries without their comments.
fn copy(of: &dyn TableLike) -> Table {
    let mut copied = Table::new();
    for (key, item) in of.iter() {
        let item = match item {
            Item::Value(value) => {
                let mut value = value.clone();
                value.decor_mut().clear();
                Item::Value(value)
            }
            Item::Table(table) => Item::Table(copy(table)),
            other => other.clone(),
        };
        copied.insert(key, item);
    }
    copied
}

#[cfg(test)]
#[path = "containerd_tests.rs"]
mod tests;
