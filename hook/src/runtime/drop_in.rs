//! CRI-O and podman read folders of configuration, in which a file of ours stands by itself.
//! Touches: their files (reads).

use super::change;
use super::toml_file::{find, list, parse, strings, table};
use crate::hook_entry::HOOK;
use anyhow::{Context, bail};
use std::fs;
use std::path::{Path, PathBuf};
use toml_edit::{DocumentMut, Item, value};

/// Where an engine's configuration is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Engine {
    /// Its name, as `--runtime` takes it.
    pub(super) name: &'static str,
    /// The file that is ours.
    pub(super) own: &'static str,
    /// The files that are read before the folders, the last word being the last one's.
    files: &'static [&'static str],
    /// The folder whose files come then, in the order of their names.
    folder: &'static str,
    /// The table that says where hooks are.
    hooks: &'static [&'static str],
    /// Where they are when nothing is said.
    usual: &'static [&'static str],
    /// The table of runtimes.
    runtimes: &'static [&'static str],
    /// The key, beside the hooks', of the default one.
    default: &'static str,
}

/// CRI-O.
pub(super) const CRIO: Engine = Engine {
    name: "crio",
    own: "/etc/crio/crio.conf.d/99-gpuslice.conf",
    files: &["crio.conf"],
    folder: "crio.conf.d",
    hooks: &["crio", "runtime"],
    usual: &["/usr/share/containers/oci/hooks.d"],
    runtimes: &["crio", "runtime", "runtimes"],
    default: "default_runtime",
};

/// podman.
pub(super) const PODMAN: Engine = Engine {
    name: "podman",
    own: "/etc/containers/containers.conf.d/99-gpuslice.conf",
    files: &["containers.conf"],
    folder: "containers.conf.d",
    hooks: &["engine"],
    // Its manual names /etc/containers/oci/hooks.d, too; podman 4.3 does not read it unless told.
    usual: &["/usr/share/containers/oci/hooks.d"],
    runtimes: &["engine", "runtimes"],
    default: "runtime",
};

/// What is wanted of it.
#[derive(Clone, Debug)]
pub(super) struct Wanted<'a> {
    /// The folder that hooks are to be read from too.
    pub(super) hooks: Option<&'a str>,
    /// The wrapper that is to be a runtime.
    pub(super) runtime: Option<&'a str>,
    /// Whether containers that ask for no runtime get it.
    pub(super) default: bool,
}

const HOOKS: &str = "hooks_dir";

const HEADER: &str =
    "# Made by gpuslice runtime configure, which writes it anew and takes it away with --remove.\n";

impl Engine {
    /// What the file at `own` is to say; None when nothing needs to be said.
    pub(super) fn file(&self, own: &Path, wanted: &Wanted<'_>) -> anyhow::Result<Option<String>> {
        let mut document = DocumentMut::new();
        if let Some(hooks) = wanted.hooks {
            let read = self.hooks_read(own)?;
            if !read.iter().any(|folder| folder == hooks) {
                // One list takes another's place, so all of it is said again.
                let folders = read.iter().map(String::as_str).chain([hooks]);
                table(&mut document, self.hooks)?.insert(HOOKS, list(folders));
            }
        }
        if let Some(runtime) = wanted.runtime {
            let path = [self.runtimes, &[super::NAME]].concat();
            if self.default == CRIO.default {
                let handler = table(&mut document, &path)?;
                handler.insert("runtime_path", value(runtime));
                handler.insert("runtime_type", value("oci"));
            } else {
                table(&mut document, self.runtimes)?.insert(super::NAME, list([runtime]));
            }
        }
        if wanted.default {
            if let Some(theirs) = self.nvidias_default(own)? {
                bail!(
                    "the default runtime is {theirs}: with {name} in its place, containers that have \
                     NVIDIA_VISIBLE_DEVICES would have no driver; use gpuslice runtime configure --runtime \
                     nvidia, which puts gpuslice below it",
                    name = super::NAME
                );
            }
            table(&mut document, self.hooks)?.insert(self.default, value(super::NAME));
        }
        Ok((!document.is_empty()).then(|| format!("{HEADER}{document}")))
    }

