//! Drop-in files for CRI-O and podman, which read folders of configuration files.
//! Touches: their files (reads).

use super::toml_file::{find, list, parse, strings, table};
use super::{below, change};
use crate::base::hook_entry::HOOK;
use anyhow::{Context, bail};
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::machine::dialects::Dialects;
use gpuslice_host::machine::policy;
use std::fs;
use std::path::{Path, PathBuf};
use toml_edit::{DocumentMut, Item, value};

/// The places of an engine's configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Engine {
    /// The engine's name, as a value of `--runtime`.
    pub(super) name: &'static str,
    /// The path of gpuslice's drop-in file.
    pub(super) own: &'static str,
    /// The files that the engine reads before the folder; later files take precedence.
    files: &'static [&'static str],
    /// The folder whose files it reads next, in the order of their names.
    folder: &'static str,
    /// The table that names the folders of hooks.
    hooks: &'static [&'static str],
    /// The folders of hooks if the configuration names none.
    usual: &'static [&'static str],
    /// The table of runtimes.
    runtimes: &'static [&'static str],
    /// The key of the default runtime, in the table of the hooks' key.
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
    // podman's manual also names /etc/containers/oci/hooks.d, but podman 4.3 reads it only if
    // configured.
    usual: &["/usr/share/containers/oci/hooks.d"],
    runtimes: &["engine", "runtimes"],
    default: "runtime",
};

/// The configuration to add.
#[derive(Clone, Debug)]
pub(super) struct Wanted<'a> {
    /// An additional folder of hooks.
    pub(super) hooks: Option<&'a str>,
    /// The wrapper, if it is to be a runtime.
    pub(super) runtime: Option<&'a str>,
    /// Whether containers that name no runtime get the wrapper.
    pub(super) default: bool,
}

const HOOKS: &str = "hooks_dir";

const HEADER: &str =
    "# Made by gpuslice runtime configure, which writes it anew and takes it away with --remove.\n";

/// How every version of the header begins.
const MADE: &str = "# Made by gpuslice";

impl Engine {
    /// Refuses a file that gpuslice has not made: it would be replaced, or removed.
    ///
    /// # Errors
    /// When the file is another program's, or cannot be read.
    pub(super) fn refuse_others(&self, own: &Path) -> anyhow::Result<()> {
        match change::read(own)? {
            Some(text) if !text.trim().is_empty() && !text.starts_with(MADE) => bail!(
                "{} was not made by gpuslice, and would be replaced: with {}, --config names gpuslice's own \
                 file in the folder that the engine reads, such as {}",
                own.display(),
                self.name,
                self.own
            ),
            _ => Ok(()),
        }
    }

