//! Changes the memory size in a run's tenant record.
//! Touches: the record.
//! Law: a record is changed in place, by one write. The watcher of the run holds a lock on this
//! file, and the file belongs to the run's user.

use crate::base::sys;
use crate::slices::records::DeviceBudget;
use crate::slices::tenants::{Tenant, text};
use nix::fcntl::OFlag;
use std::io;
use std::os::unix::fs::FileExt;

/// Writes other budgets into a tenant's record. The caller holds the admission lock, under which
/// records are read.
///
/// # Errors
/// When the record is no longer a regular file, or cannot be written.
pub fn rewrite(tenant: &Tenant, devices: &[DeviceBudget]) -> io::Result<()> {
    let flags = OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = sys::open(&tenant.file, flags)?;
    let facts = file.metadata()?;
    if !facts.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut text = text(&tenant.name, devices);
    // Trailing spaces are valid JSON. Truncating the file would take a second call, and a process
    // that is killed between the two would leave an unreadable record.
    let length = usize::try_from(facts.len()).unwrap_or(0).max(text.len());
    text.resize(length, b' ');
    let written = file.write_at(&text, 0)?;
    match written == text.len() {
        true => Ok(()),
        false => Err(io::ErrorKind::WriteZero.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::process::ProcessId;
    use crate::slices::tenants;
    use gpuslice_config::words::units::Bytes;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_record_keeps_its_file_and_is_whole_after_every_change() {
        let folder = tempfile::tempdir().unwrap();
        let own = ProcessId::of(std::process::id().cast_signed()).unwrap();
        let budget = |memory| DeviceBudget {
            uuid: "GPU-3090aaaa-1111-4222-8333-444455550000".parse().unwrap(),
            memory: Bytes::new(memory),
            integrated: false,
        };
        let file = tenants::write(folder.path(), &own, "a", &[budget(1 << 33)]).unwrap();
        let inode = file.metadata().unwrap().ino();
        for memory in [5, 1 << 40, 1 << 20, 999] {
            let [tenant] = &tenants::living(folder.path(), |_| false)[..] else {
                panic!("one record");
            };
            rewrite(tenant, &[budget(memory)]).unwrap();
            let [tenant] = &tenants::living(folder.path(), |_| false)[..] else {
                panic!("one record");
            };
            assert_eq!(
                (tenant.name.as_str(), &tenant.devices[..]),
                ("a", &[budget(memory)][..])
            );
            assert_eq!(file.metadata().unwrap().ino(), inode);
        }
    }
}
