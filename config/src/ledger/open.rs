//! Opens a slice's ledger in one process, and keeps that process's data about it.
//! Touches: the file, while it is opened; then the mapped file.

use super::LedgerError;
use super::closed::{self, DeviceNumbers};
use super::kernel::lock_file::{DESCRIPTOR_MAX, LockFile, PATH_MAX};
use super::kernel::locks::Session;
use super::kernel::{map, reopen};
use super::protocol::columns::Columns;
use super::protocol::header::{Beginning, Header};
use super::protocol::layout::{self, Device, Node, Table};
use super::protocol::private::Private;
use crate::sys::{Access, Fd};
use crate::words::device::DeviceUuid;
use core::ffi::CStr;
use core::sync::atomic::Ordering::Relaxed;

/// The conditions under which a ledger is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// The ledger must exist.
    Existing,
    /// The ledger must exist, with this id from [`Ledger::identify`]. Where another process's
    /// descriptor of the ledger is given and can be read, a copy of the ledger is refused.
    Known(u64),
    /// The ledger is created if it is missing, with exactly this mode, whatever the umask.
    Create {
        /// 0o600 for the processes of one user, 0o666 where a container has several.
        mode: u32,
        /// The number of devices that it has room for.
        devices: usize,
    },
}

/// A slice's ledger, as mapped in one process.
///
/// It stays mapped until the process ends, dropped or not, because the kernel and libc refer to it.
pub struct Ledger {
    pub(super) header: &'static Header,
    /// The first words of the header, at the time of opening.
    pub(super) begins: Beginning,
    pub(super) table: Table<'static>,
    /// The first slot, for the fast path of a process alone in its slice.
    pub(super) first: Option<(&'static Node, Columns<'static>)>,
    /// Whether the ledger cannot be used: nothing is granted, and every sum covers this process
    /// only.
    pub(super) closed: bool,
    /// This process's numbers of the devices, where they differ from the file's.
    pub(super) numbers: Option<&'static DeviceNumbers>,
    pub(super) private: &'static Private,
    pub(super) lock_file: LockFile,
}

impl core::fmt::Debug for Ledger {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_tuple("Ledger")
            .field(&self.lock_file.path())
            .finish()
    }
}

impl Ledger {
    /// Maps the ledger at `path`. Takes no slot yet, and leaves no descriptor open.
    ///
    /// The path should be absolute: it is used again when a slot is taken, or when a process has
    /// died.
    ///
    /// # Errors
    /// When the file cannot be opened or mapped, or is not a ledger of this version.
    pub fn open(path: &CStr, open: Open) -> Result<Ledger, LedgerError> {
        let private = map::private().map_err(LedgerError::Map)?;
        Ledger::open_with(path, c"", open, private)
    }

    /// Like [`Ledger::open`], with the caller's memory for this process's own slots: zeros at
    /// first, and zeros again in every forked child. `descriptor`, if not empty, is the path of
    /// another process's descriptor of the ledger, `/proc/PID/fd/N`. It is used when `path` no
    /// longer leads to the ledger.
    ///
    /// # Errors
    /// As [`Ledger::open`].
    pub fn open_with(
        path: &CStr,
        descriptor: &CStr,
        open: Open,
        private: &'static Private,
    ) -> Result<Ledger, LedgerError> {
        if path.count_bytes() > PATH_MAX {
            return Err(LedgerError::Path);
        }
        // A descriptor path that is too long is ignored.
        let descriptor = match descriptor.count_bytes() {
            0..=DESCRIPTOR_MAX => descriptor,
            _ => c"",
        };
        let access = match open {
            Open::Existing | Open::Known(_) => Access::Write,
            Open::Create { .. } => Access::Create,
        };
        let fd = Fd::open(path, access).or_else(|why| {
            let there = reopen::open(path, descriptor);
            there.map_err(|_| why)
        });
        let fd = fd.map_err(LedgerError::Open)?;
        let mut stat = fd.stat().map_err(LedgerError::Examine)?;
        if !stat.regular {
            return Err(LedgerError::NotAFile);
        }
        if let (Open::Create { mode, devices }, 0) = (open, stat.length) {
            // Another process that creates it at this moment sets the same mode.
            fd.set_mode(mode).map_err(LedgerError::Open)?;
            let length = layout::size_for(devices);
            fd.set_length(length).map_err(LedgerError::Open)?;
            stat = fd.stat().map_err(LedgerError::Open)?;
        }
        let wrong = LedgerError::Length(stat.length);
        let slots = layout::slots_of(stat.length).ok_or(wrong)?;
        let length = usize::try_from(stat.length).map_err(|_| wrong)?;
        let mapped = map::file(&fd, length, slots).map_err(LedgerError::Map)?;
        if let Open::Create { .. } = open {
            mapped.header.begin(slots);
        }
        let checked = mapped.header.check(slots).map_err(LedgerError::from);
        // An exact copy of the ledger has its id too.
        let is_another = matches!(open, Open::Known(id) if !mapped.header.is(id)
            || reopen::holds_another(descriptor, id, &stat));
        let begins = match checked {
            Ok(begins) if !is_another => begins,
            checked => {
                map::forget(mapped);
                return Err(checked.err().unwrap_or(LedgerError::Another));
            }
        };
        let (header, table) = (mapped.header, mapped.table);
        let lock_file = match header.locks_are_beside() {
            true => LockFile::beside(path, descriptor),
            false => LockFile::ledger(path, descriptor, stat),
        };
        let node = table.nodes.first();
        Ok(Ledger {
            header,
            begins,
            table,
            first: node.and_then(|node| Some((node, Columns::of(table, 0)?))),
            closed: false,
            numbers: closed::numbers(header),
            private,
            lock_file: lock_file.ok_or(LedgerError::Path)?,
        })
    }

    /// A ledger that grants nothing, for a slice whose own ledger cannot be used. `private` is as
    /// for [`Ledger::open_with`]; `None` where the kernel provides no page for it.
    #[must_use]
    pub fn closed(private: Option<&'static Private>) -> Ledger {
        let header = closed::header();
        Ledger {
            header,
            begins: Beginning::NONE,
            table: Table {
                extent: &header.extent,
                used: &[],
                pending: &[],
                nodes: &[],
                kinds: &[],
                sharers: &header.sharers,
                sharing: &[],
            },
            first: None,
            closed: true,
            numbers: None,
            private: private.unwrap_or_else(closed::no_page),
            lock_file: LockFile::none(),
        }
    }

    /// Gives a new ledger an id, by which processes recognise it. Returns false if it has another
    /// id.
    #[must_use]
    pub fn identify(&self, id: u64) -> bool {
        self.header.identify(id)
    }

    /// The device's number for claims; `None` if the file has no room for another device.
    #[must_use]
    pub fn device(&self, uuid: &DeviceUuid) -> Option<Device> {
        match self.numbers {
            None => self.header.device(uuid),
            Some(numbers) => numbers.device(uuid, self.header),
        }
    }

    /// The file's number for a device of this process.
    #[inline(always)]
    pub(super) fn in_file(&self, device: Device) -> Device {
        match self.numbers {
            None => device,
            Some(numbers) => numbers.in_file(device),
        }
    }

    /// The kernel, for one call.
    pub(super) fn session(&self) -> Session<'_> {
        Session::of(&self.lock_file, self.table.nodes, self.private)
    }

    /// Whether this ledger grants nothing, even if memory is free.
    #[inline]
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// The number of the slice's claims that found no slot.
    #[must_use]
    pub fn uncounted(&self) -> u64 {
        self.header.uncounted.load(Relaxed)
    }
}
