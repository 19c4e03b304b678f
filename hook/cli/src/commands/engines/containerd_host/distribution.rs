//! Distributions of Kubernetes that ship their own containerd.
//! Touches: the folders of their configuration (reads).
//! Law: their templates are not edited, because a template is not TOML.

use super::{CONFIG, NAME, change};
use anyhow::bail;
use std::fs;
use std::path::{Path, PathBuf};

/// A distribution that makes the configuration of its own containerd from a template.
#[derive(Clone, Copy, Debug)]
pub(super) struct Distribution<'a> {
    pub(super) name: &'a str,
    /// The folder of the configuration and of its templates.
    pub(super) folder: &'a str,
    /// The file that containerd reads. The distribution makes it at each start.
    pub(super) made: &'a str,
    /// The template of containerd's format 2, and that of later formats.
    pub(super) templates: [&'a str; 2],
    /// The first line of a template that an administrator makes. MicroK8s ships its template.
    pub(super) first_line: &'a str,
    /// The command that makes it start its containerd again.
    pub(super) restart: &'a str,
}

/// With containerd 2.0 or later, k3s and RKE2 use config-v3.toml.tmpl if it exists, otherwise
/// config.toml.tmpl.
const K3S: Distribution<'_> = Distribution {
    name: "k3s",
    folder: "/var/lib/rancher/k3s/agent/etc/containerd",
    made: "config.toml",
    templates: ["config.toml.tmpl", "config-v3.toml.tmpl"],
    first_line: "{{ template \"base\" . }}",
    restart: "systemctl restart k3s (on an agent: k3s-agent)",
};

/// The distributions that are known.
pub(super) const ALL: [Distribution<'_>; 3] = [
    K3S,
    Distribution {
        name: "RKE2",
        folder: "/var/lib/rancher/rke2/agent/etc/containerd",
        restart: "systemctl restart rke2-server (on an agent: rke2-agent)",
        ..K3S
    },
    Distribution {
        name: "MicroK8s",
        folder: "/var/snap/microk8s/current/args",
        made: "containerd.toml",
        templates: ["containerd-template.toml"; 2],
        first_line: "",
        restart: "snap restart microk8s",
    },
];

/// Refuses to create a file that no program would read.
///
/// # Errors
/// When a distribution's own containerd is installed on this host.
pub(super) fn refuse_where_another_is_read(
    distributions: &[Distribution<'_>],
) -> anyhow::Result<()> {
    let is_there = |it: &&Distribution<'_>| Path::new(it.folder).is_dir();
    match distributions.iter().find(is_there) {
        None => Ok(()),
        Some(it) => bail!(
            "{} has a containerd of its own, which does not read {CONFIG}: name that containerd's file by \
             --config {}/{}",
            it.name,
            it.folder,
            it.made
        ),
    }
}

/// Returns what keeps a change in force if a distribution makes this file, whose format has this
/// version.
pub(super) fn next(
    distributions: &[Distribution<'_>],
    path: &Path,
    version: i64,
    is_removal: bool,
) -> Option<String> {
    let it = of(distributions, path)?;
    let [old, new] = it.templates;
    let template = Path::new(it.folder).join(if version > 2 { new } else { old });
    let shown = template.display();
    let name = it.name;
    let text = fs::read_to_string(&template).ok();
    let names_ours = text.as_deref().is_some_and(|text| text.contains(NAME));
    let lines = match (is_removal, text.is_some()) {
        (true, _) if !names_ours => return Some(format!("run {}", it.restart)),
        (true, _) => format!("remove the lines of handler {NAME} from {shown}"),
        (false, true) => format!("copy the lines of handler {NAME} into {shown}"),
        (false, false) => format!(
            "make {shown} with the line {} and the lines of handler {NAME}",
            it.first_line
        ),
    };
    Some(format!(
        "{lines}, because {name} overwrites {} at each start; then run {}",
        path.display(),
        it.restart
    ))
}

/// Returns the templates of this file that name a base specification.
///
/// # Errors
/// When a template exists and cannot be read: it may name the base specification.
pub(super) fn templates_naming(
    distributions: &[Distribution<'_>],
    path: &Path,
    spec: &Path,
) -> anyhow::Result<Vec<PathBuf>> {
    let Some(it) = of(distributions, path) else {
        return Ok(Vec::new());
    };
    let mut names = it.templates.to_vec();
    names.dedup();
    let mut found = Vec::new();
    for template in names.iter().map(|name| Path::new(it.folder).join(name)) {
        let text = change::read(&template)?.unwrap_or_default();
        if spec.to_str().is_some_and(|spec| text.contains(spec)) {
            found.push(template);
        }
    }
    Ok(found)
}

/// The distribution that makes this file.
fn of<'a>(distributions: &[Distribution<'a>], path: &Path) -> Option<Distribution<'a>> {
    let mut all = distributions.iter().copied();
    all.find(|it| path == Path::new(it.folder).join(it.made))
}
