//! Reads the files that containerd's configuration imports.
//! Touches: those files (reads).

use super::toml_file::{parse, strings};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use toml_edit::DocumentMut;

/// An imported file.
#[derive(Clone, Debug)]
pub(super) struct Imported {
    /// The file's path.
    pub(super) path: PathBuf,
    /// The file's contents.
    pub(super) document: DocumentMut,
}

/// Returns the files that a configuration imports, and the files that they import. A file that
/// cannot be read or is not TOML is left out: containerd itself refuses it.
pub(super) fn of(main: &Path, text: Option<&str>) -> Vec<Imported> {
    let mut found = Vec::new();
    // Files are identified by their canonical path. In a circle of links, plain paths would grow
    // without end.
    let mut seen: BTreeSet<PathBuf> = main.canonicalize().into_iter().collect();
    if let Ok(document) = parse(text) {
        follow(main, &document, &mut seen, &mut found);
    }
    found
}

fn follow(
    from: &Path,
    document: &DocumentMut,
    seen: &mut BTreeSet<PathBuf>,
    found: &mut Vec<Imported>,
) {
    let patterns = document.get("imports").and_then(strings);
    let folder = from.parent().unwrap_or(Path::new("/"));
    for pattern in patterns.unwrap_or_default() {
        for path in matching(&folder.join(pattern)) {
            let is_new = path.canonicalize().is_ok_and(|file| seen.insert(file));
            if !is_new {
                continue;
            }
            let text = fs::read_to_string(&path).ok();
            let Some(document) = text.and_then(|text| parse(Some(&text)).ok()) else {
                continue;
            };
            found.push(Imported {
                path: path.clone(),
                document: document.clone(),
            });
            follow(&path, &document, seen, found);
        }
    }
}

/// Returns the files that match a pattern, sorted. Any part of the pattern may contain `*` and `?`.
fn matching(pattern: &Path) -> Vec<PathBuf> {
    let mut all = vec![PathBuf::new()];
    for part in pattern.components() {
        let part = part.as_os_str().to_string_lossy();
        let is_plain = !part.contains(['*', '?']);
        all = all
            .into_iter()
            .flat_map(|path| match is_plain {
                true => vec![path.join(&*part)],
                false => entries(&path, &part),
            })
            .collect();
    }
    all.retain(|path| path.is_file());
    all
}

fn entries(folder: &Path, pattern: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| fits(pattern, name)).collect();
    names.sort();
    names.into_iter().map(|name| folder.join(name)).collect()
}

fn fits(pattern: &str, name: &str) -> bool {
    let Some(first) = pattern.chars().next() else {
        return name.is_empty();
    };
    let rest = pattern.get(first.len_utf8()..).unwrap_or_default();
    let tail = |name: &str| {
        let first = name.chars().next()?;
        name.get(first.len_utf8()..)
            .map(|tail| (first, tail.to_owned()))
    };
    match (first, tail(name)) {
        ('*', None) => fits(rest, name),
        ('*', Some((_, shorter))) => fits(rest, name) || fits(pattern, &shorter),
        ('?', Some((_, shorter))) => fits(rest, &shorter),
        (_, Some((other, shorter))) => first == other && fits(rest, &shorter),
        (_, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_followed_once_each_in_their_order() {
        let place = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = place.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path
        };
        let text = "imports = [\"conf.d/*.toml\", \"/no/such/file\", \"other?/x.toml\"]\n";
        let main = write("config.toml", text);
        write(
            "conf.d/99-nvidia.toml",
            "imports = [\"../config.toml\", \"deep.conf\"]\n",
        );
        write("conf.d/10-first.toml", "version = 2\n");
        write("conf.d/deep.conf", "version = 2\n");
        write("conf.d/broken.toml", "[");
        write("other1/x.toml", "");
        let names: Vec<String> = of(&main, Some(text))
            .iter()
            .map(|file| {
                let path = file.path.canonicalize().unwrap();
                let root = place.path().canonicalize().unwrap();
                path.strip_prefix(root).unwrap().display().to_string()
            })
            .collect();
        let wanted = [
            "conf.d/10-first.toml",
            "conf.d/99-nvidia.toml",
            "conf.d/deep.conf",
            "other1/x.toml",
        ];
        assert_eq!(names, wanted);
    }
}
