//! Seals a ledger, so that its own container can write to it but cannot truncate it.
//! Touches: mounts at the ledger's folder; this thread's effective capabilities, for one call.
//! Law: every start verifies the seal. If the verification fails, all mounts of the seal are
//! removed.
//!
//! The ledger is one file of an overlay whose mounter lacks CAP_SETFCAP, and the file has an
//! (empty) `security.capability`. Before a truncation, or a write other than through a mapping, the
//! kernel removes that attribute, with the mounter's rights. That fails with EPERM, for the host's
//! root too. A shared mapping writes to the pages below and removes nothing. An overlay's mapping
//! keeps no lock, so the locks are on a plain file beside the ledger.

use gpuslice_config::ledger::{Locks, beginning, size_for};
use gpuslice_host::base::sys;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, FallocateFlags, OFlag, fallocate, openat};
use nix::sys::stat::{Mode, SFlag, fchmod, mkdirat, mknod};
use nix::unistd::{Uid, fchown, ftruncate, pipe, write};
use std::ffi::{CStr, CString, c_ulong};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The owner of the file: a uid of no user in any container, because an owner may change modes and
/// flags.
const OWNER: u32 = 4_294_967_290;

/// Mounts a sealed ledger for `devices` devices, and its lock file, at a folder without mounts.
///
/// # Errors
/// The kernel's, where it cannot seal the ledger. Mounts may then be left at the folder.
pub fn make(place: &Path, devices: usize) -> io::Result<()> {
    let (file, pinned) = pinned(place, devices)?;
    // From here on the file can be changed only through a mapping.
    set_append_only(file.as_fd())?;
    sys::unmount(place)?;
    folder_of(place, c"4k")?;
    let (ledger, locks) = (place.join("ledger"), place.join("locks"));
    locks_file(&locks)?;
    mknod(&ledger, SFlag::S_IFREG, POINT, 0)?;
    let attributes = sys::NOSUID | sys::NODEV | sys::NOEXEC;
    sys::set_attributes(pinned.as_fd(), attributes, 0, false)?;
    sys::attach_at(pinned.as_fd(), AT_FDCWD, &ledger)?;
    prove(&ledger, devices)
}

/// The mode of a ledger's mount point, which distinguishes it from a ledger.
pub const POINT: Mode = Mode::from_bits_truncate(0o444);

/// Creates the lock file, for every user of the container.
///
/// # Errors
/// The kernel's.
pub fn locks_file(path: &Path) -> io::Result<()> {
    sys::make(path, OFlag::O_RDWR | OFlag::O_NOFOLLOW, 0o666).map(drop)
}

/// Mounts a ledger's folder as a file system of its own, so that a container that writes to it
/// cannot fill the host's.
///
/// # Errors
/// The kernel's.
pub fn folder_of(place: &Path, size: &CStr) -> io::Result<()> {
    let options = [(c"size", size), (c"nr_inodes", c"4"), (c"mode", c"0755")];
    let attributes = sys::NOSUID | sys::NODEV | sys::NOEXEC;
    let mount = sys::new_mount(c"tmpfs", &options, attributes)?;
    sys::attach_at(mount.as_fd(), AT_FDCWD, place)
}

/// Whether the ledger at a path is sealed.
#[must_use]
pub fn is_sealed(ledger: &Path) -> bool {
    let facts = nix::sys::statfs::statfs(ledger);
    facts.is_ok_and(|facts| facts.filesystem_type() == nix::sys::statfs::OVERLAYFS_SUPER_MAGIC)
}

/// The real file, and a detached mount of it as the overlay shows it. Kernel 6.1 requires both to
/// be attached while it creates the overlay and the copy, so they are attached for a moment.
fn pinned(place: &Path, devices: usize) -> io::Result<(File, OwnedFd)> {
    let size = CString::new(size_for(devices).to_string())?;
    let options = [
        (c"size", size.as_c_str()),
        (c"nr_inodes", c"32"),
        (c"mode", c"0755"),
    ];
    let attributes = sys::NOSUID | sys::NODEV | sys::NOEXEC;
    let base = sys::new_mount(c"tmpfs", &options, attributes)?;
    sys::attach_at(base.as_fd(), AT_FDCWD, place)?;
    for folder in ["up", "work", "low"] {
        mkdirat(&base, folder, Mode::from_bits_truncate(0o755))?;
    }
    let file = real_file(base.as_fd(), devices)?;
    let root = sys::descriptor_path(&base);
    let layer = |name: &str| CString::new(format!("{root}/{name}"));
    let (low, up, work) = (layer("low")?, layer("up")?, layer("work")?);
    let options = [
        (c"lowerdir", low.as_c_str()),
        (c"upperdir", up.as_c_str()),
        (c"workdir", work.as_c_str()),
        (c"index", c"off"),
        (c"metacopy", c"off"),
        (c"xino", c"off"),
        (c"redirect_dir", c"off"),
        (c"nfs_export", c"off"),
    ];
    let overlay = without_setfcap(|| sys::new_mount(c"overlay", &options, attributes))?;
    sys::attach_at(overlay.as_fd(), AT_FDCWD, place)?;
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let shown = openat(&overlay, "ledger", flags, Mode::empty())?;
    let copy = sys::clone_mount(shown.as_fd(), false)?;
    Ok((file, copy))
}

