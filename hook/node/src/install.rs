//! Copies gpuslice from the image to a folder of the node.
//! Touches: that folder.
//! Law: a file is replaced as a whole, because containers have the old one mounted.

use anyhow::{Context, bail};
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

/// A file of the image, its place in the folder, and its mode. The library comes first: an older
/// library may not understand what a newer hook writes.
const FILES: [(&str, &str, u32); 3] = [
    (
        "usr/lib/gpuslice/libgpuslice.so",
        "lib/gpuslice/libgpuslice.so",
        0o644,
    ),
    ("usr/bin/gpuslice", "bin/gpuslice", 0o755),
    ("usr/bin/gpuslice-hook", "bin/gpuslice-hook", 0o755),
];

/// Other names of these programs.
const LINKS: [(&str, &str); 2] = [
    ("bin/gpusliced", "gpuslice"),
    ("bin/gpuslice-runtime", "gpuslice-hook"),
];

/// The files that the settings may contain.
const SETTINGS: [&str; 2] = ["config.toml", "gpusliced.toml"];

/// Installs the files of the image at `image` into a folder, and returns the names of those that
/// have changed.
///
/// # Errors
/// When a file cannot be written, or when others than root can write to the folder.
pub(crate) fn install(
    image: &Path,
    folder: &Path,
    settings: Option<&Path>,
) -> anyhow::Result<Vec<String>> {
    let mut changed = Vec::new();
    for place in ["", "lib/gpuslice", "bin", "etc/gpuslice"] {
        make_folder(&folder.join(place))?;
    }
    for (source, name, mode) in FILES {
        let source = image.join(source);
        let content = fs::read(&source).with_context(|| format!("cannot read {source:?}"))?;
        if replace(&folder.join(name), &content, mode)? {
            changed.push(name.to_owned());
        }
    }
    for (name, target) in LINKS {
        let link = folder.join(name);
        if fs::read_link(&link).is_ok_and(|now| now == Path::new(target)) {
            continue;
        }
        let new = link.with_extension("new");
        absent(fs::remove_file(&new))?;
        symlink(target, &new)
            .and_then(|()| fs::rename(&new, &link))
            .with_context(|| format!("cannot make {}", link.display()))?;
    }
    for name in SETTINGS {
        let (place, source) = (folder.join("etc/gpuslice").join(name), settings);
        let content = match source.map(|folder| fs::read(folder.join(name))) {
            Some(Ok(content)) => Some(content),
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot read the new {name}"));
            }
            _ => None,
        };
        let has_changed = match content {
            Some(content) => replace(&place, &content, 0o644)?,
            None => absent(fs::remove_file(&place))?,
        };
        if has_changed {
            changed.push(format!("etc/gpuslice/{name}"));
        }
    }
    Ok(changed)
}

/// Makes a folder that only its owner can change: root runs the hook of it.
fn make_folder(folder: &Path) -> anyhow::Result<()> {
    let make = || {
        fs::create_dir_all(folder)?;
        fs::metadata(folder)
    };
    let facts = make().with_context(|| format!("cannot make {}", folder.display()))?;
    if facts.uid() != nix::unistd::geteuid().as_raw() {
        bail!("{} belongs to another user than root", folder.display());
    }
    if facts.mode() & 0o022 != 0 {
        bail!(
            "users other than root can write to {} (chmod go-w)",
            folder.display()
        );
    }
    Ok(())
}

