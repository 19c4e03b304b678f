//! System calls for files and mounts, most of which libc does not wrap, and the clean-up before a hook
//! starts.
//! Touches: the kernel. Law: every descriptor is closed at exec.

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::mount::{MntFlags, umount2};
use nix::sys::stat::Mode;
use std::ffi::{CStr, CString, OsStr, OsString, c_int, c_long, c_uint};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Read-only. These are the bits of `mount_setattr` and `fsmount`.
pub const RDONLY: u64 = 0x01;
/// No set-user-id programs.
pub const NOSUID: u64 = 0x02;
/// No device files.
pub const NODEV: u64 = 0x04;
/// No execution of programs.
pub const NOEXEC: u64 = 0x08;

const MS_PRIVATE: u64 = 1 << 18;
const AT_EMPTY_PATH: c_uint = 0x1000;
const AT_SYMLINK_NOFOLLOW: c_uint = 0x100;
const AT_RECURSIVE: c_uint = 0x8000;
const OPEN_TREE_CLONE: c_uint = 1;
const OPEN_TREE_CLOEXEC: c_uint = 0o2_000_000;
const MOVE_MOUNT_F_EMPTY_PATH: c_uint = 0x04;
const MOVE_MOUNT_T_EMPTY_PATH: c_uint = 0x40;
const FSOPEN_CLOEXEC: c_uint = 1;
const FSMOUNT_CLOEXEC: c_uint = 1;
const FSCONFIG_SET_STRING: c_uint = 1;
const FSCONFIG_CMD_CREATE: c_uint = 6;

#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

fn done(returned: c_long) -> io::Result<c_int> {
    let returned = Errno::result(returned)?;
    c_int::try_from(returned).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}

fn owned(returned: c_long) -> io::Result<OwnedFd> {
    let fd = done(returned)?;
    // SAFETY: the kernel has just created this descriptor for us, and no other code uses it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether a file could not be opened for want of descriptors or memory, so that nothing is known of it.
#[must_use]
pub fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)
    )
}

/// Opens an existing file. musl's `open`, which the standard library calls, sets close-on-exec with
/// a second system call; `openat` sets it at once.
///
/// # Errors
/// The kernel's.
pub fn open(path: &Path, flags: OFlag) -> io::Result<File> {
    let flags = flags | OFlag::O_CLOEXEC;
    Ok(openat(AT_FDCWD, path, flags, Mode::empty())?.into())
}

/// Opens a file, and creates it with this mode if it is missing.
///
/// # Errors
/// The kernel's.
pub fn make(path: &Path, flags: OFlag, mode: u32) -> io::Result<File> {
    let flags = flags | OFlag::O_CREAT | OFlag::O_CLOEXEC;
    Ok(openat(AT_FDCWD, path, flags, Mode::from_bits_truncate(mode))?.into())
}

/// How often a lookup is repeated while other processes rename files.
const TRIES: u32 = 128;

/// Opens an existing file, and resolves its path by these rules. The kernel gives up a path with ".."
/// if any file of the machine is renamed meanwhile (`EAGAIN`), so such a lookup is repeated.
///
/// # Errors
/// The kernel's.
#[inline(never)]
pub fn open_resolved(
    at: BorrowedFd<'_>,
    path: &Path,
    flags: OFlag,
    resolve: ResolveFlag,
) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .resolve(resolve);
    let mut tries = TRIES;
    loop {
        match openat2(at, path, how) {
            Err(Errno::EAGAIN) if tries > 0 => tries = tries.saturating_sub(1),
            opened => return opened,
        }
    }
}

/// Returns a detached copy of the mount at a descriptor: that mount alone, or with all mounts
/// below.
///
/// # Errors
/// The kernel's.
pub fn clone_mount(at: BorrowedFd<'_>, recursive: bool) -> io::Result<OwnedFd> {
    let below = if recursive { AT_RECURSIVE } else { 0 };
    let flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | below;
    // SAFETY: the path is a C string, the descriptor lives as long as its borrow.
    owned(unsafe { libc::syscall(libc::SYS_open_tree, at.as_raw_fd(), c"".as_ptr(), flags) })
}

/// Returns a detached copy of the mount at a path, without the mounts below. A link is not
/// followed.
///
/// # Errors
/// The kernel's.
pub fn clone_mount_at(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW;
    // SAFETY: the path is a C string that outlives the call.
    owned(unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) })
}