/// Creates the real file. The order of the steps matters: a write or a change of owner removes the
/// attribute, so the attribute is set last.
fn real_file(base: BorrowedFd<'_>, devices: usize) -> io::Result<File> {
    let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    let file = File::from(openat(base, "up/ledger", flags, Mode::empty())?);
    let length = i64::try_from(size_for(devices)).unwrap_or(i64::MAX);
    fallocate(&file, FallocateFlags::empty(), 0, length)?;
    file.write_all_at(&beginning(devices, Locks::Beside), 0)?;
    fchown(&file, Some(Uid::from_raw(OWNER)), None)?;
    fchmod(&file, Mode::from_bits_truncate(0o666))?;
    // struct vfs_cap_data of revision 2, without a single capability.
    let mut nothing = [0u8; 20];
    nothing[3] = 2;
    let (name, value) = (c"security.capability".as_ptr(), nothing.as_ptr().cast());
    // SAFETY: the name is a C string, and the length is that of the value.
    let set = unsafe { libc::fsetxattr(file.as_raw_fd(), name, value, nothing.len(), 0) };
    Errno::result(set)?;
    Ok(file)
}

/// Runs `act` with only CAP_SYS_ADMIN and CAP_DAC_OVERRIDE.
fn without_setfcap<T>(act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    const SYS_ADMIN_AND_DAC_OVERRIDE: u32 = 1 << 21 | 1 << 1;
    let all = Capabilities::of_this_thread()?;
    let mut few = all;
    few.sets[0].effective &= SYS_ADMIN_AND_DAC_OVERRIDE;
    few.sets[1].effective = 0;
    few.apply()?;
    let done = act();
    all.apply()?;
    done
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// The data of `capget` and `capset`.
#[derive(Clone, Copy, Default)]
struct Capabilities {
    sets: [Sets; 2],
}

/// `_LINUX_CAPABILITY_VERSION_3`, and pid 0: this thread.
const HEADER: [u32; 2] = [0x2008_0522, 0];

impl Capabilities {
    fn of_this_thread() -> io::Result<Capabilities> {
        let (mut header, mut found) = (HEADER, Capabilities::default());
        let (from, to) = (header.as_mut_ptr(), found.sets.as_mut_ptr());
        // SAFETY: for version 3, the kernel writes the header and two sets; both have that layout.
        Errno::result(unsafe { libc::syscall(libc::SYS_capget, from, to) })?;
        Ok(found)
    }

    fn apply(self) -> io::Result<()> {
        let mut header = HEADER;
        // SAFETY: both have the layout of version 3, and the kernel only reads the sets.
        let set =
            unsafe { libc::syscall(libc::SYS_capset, header.as_mut_ptr(), self.sets.as_ptr()) };
        Errno::result(set)?;
        Ok(())
    }
}

/// Sets the append-only flag, which prevents truncation. The overlay's file is already open and
/// lacks the flag; with it, the file could not be mapped for writing.
fn set_append_only(file: BorrowedFd<'_>) -> io::Result<()> {
    const FS_IOC_GETFLAGS: c_ulong = 0x8008_6601;
    const FS_IOC_SETFLAGS: c_ulong = 0x4008_6602;
    const FS_APPEND_FL: libc::c_int = 0x20;
    let (fd, mut flags) = (file.as_raw_fd(), 0);
    // SAFETY: the kernel writes one int.
    Errno::result(unsafe { libc::ioctl(fd, FS_IOC_GETFLAGS as _, &raw mut flags) })?;
    flags |= FS_APPEND_FL;
    // SAFETY: the kernel reads one int.
    Errno::result(unsafe { libc::ioctl(fd, FS_IOC_SETFLAGS as _, &raw const flags) })?;
    Ok(())
}

/// Tries the attacks that a container could try, and then maps the ledger as a program does.
fn prove(ledger: &Path, devices: usize) -> io::Result<()> {
    let file = sys::open(ledger, OFlag::O_RDWR | OFlag::O_NOFOLLOW)?;
    let length = size_for(devices);
    let (read_write, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    let (null, fd) = (std::ptr::null_mut(), file.as_raw_fd());
    // SAFETY: a new mapping replaces no other mapping.
    let at = unsafe { libc::mmap(null, length, read_write, shared, fd, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let refused = attack(&file, at, length);
    let begins = beginning(devices, Locks::Beside);
    if refused.is_ok() {
        // SAFETY: the file was just seen to have its full length, and no other process has it yet.
        unsafe { std::ptr::copy_nonoverlapping(begins.as_ptr(), at.cast(), begins.len()) };
    }
    // SAFETY: the mapping is this function's own.
    unsafe { libc::munmap(at, length) };
    refused?;
    let mut found = [0; 24];
    file.read_exact_at(&mut found, 0)?;
    match found == begins {
        true => Ok(()),
        false => Err(io::Error::other("writes through a mapping do not reach it")),
    }
}

/// Runs the attacks that may or may not succeed, and then the one that must fail.
fn attack(file: &File, at: *mut libc::c_void, length: usize) -> io::Result<()> {
    // SAFETY: the pages are mapped and hold nothing yet.
    unsafe { libc::madvise(at, length, libc::MADV_REMOVE) };
    let (from, to) = pipe()?;
    write(&to, &[0; 8])?;
    let (pipe, into, null) = (from.as_raw_fd(), file.as_raw_fd(), std::ptr::null_mut());
    let mut place = 4096i64;
    // SAFETY: the descriptors are open, the place is one word.
    unsafe { libc::splice(pipe, null, into, &raw mut place, 8, 0) };
    let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let _ = fallocate(file, punch, 0, 4096);
    match ftruncate(file, 0) {
        Err(Errno::EPERM) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(()) => Err(io::Error::other("it can still be truncated")),
    }
}