    /// Returns the text of the file at `own`; None if no file is needed.
    pub(super) fn file(&self, own: &Path, wanted: &Wanted<'_>) -> anyhow::Result<Option<String>> {
        let mut document = DocumentMut::new();
        if let Some(hooks) = wanted.hooks {
            let read = self.hooks_read(own)?;
            if !read.iter().any(|folder| folder == hooks) {
                // A later list replaces an earlier one, so the new list repeats the earlier
                // folders.
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
            let default = self.default_elsewhere(own)?;
            if let Some((theirs, _)) = default.as_ref().filter(|it| it.0.contains("nvidia")) {
                bail!(
                    "the default runtime is {theirs}: with {name} in its place, containers that have \
                     NVIDIA_VISIBLE_DEVICES would have no driver; use gpuslice runtime configure --runtime \
                     nvidia, which puts gpuslice below it",
                    name = super::NAME
                );
            }
            if let (Some((theirs, program)), Some(wrapper)) = (&default, wanted.runtime) {
                below::may_replace(wrapper, theirs, program.as_deref())?;
            }
            table(&mut document, self.hooks)?.insert(self.default, value(super::NAME));
        }
        Ok((!document.is_empty()).then(|| format!("{HEADER}{document}")))
    }

    /// Returns the reason why this engine still needs the hook's files in `folder` although the
    /// other engine was removed. Returns None if the files may be removed.
    pub(super) fn needs(&self, own: &Path, folder: &str) -> Option<String> {
        let out = format!(
            "gpuslice runtime configure --runtime {} --remove",
            self.name
        );
        let names =
            |said: Option<Vec<String>>| said.unwrap_or_default().iter().any(|it| it == folder);
        // A file that cannot be read may name the folder, so it counts as naming it.
        if !self.said_in(own).is_ok_and(|said| !names(said)) {
            return Some(format!(
                "{} reads them by {} ({out})",
                self.name,
                own.display()
            ));
        }
        // If other files name the folder, gpuslice needed no file of its own. It is then unknown
        // whether podman was configured, so the hook's files stay. An unneeded hook does no harm,
        // but without the hook containers have no limit. This rule does not apply to CRI-O, because
        // one of the two calls of `--remove` must remove the files.
        let spared = self.hooks_read(own).is_ok_and(|read| !names(Some(read)));
        let unknown = self.default == PODMAN.default && !spared;
        unknown.then(|| {
            let name = self.name;
            format!("{name} reads this folder too and may need these files ({out} removes them)")
        })
    }

    /// Returns the files of gpuslice's hook that the engine reads without the file at `own`. They
    /// come from a package or a user.
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

    /// Returns the program of gpuslice's runtime in the text of a file.
    pub(super) fn runtime_in(&self, text: &str) -> Option<String> {
        let document = parse(Some(text)).ok()?;
        program_of(find(&document, &[self.runtimes, &[super::NAME]].concat())?)
    }

    /// Returns the name of the default runtime in the other files, and its program if they name it.
    fn default_elsewhere(&self, own: &Path) -> anyhow::Result<Option<(String, Option<String>)>> {
        let path = [self.hooks, &[self.default]].concat();
        let mut said = None;
        let mut documents = Vec::new();
        for file in self.others(own)? {
            let text = change::read(&file)?;
            let document = parse(text.as_deref());
            let document = document.with_context(|| format!("cannot read {}", file.display()))?;
            let name = find(&document, &path).and_then(Item::as_str);
            said = name.map(str::to_owned).or(said);
            documents.push(document);
        }
        let program = |name: &str| {
            let path = [self.runtimes, &[name]].concat();
            let mut documents = documents.iter().rev();
            documents.find_map(|document| program_of(find(document, &path)?))
        };
        Ok(said.map(|name| {
            let program = program(&name);
            (name, program)
        }))
    }

    /// Returns the folders of hooks that the engine reads without the file at `own`.
    pub(super) fn hooks_read(&self, own: &Path) -> anyhow::Result<Vec<String>> {
        let mut said: Vec<String> = self.usual.iter().map(|&folder| folder.to_owned()).collect();
        for file in self.others(own)? {
            if let Some(list) = self.said_in(&file)? {
                said = list;
            }
        }
        Ok(said)
    }

    /// Returns the file that is read after the one at `own` and whose list of folders lacks `folder`.
    /// The last list replaces the earlier ones.
    pub(super) fn replaced_by(&self, own: &Path, folder: &str) -> anyhow::Result<Option<PathBuf>> {
        let mut last = None;
        for file in self.others(own)? {
            if !self.is_later(&file, own) {
                continue;
            }
            if let Some(list) = self.said_in(&file)? {
                last = (!list.iter().any(|read| read == folder)).then_some(file);
            }
        }
        Ok(last)
    }

    /// Returns the file that is read after the one at `own` and names another default runtime, and
    /// this runtime.
    pub(super) fn default_replaced_by(
        &self,
        own: &Path,
    ) -> anyhow::Result<Option<(PathBuf, String)>> {
        let path = [self.hooks, &[self.default]].concat();
        let mut last = None;
        for file in self.others(own)? {
            if !self.is_later(&file, own) {
                continue;
            }
            let document = parse(change::read(&file)?.as_deref());
            let document = document.with_context(|| format!("cannot read {}", file.display()))?;
            if let Some(name) = find(&document, &path).and_then(Item::as_str) {
                last = (name != super::NAME).then(|| (file, name.to_owned()));
            }
        }
        Ok(last)
    }

    fn is_later(&self, file: &Path, own: &Path) -> bool {
        own.parent().is_some_and(|folder| file.starts_with(folder)) && file > own
    }

    /// Returns the folders of hooks that one file names.
    pub(super) fn said_in(&self, file: &Path) -> anyhow::Result<Option<Vec<String>>> {
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

    /// Returns the other files, in the order in which the engine reads them.
    fn others(&self, own: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let Some(root) = own.parent().and_then(Path::parent) else {
            return Ok(Vec::new());
        };
        let mut files: Vec<PathBuf> = self.files.iter().map(|file| root.join(file)).collect();
        let mut found = Vec::new();
        let mut folders = vec![root.join(self.folder)];
        // CRI-O reads all files below the folder, whatever their names. podman reads *.conf in it.
        let reads_all = self.name == CRIO.name;
        while let Some(folder) = folders.pop().filter(|folder| folder.is_dir()) {
            let entries = fs::read_dir(&folder)
                .with_context(|| format!("cannot read {}", folder.display()))?;
            for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
                let is_read = reads_all || path.extension().is_some_and(|it| it == "conf");
                match path.is_dir() {
                    true if reads_all => folders.push(path),
                    false if is_read && path != own => found.push(path),
                    _ => {}
                }
            }
        }
        // Paths are compared by their components, which is the order of CRI-O, too.
        found.sort();
        files.extend(found);
        Ok(files)
    }
}

/// Returns the program of a runtime: of CRI-O's table, or of podman's list.
fn program_of(runtime: &Item) -> Option<String> {
    let path = runtime.get("runtime_path").and_then(Item::as_str);
    let path = path.filter(|path| !path.is_empty()).map(str::to_owned);
    path.or_else(|| strings(runtime)?.into_iter().next())
}

/// Returns a line if the policy is about containers for which the hook does not run. `which`: those for
/// which it runs. `remedy`: what makes it run for all.
pub(super) fn left_out(
    places: &HostPaths,
    which: &str,
    remedy: &str,
) -> anyhow::Result<Option<String>> {
    let policy = policy::read(places)?;
    let rules = [
        ("[default]", policy.default.is_some()),
        ("[maximum]", policy.bounds_any()),
        ("deny-unannotated", policy.deny_unannotated),
        ("[dialects]", policy.dialects != Dialects::default()),
    ];
    let rules: Vec<&str> = rules
        .into_iter()
        .filter(|(_, is_set)| *is_set)
        .map(|(name, _)| name)
        .collect();
    let is_any = !rules.is_empty();
    Ok(is_any.then(|| {
        format!(
            "the hook runs only for containers {which}, so the policy's {} does not apply to others: \
             {remedy}",
            rules.join(", ")
        )
    }))
}

#[cfg(test)]
#[path = "drop_in_tests.rs"]
mod tests;
