//! SELinux: what the programs of containers read and write has the label of their own files.
//! Without it, SELinux hides the slice from a confined container, and ld.so says nothing.
//! Touches: /sys/fs/selinux; the attribute with which the kernel labels this thread's new files; the
//! label of a file.

use crate::base::paths::HostPaths;
use nix::errno::Errno;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The label that container engines give to files of several containers (`:z`).
const LABEL: &str = "system_u:object_r:container_file_t:s0";

/// While it lives, the kernel labels the files that this thread creates.
#[derive(Debug)]
pub struct Labelled(Option<File>);

/// Labels the files that this thread creates from now on. Does nothing on a host without SELinux.
///
/// # Errors
/// The kernel's, for example when the host's policy does not know the label.
pub fn label_new_files(paths: &HostPaths) -> io::Result<Labelled> {
    if !is_on(paths) {
        return Ok(Labelled(None));
    }
    let place = paths.root().join("proc/thread-self/attr/fscreate");
    let attribute = File::options().write(true).open(place)?;
    attribute.write_all_at(LABEL.as_bytes(), 0)?;
    Ok(Labelled(Some(attribute)))
}

impl Drop for Labelled {
    fn drop(&mut self) {
        if let Some(attribute) = &self.0 {
            // An empty line stands for the usual labels.
            let _ = attribute.write_all_at(b"\n", 0);
        }
    }
}

/// Labels a file that exists. Does nothing on a host without SELinux.
///
/// # Errors
/// The kernel's.
pub fn label(paths: &HostPaths, path: &Path) -> io::Result<()> {
    if !is_on(paths) {
        return Ok(());
    }
    let path = CString::new(path.as_os_str().as_bytes())?;
    let (name, value) = (c"security.selinux".as_ptr(), LABEL.as_ptr().cast());
    // SAFETY: the path and the name are C strings, and the length is that of the value.
    let set = unsafe { libc::setxattr(path.as_ptr(), name, value, LABEL.len(), 0) };
    Ok(Errno::result(set).map(drop)?)
}

fn is_on(paths: &HostPaths) -> bool {
    paths.root().join("sys/fs/selinux/enforce").exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn new_files_are_labelled_on_a_host_with_selinux_alone() {
        let root = tempfile::tempdir().unwrap();
        let paths = HostPaths::below(root.path());
        let attributes = root.path().join("proc/thread-self/attr");
        fs::create_dir_all(&attributes).unwrap();
        fs::write(attributes.join("fscreate"), "").unwrap();
        let said = || fs::read_to_string(attributes.join("fscreate")).unwrap();
        drop(label_new_files(&paths).unwrap());
        label(&paths, Path::new("/not/there")).unwrap();
        assert_eq!(said(), "");
        fs::create_dir_all(root.path().join("sys/fs/selinux")).unwrap();
        fs::write(root.path().join("sys/fs/selinux/enforce"), "1").unwrap();
        let labelled = label_new_files(&paths).unwrap();
        assert_eq!(said(), LABEL);
        drop(labelled);
        assert!(said().starts_with('\n'));
        label(&paths, Path::new("/not/there")).unwrap_err();
    }
}
