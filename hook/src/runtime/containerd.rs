//! containerd's config.toml: a runtime handler for Kubernetes' RuntimeClass.
//! Touches: its arguments.

use super::toml_file::{self, find, list, parse, put, table};
use anyhow::{Context, bail};
use gpuslice_oci::json_text;
use gpuslice_oci::wrapper::hooks::{self, Ours};
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
const ANNOTATIONS: [&str; 1] = ["gpuslice.io/*"];

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
        Some(3) => Ok("io.containerd.cri.v1.runtime"),
        _ => bail!("it has a version that gpuslice does not know (1, 2 and 3 are known)"),
    }
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
    for key in ["pod_annotations", "container_annotations"] {
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
    Ok(document.to_string())
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
    Ok(document.to_string())
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
