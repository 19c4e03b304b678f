//! Checks the installed library, the folder for ledgers, and the kernel.
//! Touches: the file systems of these folders; /proc.

use crate::commands::doctor::codes::Code;
use crate::commands::doctor::finding::Finding;
use crate::runs::private_dir;
use gpuslice_config::ledger::size_for;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::paths::HostPaths;
use nix::sys::statvfs::statvfs;
use nix::sys::utsname::uname;
use std::path::{Path, PathBuf};

/// Adds the findings about what slices need of the host itself.
pub(super) fn check(
    places: &HostPaths,
    installed: &Result<PathBuf, String>,
    found: &mut Vec<Finding>,
) {
    if let Err(why) = installed {
        found.push(Finding::new(Code::NoLibrary, why.clone()));
    }
    found.extend(ledgers());
    found.extend(full(&places.run(), "the hook cannot record a container"));
    found.extend(kernel());
}

/// Checks the folder in which a run's ledger would be made.
fn ledgers() -> Option<Finding> {
    let Some(place) = private_dir::place() else {
        let sentence = "a run finds no folder that it can write to: none of XDG_RUNTIME_DIR, TMPDIR \
                        and /dev/shm can be used";
        return Some(Finding::new(Code::NoTmpfs, sentence));
    };
    if !private_dir::is_on_tmpfs(&place) {
        let sentence = format!(
            "a run would make its ledger in {}, which is no tmpfs: nothing would be counted or \
             refused",
            place.display()
        );
        return Some(Finding::new(Code::NoTmpfs, sentence));
    }
    full(&place, "gpuslice run cannot start a slice")
}

/// Checks that one more ledger fits into a folder, if it exists.
fn full(place: &Path, follows: &str) -> Option<Finding> {
    let space = statvfs(place).ok()?;
    let left = space
        .blocks_available()
        .saturating_mul(space.fragment_size());
    let needed = u64::try_from(size_for(1)).unwrap_or(u64::MAX);
    // A tmpfs without a limit of files reports that it has none.
    let has_files = space.files() == 0 || space.files_available() > 0;
    (left < needed || !has_files).then(|| {
        let sentence = format!(
            "the file system of {} has {} left, and a ledger needs {}: {follows}",
            place.display(),
            Bytes::new(left),
            Bytes::new(needed)
        );
        Finding::new(Code::TmpfsFull, sentence)
    })
}

/// The first kernel with every call that the hook makes.
const FIRST: (u32, u32) = (5, 12);

fn kernel() -> Option<Finding> {
    let name = uname().ok()?;
    let release = name.release().to_string_lossy().into_owned();
    is_old(&release).then(|| {
        let sentence = format!(
            "this kernel is Linux {release}, and the hook needs Linux {}.{}",
            FIRST.0, FIRST.1
        );
        Finding::new(Code::KernelTooOld, sentence)
    })
}

fn is_old(release: &str) -> bool {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    let mut next = || numbers.next().and_then(|number| number.parse::<u32>().ok());
    match (next(), next()) {
        (Some(major), Some(minor)) => (major, minor) < FIRST,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_old;

    #[test]
    fn a_kernel_is_compared_by_its_first_two_numbers() {
        for (release, old) in [
            ("5.10.0-28-amd64", true),
            ("5.12.0", false),
            ("6.8.0-1015-nvidia", false),
            ("4.18.0-553.el8", true),
            ("custom", false),
        ] {
            assert_eq!(is_old(release), old, "{release}");
        }
    }
}