/// Returns whether the operation found a file.
fn absent(done: io::Result<()>) -> io::Result<bool> {
    match done {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Replaces a file, unless it has this content and mode already. Returns whether it has changed.
fn replace(path: &Path, content: &[u8], mode: u32) -> anyhow::Result<bool> {
    let is_same = || {
        let facts = fs::symlink_metadata(path)?;
        let same = facts.is_file() && facts.mode() & 0o7777 == mode;
        Ok::<_, io::Error>(same && fs::read(path)? == content)
    };
    if is_same().unwrap_or(false) {
        return Ok(false);
    }
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let write = || {
        absent(fs::remove_file(&new))?;
        let mut file = File::create_new(&new)?;
        file.write_all(content)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        // After a crash of the node, an empty hook would refuse every container.
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::path::PathBuf;
    use tempfile::TempDir;

    struct Node {
        place: TempDir,
    }

    impl Node {
        fn new() -> Node {
            let node = Node {
                place: tempfile::tempdir().unwrap(),
            };
            for (file, _, _) in FILES {
                let path = node.image().join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, file).unwrap();
            }
            node
        }

        fn image(&self) -> PathBuf {
            self.place.path().join("image")
        }

        fn settings(&self, files: &[(&str, &str)]) -> PathBuf {
            let folder = self.place.path().join("settings");
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir(&folder).unwrap();
            for (name, text) in files {
                // A ConfigMap's files are links.
                fs::write(folder.join(format!("..{name}")), text).unwrap();
                symlink(format!("..{name}"), folder.join(name)).unwrap();
            }
            folder
        }

        fn folder(&self) -> PathBuf {
            self.place.path().join("opt/gpuslice")
        }

        fn install(&self, settings: &[(&str, &str)]) -> anyhow::Result<Vec<String>> {
            install(
                &self.image(),
                &self.folder(),
                Some(&self.settings(settings)),
            )
        }

        fn inode(&self, name: &str) -> u64 {
            fs::metadata(self.folder().join(name)).unwrap().ino()
        }
    }

    #[test]
    fn a_second_start_of_the_pod_changes_no_file() {
        let node = Node::new();
        let first = node
            .install(&[("config.toml", "overcommit = true\n")])
            .unwrap();
        assert_eq!(
            first,
            [
                "lib/gpuslice/libgpuslice.so",
                "bin/gpuslice",
                "bin/gpuslice-hook",
                "etc/gpuslice/config.toml"
            ]
        );
        let inode = node.inode("bin/gpuslice-hook");
        let second = node
            .install(&[("config.toml", "overcommit = true\n")])
            .unwrap();
        assert_eq!(second, Vec::<String>::new());
        assert_eq!(node.inode("bin/gpuslice-hook"), inode);
        let daemon = fs::read(node.folder().join("bin/gpusliced")).unwrap();
        assert_eq!(daemon, b"usr/bin/gpuslice");
    }

    #[test]
    fn an_upgrade_leaves_the_library_that_containers_have_mounted() {
        let node = Node::new();
        node.install(&[]).unwrap();
        let library = node.folder().join("lib/gpuslice/libgpuslice.so");
        let mounted = File::open(&library).unwrap();
        fs::write(
            node.image().join("usr/lib/gpuslice/libgpuslice.so"),
            "newer",
        )
        .unwrap();
        let changed = node.install(&[]).unwrap();
        assert_eq!(changed, ["lib/gpuslice/libgpuslice.so"]);
        assert_eq!(fs::read(&library).unwrap(), b"newer");
        let old = io::read_to_string(mounted).unwrap();
        assert_eq!(old, "usr/lib/gpuslice/libgpuslice.so");
    }

    #[test]
    fn a_setting_that_the_chart_no_longer_has_is_removed() {
        let node = Node::new();
        node.install(&[("config.toml", "x"), ("gpusliced.toml", "y")])
            .unwrap();
        let changed = node.install(&[("gpusliced.toml", "y")]).unwrap();
        assert_eq!(changed, ["etc/gpuslice/config.toml"]);
        assert!(!node.folder().join("etc/gpuslice/config.toml").exists());
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_refused() {
        let node = Node::new();
        fs::create_dir_all(node.folder()).unwrap();
        fs::set_permissions(node.folder(), Permissions::from_mode(0o777)).unwrap();
        let error = node.install(&[]).unwrap_err().to_string();
        let expected = format!(
            "users other than root can write to {}/ (chmod go-w)",
            node.folder().display()
        );
        assert_eq!(error, expected);
        assert!(!node.folder().join("bin").exists());
    }
}