    /// Why the hook's files in a folder must stay though another engine is done with them; None
    /// when they may go.
    pub(super) fn needs(&self, own: &Path, folder: &str) -> Option<String> {
        let out = format!(
            "gpuslice runtime configure --runtime {} --remove",
            self.name
        );
        let names =
            |said: Option<Vec<String>>| said.unwrap_or_default().iter().any(|it| it == folder);
        // What cannot be read may name it.
        if !self.said_in(own).is_ok_and(|said| !names(said)) {
            return Some(format!(
                "{} reads them by {} ({out})",
                self.name,
                own.display()
            ));
        }
        // Where files of others name the folder there was no need for one of ours, so nobody knows.
        // A hook too many does nothing; without it containers have no limit. CRI-O is not asked
        // this: one of the two calls must take them away.
        let spared = self.hooks_read(own).is_ok_and(|read| !names(Some(read)));
        let unknown = self.default == PODMAN.default && !spared;
        unknown.then(|| {
            let name = self.name;
            format!("{name} reads this folder too and may need these files ({out} removes them)")
        })
    }

    /// The files of our hook that the engine reads without the file at `own`: a package's, or a
    /// person's.
    pub(super) fn hooks_left(&self, own: &Path) -> anyhow::Result<Vec<String>> {
        let mut left = Vec::new();
        for folder in self.hooks_read(own)? {
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            for entry in entries {
                let text = fs::read_to_string(entry.path()).unwrap_or_default();
                let is_one = entry.path().extension().is_some_and(|it| it == "json");
                if is_one && text.contains(HOOK) {
                    left.push(entry.path().display().to_string());
                }
            }
        }
        left.sort();
        Ok(left)
    }

    /// The name of the default runtime in the other files where it is NVIDIA's.
    fn nvidias_default(&self, own: &Path) -> anyhow::Result<Option<String>> {
        let path = [self.hooks, &[self.default]].concat();
        let mut said = None;
        for file in self.others(own)? {
            let text = change::read(&file)?;
            let document = parse(text.as_deref());
            let document = document.with_context(|| format!("cannot read {}", file.display()))?;
            let name = find(&document, &path).and_then(Item::as_str);
            said = name.map(str::to_owned).or(said);
        }
        Ok(said.filter(|name| name.contains("nvidia")))
    }

    /// The folders that hooks are read from without the file at `own`.
    fn hooks_read(&self, own: &Path) -> anyhow::Result<Vec<String>> {
        let mut said: Vec<String> = self.usual.iter().map(|&folder| folder.to_owned()).collect();
        for file in self.others(own)? {
            if let Some(list) = self.said_in(&file)? {
                said = list;
            }
        }
        Ok(said)
    }

    /// The folders that one file says hooks are read from.
    fn said_in(&self, file: &Path) -> anyhow::Result<Option<Vec<String>>> {
        let text = change::read(file)?;
        let document = parse(text.as_deref());
        let document = document.with_context(|| format!("cannot read {}", file.display()))?;
        let path = [self.hooks, &[HOOKS]].concat();
        let hooks = find(&document, &path).filter(|item| !item.is_none());
        let wrong = || format!("{HOOKS} in {} is not a list of folders", file.display());
        hooks
            .map(|item: &Item| strings(item).with_context(wrong))
            .transpose()
    }

    /// The other files, in the order in which the engine reads them.
    fn others(&self, own: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let Some(root) = own.parent().and_then(Path::parent) else {
            return Ok(Vec::new());
        };
        let mut files: Vec<PathBuf> = self.files.iter().map(|file| root.join(file)).collect();
        let folder = root.join(self.folder);
        if folder.is_dir() {
            let entries = fs::read_dir(&folder)
                .with_context(|| format!("cannot read {}", folder.display()))?;
            let mut found: Vec<PathBuf> = entries
                .filter_map(|entry| Some(entry.ok()?.path()))
                .filter(|path| path.extension().is_some_and(|it| it == "conf") && path != own)
                .collect();
            found.sort();
            files.extend(found);
        }
        Ok(files)
    }
}

#[cfg(test)]
#[path = "drop_in_tests.rs"]
mod tests;
