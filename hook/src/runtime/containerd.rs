//! containerd's config.toml: a runtime handler for Kubernetes' RuntimeClass.
//! Touches: its arguments.

use super::toml_file::{self, find, list, parse, put, table};
use anyhow::{Context, bail};
use gpuslice_oci::json_text;
use gpuslice_oci::wrapper::hooks::{self, Ours};
use std::path::Path;
use toml_edit::{DocumentMut, Item, Table, TableLike, value};

/// How containers come by the hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By<'a> {
    /// By the handler's base specification, in this file.
    BaseSpec(&'a str),
    /// By this runtime, which changes each container's own.
    Runtime(&'a str),
}

/// Annotations of a pod reach its containers only where the handler lets them.
pub(super) const ANNOTATIONS: [&str; 1] = ["gpuslice.io/*"];

/// The lists of them: of pods, and of their containers.
pub(super) const KEYS: [&str; 2] = ["pod_annotations", "container_annotations"];

/// The CRI plugin's name, which changed twice.
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

/// The tables of handlers of a document, whichever version of containerd has written it.
fn handlers(document: &DocumentMut) -> Option<(&dyn TableLike, &Item)> {
    let plugins = document.get("plugins")?;
    let names = [
        "io.containerd.cri.v1.runtime",
        "io.containerd.grpc.v1.cri",
        "cri",
    ];
    names.iter().find_map(|name| {
        let containerd = plugins.get(name)?.get("containerd")?;
        Some((containerd.get("runtimes")?.as_table_like()?, containerd))
    })
}

/// A runtime handler, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Handler {
    /// Its name.
    pub(super) name: String,
    /// The runtime that it executes; None for runc.
    pub(super) binary: Option<String>,
    /// Its base specification.
    pub(super) spec: Option<String>,
    /// Whether it passes our annotations on: a pod's, and a container's own.
    pub(super) annotations: [bool; 2],
}

impl Handler {
    /// Whether NVIDIA's wrapper brings the GPU.
    pub(super) fn is_nvidia(&self) -> bool {
        let binary = self.binary.as_deref().map(Path::new);
        let name = binary.and_then(Path::file_name).unwrap_or_default();
        name.to_string_lossy()
            .starts_with("nvidia-container-runtime")
    }
}

/// The handlers that a document names.
pub(super) fn handlers_of(document: &DocumentMut) -> Vec<Handler> {
    let Some((runtimes, _)) = handlers(document) else {
        return Vec::new();
    };
    let handler = |(name, item): (&str, &Item)| {
        let text = |item: Option<&Item>| {
            let text = item.and_then(Item::as_str).filter(|text| !text.is_empty());
            text.map(str::to_owned)
        };
        let passes = |key: &str| {
            let all = item.get(key).and_then(toml_file::strings);
            all.is_some_and(|all| all.iter().any(|one| ANNOTATIONS.contains(&one.as_str())))
        };
        Handler {
            name: name.to_owned(),
            binary: text(item.get("options").and_then(|it| it.get("BinaryName"))),
            spec: text(item.get(BASE_SPEC)),
            annotations: KEYS.map(passes),
        }
    };
    runtimes.iter().map(handler).collect()
}

/// The handler of pods that name none.
pub(super) fn default_of(document: &DocumentMut) -> Option<String> {
    let (_, containerd) = handlers(document)?;
    containerd.get(DEFAULT)?.as_str().map(str::to_owned)
}

/// Whether a document has a table of the CRI plugin: containerd 1.x takes that of an imported file in
/// place of the whole table of the others.
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

/// Whether CDI devices are in use, by what containerd says of its whole configuration: always from
/// version 3 on, and before by `enable_cdi`.
pub(super) fn knows_cdi(dump: &DocumentMut) -> bool {
    let version = dump.get("version").and_then(Item::as_integer);
    let cri = dump.get("plugins").and_then(|plugins| {
        let names = ["io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri"];
        names.iter().find_map(|name| plugins.get(name))
    });
    let enabled = cri.and_then(|cri| cri.get("enable_cdi")?.as_bool());
    enabled.unwrap_or_else(|| version.is_some_and(|version| version >= 3))
}

