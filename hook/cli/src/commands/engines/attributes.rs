//! Writes a file with the owner, mode and extended attributes of another file.
//! Touches: that file, and a temporary one beside it.
//! Law: a user who cannot read the original can never read the copy, not even while it is written.

use anyhow::Context;
use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;
use tempfile::NamedTempFile;

/// Writes `text` to `path`, with the owner, mode and attributes of `like`. It replaces the existing
/// file; with `is_new`, it writes only if no file exists. Returns the extended attributes of `like`
/// that could not be copied.
///
/// # Errors
/// When the file cannot be written; it is then unchanged.
pub(super) fn write(
    path: &Path,
    text: &str,
    like: &Path,
    is_new: bool,
) -> anyhow::Result<Vec<String>> {
    let written = write_beside(path, text, like, is_new);
    written.with_context(|| format!("cannot write {}", path.display()))
}

fn write_beside(path: &Path, text: &str, like: &Path, is_new: bool) -> io::Result<Vec<String>> {
    let model = File::open(like)?;
    let facts = model.metadata()?;
    // If the path is a symbolic link, its target is replaced and the link stays.
    let path = match is_new {
        true => path.to_owned(),
        false => fs::canonicalize(path)?,
    };
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    // The new file has mode 0600 until it has the owner and the attributes of `like`.
    let mut new = NamedTempFile::with_prefix_in(".gpuslice-", folder)?;
    new.write_all(text.as_bytes())?;
    fchown(new.as_file(), Some(facts.uid()), Some(facts.gid()))?;
    let lost = carry_over(&model, new.as_file());
    new.as_file().set_permissions(facts.permissions())?;
    new.as_file().sync_all()?;
    match is_new {
        true => new.persist_noclobber(&path),
        false => new.persist(&path),
    }
    .map_err(|error| error.error)?;
    File::open(folder)?.sync_all()?;
    Ok(lost)
}

/// Copies access control lists, security labels and all other extended attributes. Returns those
/// that could not be set.
fn carry_over(from: &File, to: &File) -> Vec<String> {
    let mut lost = Vec::new();
    for name in names(from) {
        let set = value(from, &name).and_then(|value| {
            // SAFETY: a C string, and a buffer of the given length; both outlive the call.
            let done = unsafe {
                libc::fsetxattr(
                    to.as_raw_fd(),
                    name.as_ptr(),
                    value.as_ptr().cast(),
                    value.len(),
                    0,
                )
            };
            (done == 0).then_some(())
        });
        if set.is_none() {
            lost.push(name.to_string_lossy().into_owned());
        }
    }
    lost
}

/// Returns the names of a file's extended attributes; empty if the file system has none.
fn names(file: &File) -> Vec<CString> {
    let list = sized(|buffer, size| {
        // SAFETY: the buffer has the given length, or is null with length 0.
        unsafe { libc::flistxattr(file.as_raw_fd(), buffer.cast(), size) }
    });
    let list = list.unwrap_or_default();
    let parts = list.split_inclusive(|byte| *byte == 0);
    parts
        .filter_map(|part| CStr::from_bytes_with_nul(part).ok())
        .map(CStr::to_owned)
        .collect()
}

fn value(file: &File, name: &CStr) -> Option<Vec<u8>> {
    sized(|buffer, size| {
        // SAFETY: a C string, and a buffer that has the given length or is null with length 0.
        unsafe { libc::fgetxattr(file.as_raw_fd(), name.as_ptr(), buffer.cast(), size) }
    })
}

/// Returns the data of a system call that first reports its length.
fn sized(call: impl Fn(*mut u8, usize) -> isize) -> Option<Vec<u8>> {
    let size = usize::try_from(call(std::ptr::null_mut(), 0)).ok()?;
    let mut buffer = vec![0; size];
    let got = usize::try_from(call(buffer.as_mut_ptr(), size)).ok()?;
    buffer.truncate(got);
    Some(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_copy_has_the_mode_and_the_attributes_of_its_model() {
        let place = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let (model, copy) = (place.path().join("model"), place.path().join("copy"));
        fs::write(&model, "secret").unwrap();
        fs::set_permissions(&model, fs::Permissions::from_mode(0o640)).unwrap();
        let file = File::open(&model).unwrap();
        // SAFETY: C strings, and a value of five bytes.
        let set = unsafe {
            libc::fsetxattr(
                file.as_raw_fd(),
                c"user.gpuslice".as_ptr(),
                c"value".as_ptr().cast(),
                5,
                0,
            )
        };
        assert_eq!(write(&copy, "text", &model, true).unwrap(), [""; 0]);
        let facts = fs::metadata(&copy).unwrap();
        assert_eq!(facts.permissions().mode() & 0o7777, 0o640);
        if set == 0 {
            let copied = value(&File::open(&copy).unwrap(), c"user.gpuslice");
            assert_eq!(copied.as_deref(), Some(&b"value"[..]));
        }
        // A backup is never overwritten.
        assert!(write(&copy, "other", &model, true).is_err());
        assert_eq!(fs::read_to_string(&copy).unwrap(), "text");
    }
}