/// The names in a folder.
///
/// # Errors
/// The kernel's.
pub fn names(folder: &Path) -> io::Result<Vec<OsString>> {
    let folder = open(folder, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
    let mut names = Vec::new();
    for entry in Dir::from_fd(folder.into())?.iter() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Attaches a detached mount. Only descriptors name the source and the target.
///
/// # Errors
/// The kernel's.
pub fn attach(mount: BorrowedFd<'_>, target: BorrowedFd<'_>) -> io::Result<()> {
    let flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;
    let (from, to) = (mount.as_raw_fd(), target.as_raw_fd());
    let empty = c"".as_ptr();
    // SAFETY: the paths are C strings, the descriptors live as long as their borrows.
    done(unsafe { libc::syscall(libc::SYS_move_mount, from, empty, to, empty, flags) })?;
    Ok(())
}

/// Attaches a detached mount to a path below a folder that only root can change. If the path is a
/// link, the link is not followed.
///
/// # Errors
/// The kernel's.
pub fn attach_at(mount: BorrowedFd<'_>, folder: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let (from, to) = (mount.as_raw_fd(), folder.as_raw_fd());
    let path = CString::new(path.as_os_str().as_bytes())?;
    let (empty, path, flags) = (c"".as_ptr(), path.as_ptr(), MOVE_MOUNT_F_EMPTY_PATH);
    // SAFETY: the paths are C strings, the descriptors live as long as their borrows.
    done(unsafe { libc::syscall(libc::SYS_move_mount, from, empty, to, path, flags) })?;
    Ok(())
}

/// Changes a mount's attributes, and takes it out of every peer group: a mount that a container
/// makes on top of it must not appear on the host.
///
/// # Errors
/// The kernel's.
pub fn set_attributes(
    mount: BorrowedFd<'_>,
    set: u64,
    clear: u64,
    recursive: bool,
) -> io::Result<()> {
    let attributes = MountAttr {
        set,
        clear,
        propagation: MS_PRIVATE,
        userns: 0,
    };
    let below = if recursive { AT_RECURSIVE } else { 0 };
    let (fd, flags) = (mount.as_raw_fd(), AT_EMPTY_PATH | below);
    let length = size_of::<MountAttr>();
    let attributes = &raw const attributes;
    // SAFETY: the structure is the kernel's, of the length that is given, and outlives the call.
    done(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            fd,
            c"".as_ptr(),
            flags,
            attributes,
            length,
        )
    })?;
    Ok(())
}

/// Mounts a new file system, detached.
///
/// # Errors
/// The kernel's.
pub fn new_mount(kind: &CStr, options: &[(&CStr, &CStr)], attributes: u64) -> io::Result<OwnedFd> {
    // SAFETY: the name is a C string.
    let context = owned(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) })?;
    let fd = context.as_raw_fd();
    for (key, value) in options {
        // SAFETY: both are C strings, the context is open.
        done(unsafe {
            libc::syscall(
                libc::SYS_fsconfig,
                fd,
                FSCONFIG_SET_STRING,
                key.as_ptr(),
                value.as_ptr(),
                0,
            )
        })?;
    }
    let null = std::ptr::null::<u8>();
    // SAFETY: this command takes neither key nor value.
    done(unsafe { libc::syscall(libc::SYS_fsconfig, fd, FSCONFIG_CMD_CREATE, null, null, 0) })?;
    // SAFETY: the context is open.
    owned(unsafe { libc::syscall(libc::SYS_fsmount, fd, FSMOUNT_CLOEXEC, attributes) })
}

/// Detaches everything that is mounted at the folder.
///
/// # Errors
/// The kernel's.
pub fn unmount(place: &Path) -> io::Result<()> {
    loop {
        match umount2(place, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
            Ok(()) => {}
            Err(Errno::EINVAL | Errno::ENOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Cleans up before any other step: clears the environment, closes all but the standard
/// descriptors, leaves the caller's working directory, and keeps the container's processes from
/// inspecting this one.
///
/// # Errors
/// Where the kernel has no `close_range` (before 5.9), or refuses it.
pub fn start_clean() -> io::Result<()> {
    // SAFETY: there is one thread, and no pointer into the environment is held.
    Errno::result(unsafe { libc::clearenv() })?;
    // SAFETY: nothing of this process has been opened yet.
    done(unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32) })?;
    nix::sys::prctl::set_dumpable(false)?;
    // Without a umask, files get exactly the requested modes.
    nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    Ok(nix::unistd::chdir(c"/")?)
}

/// The path of a descriptor of ours in /proc.
#[must_use]
pub fn descriptor_path(of: impl AsFd) -> String {
    format!("/proc/self/fd/{}", of.as_fd().as_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    #[test]
    fn a_path_with_dots_is_found_while_files_are_renamed() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        File::create(&one).unwrap();
        std::fs::create_dir(folder.path().join("in")).unwrap();
        let root = File::open(folder.path()).unwrap();
        let path = Path::new("in/../in/../in/../in/../in");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    std::fs::rename(&one, &other).unwrap();
                    std::fs::rename(&other, &one).unwrap();
                }
            });
            let look = || {
                let resolve = ResolveFlag::RESOLVE_IN_ROOT;
                open_resolved(root.as_fd(), path, OFlag::O_PATH, resolve).err()
            };
            let failed: Vec<Errno> = (0..20_000).filter_map(|_| look()).collect();
            is_over.store(true, SeqCst);
            assert_eq!(failed, []);
        });
    }
}