/// Whether a file has the handler.
pub(super) fn has(text: &str) -> bool {
    let document = parse(Some(text));
    document.is_ok_and(|document| {
        handlers_of(&document)
            .iter()
            .any(|it| it.name == super::NAME)
    })
}

/// What containerd 1.x and 2.x both read.
const NEWEST_FOR_ALL: i64 = 2;

const RUNC: &str = "runc";
const DEFAULT: &str = "default_runtime_name";
const BASE_SPEC: &str = "base_runtime_spec";

/// The file of the base specification that the handler's containers have so far, where they have
/// one of their own: ours is made from it.
pub(super) fn base_spec(text: Option<&str>) -> anyhow::Result<Option<String>> {
    let document = parse(text)?;
    let model = model(&document, plugin(&document)?);
    let spec = model.and_then(|model| model.get(BASE_SPEC)?.as_str().map(str::to_owned));
    Ok(spec.filter(|spec| !spec.is_empty()))
}

/// A base specification with our hooks.
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

/// containerd's own base specification as its CRI takes it. `ctr oci spec` has a hard limit of 1024
/// open files in it, which the CRI leaves out, and which no container could raise.
pub(super) fn without_rlimits(spec: &str) -> anyhow::Result<String> {
    let root = json_text::root(spec)?;
    match json_text::member(spec, &root, "process")? {
        Some(process) => Ok(json_text::remove(spec, &process.value, "rlimits")?),
        None => Ok(spec.to_owned()),
    }
}

/// The runtime that the handler is made from executes; None for runc.
pub(super) fn binary(text: Option<&str>) -> anyhow::Result<Option<String>> {
    let document = parse(text)?;
    let model = model(&document, plugin(&document)?);
    let binary = model.and_then(|model| model.get("options")?.get("BinaryName")?.as_str());
    Ok(binary.filter(|it| !it.is_empty()).map(str::to_owned))
}

/// The file with the handler in it.
pub(super) fn add(text: Option<&str>, by: By<'_>, default: bool) -> anyhow::Result<String> {
    let mut document = parse(text)?;
    let plugin = plugin(&document)?;
    if document.is_empty() {
        document.insert("version", value(NEWEST_FOR_ALL));
    }
    let mut handler = model(&document, plugin).map_or_else(Table::new, copy);
    // What is there of an earlier time goes: the runtime that it was made from may have changed.
    remove_from(&mut document, plugin)?;
    if !handler.contains_key("runtime_type") {
        handler.insert("runtime_type", value("io.containerd.runc.v2"));
    }
    for key in KEYS {
        let there = handler.get(key).and_then(toml_file::strings);
        let there = there.unwrap_or_default();
        let others = there.iter().map(String::as_str);
        let others = others.filter(|it| !ANNOTATIONS.contains(it));
        handler.insert(key, list(others.chain(ANNOTATIONS)));
    }
    match by {
        By::BaseSpec(file) => {
            handler.insert(BASE_SPEC, value(file));
        }
        By::Runtime(runtime) => {
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

/// Where there is a table of runtimes it takes the place of containerd's own. Without the one that
/// is the default there, which Debian's file does not say again, its CRI does not start.
fn usual() -> Table {
    let mut usual = Table::new();
    usual.insert("runtime_type", value("io.containerd.runc.v2"));
    usual.decor_mut().set_prefix(USUAL);
    usual
}

/// By this it is known again, to be taken out.
const USUAL: &str = "\n# As without this table (gpuslice).\n";

/// The file without it.
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

/// The runtime that containers have by default: what it sets, such as the cgroup driver, must
/// hold with us too. Where that is ours already, it has what it was made from.
fn model<'a>(document: &'a DocumentMut, plugin: &str) -> Option<&'a dyn TableLike> {
    let containerd = find(document, &["plugins", plugin, "containerd"])?;
    let default = containerd.get(DEFAULT).and_then(Item::as_str);
    let default = default.unwrap_or(RUNC);
    containerd.get("runtimes")?.get(default)?.as_table_like()
}

/// Its entries, without the comments that were written for it.
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
