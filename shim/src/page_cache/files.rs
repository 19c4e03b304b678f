//! The model files that this process has open or mapped: one entry each, with a count of users.
//! Touches: atomics; the kernel, when the last user of a file goes.
//! Law: no lock, no malloc: open and close are called from signal handlers and between fork and
//! exec. An entry whose count is zero cannot be acquired; the thread that released the last user
//! ends it.

use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::drop_behind::block_map::BlockMap;
use super::drop_behind::helper;
use super::file_systems::FileSystem;
use super::hints::{self, hint, hinted, hinted_at, new_hint};
use super::own_descriptor::{self, OPENING};
use super::{fork, range_locks};
use crate::sys::file_calls::{self, Descriptor, Identity, Regular};

/// The number of files that a process can have in use at the same time. The largest models come in
/// fewer than 200.
const FILES: usize = 255;
/// An entry of the table, from 1.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Number(u8);

/// A file in use.
pub(super) struct ModelFile {
    pub(super) state: AtomicU8,
    inherited: AtomicU8,
    /// The [`FileSystem`].
    file_system: AtomicU8,
    /// Not 0: a descriptor was opened for writing.
    writable: AtomicU8,
    /// Not 0: the program locks the file itself, and we do not.
    locked: AtomicU8,
    /// The number of descriptors, mappings and threads that use it.
    users: AtomicU32,
    /// Our own descriptor plus one; 0 for none: a table of zeros takes no room in the library's
    /// file.
    pub(super) own: AtomicI32,
    dev: AtomicU64,
    ino: AtomicU64,
    size: AtomicU64,
    /// The time of the last change before this use.
    changed: AtomicU64,
    /// The number of this use of the entry.
    serial: AtomicU64,
    /// The bytes read since the helper was last called.
    pub(super) unsaid: AtomicU64,
    pub(super) block_map: BlockMap,
}

pub(super) const FREE: u8 = 0;
pub(super) const BUSY: u8 = 1;
const LIVE: u8 = 2;
/// The file is no longer in use, but our descriptor cannot be closed yet.
pub(super) const KEPT: u8 = 3;

static TABLE: [ModelFile; FILES] = [const {
    ModelFile {
        state: AtomicU8::new(FREE),
        inherited: AtomicU8::new(0),
        file_system: AtomicU8::new(0),
        writable: AtomicU8::new(0),
        locked: AtomicU8::new(0),
        users: AtomicU32::new(0),
        own: AtomicI32::new(0),
        dev: AtomicU64::new(0),
        ino: AtomicU64::new(0),
        size: AtomicU64::new(0),
        changed: AtomicU64::new(0),
        serial: AtomicU64::new(0),
        unsaid: AtomicU64::new(0),
        block_map: BlockMap::new(),
    }
}; FILES];

/// The number of files in use. In nearly every process it is 0, and then no other state is read.
static USED: AtomicU32 = AtomicU32::new(0);

/// Whether any model file is in use.
#[inline]
pub(super) fn any() -> bool {
    USED.load(Ordering::Relaxed) != 0
}

impl Number {
    pub(super) fn from_raw(raw: u8) -> Option<Number> {
        (raw != 0).then_some(Number(raw))
    }

    /// The numbers of all entries.
    pub(super) fn all() -> impl Iterator<Item = Number> {
        (1..=u8::MAX).map(Number)
    }

    pub(super) fn raw(self) -> u8 {
        self.0
    }

    pub(super) fn file(self) -> &'static ModelFile {
        // There is an entry for every number but 0, which a Number never holds.
        TABLE
            .get(usize::from(self.0).wrapping_sub(1))
            .unwrap_or(&TABLE[0])
    }

    /// Adds a user. False: the last user has just gone.
    pub(super) fn acquire(self) -> bool {
        let more = |users: u32| (users != 0).then(|| users.saturating_add(1));
        let users = &self.file().users;
        users
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, more)
            .is_ok()
    }

    /// Removes a user. The last one drops the file's pages, through our own descriptor or through
    /// `through`, the program's descriptor, which is still open.
    pub(super) fn release(self, through: Option<Descriptor>) {
        if self.file().users.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.end(through);
        }
    }

    #[cold]
    fn end(self, through: Option<Descriptor>) {
        let file = self.file();
        helper::wait_for(self);
        file.block_map.clear(file.size());
        // The parent may still be loading a file that a forked child has inherited.
        let inherited = file.inherited.swap(0, Ordering::AcqRel) != 0;
        let own = file.own();
        if let Some(fd) = own.or(through)
            && !(inherited && fork::parent_lives())
        {
            range_locks::drop_whole(file, fd, own.is_some());
        }
        let next = file.close_own(through.is_some());
        file.state.store(next, Ordering::Release);
        USED.fetch_sub(1, Ordering::AcqRel);
    }
}

impl ModelFile {
    pub(super) fn identity(&self) -> Identity {
        Identity {
            dev: self.dev.load(Ordering::Relaxed),
            ino: self.ino.load(Ordering::Relaxed),
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// Whether the program locks the file itself, so that we must not.
    pub(super) fn gives_way(&self) -> bool {
        self.locked.load(Ordering::Acquire) != 0
    }

    pub(super) fn give_way(&self) {
        self.locked.store(1, Ordering::Release);
    }

    /// The number of this use of the entry.
    pub(super) fn serial(&self) -> u64 {
        self.serial.load(Ordering::Relaxed) & u64::MAX >> 8
    }

    /// Whether the use with this number is still going on.
    pub(super) fn is_in_use(&self, serial: u64) -> bool {
        self.state.load(Ordering::SeqCst) == LIVE
            && self.users.load(Ordering::SeqCst) != 0
            && self.serial() == serial
    }

    /// Whether a descriptor is open on this file.
    pub(super) fn is(&self, fd: Descriptor) -> bool {
        file_calls::stat(fd).is_some_and(|stat| stat.identity == self.identity())
    }

    /// The kind of the file's file system.
    pub(super) fn file_system(&self) -> FileSystem {
        const KINDS: [FileSystem; 3] = [FileSystem::Local, FileSystem::Fuse, FileSystem::Network];
        let known = self.file_system.load(Ordering::Relaxed);
        let kind = KINDS.into_iter().find(|kind| *kind as u8 == known);
        kind.unwrap_or(FileSystem::Network)
    }

    /// Records that a descriptor of the program can write to the file.
    pub(super) fn may_be_written(&self) {
        self.writable.store(1, Ordering::Relaxed);
    }

    /// Whether the program may have written to the file during this use. The kernel writes such
    /// pages to the disk before it drops any, and the program would wait for that.
    pub(super) fn is_written(&self, fd: Descriptor) -> bool {
        // A network file system may report the time of a change later.
        let is_changed = || {
            self.file_system() == FileSystem::Network
                || file_calls::stat(fd)
                    .is_none_or(|stat| stat.changed != self.changed.load(Ordering::Relaxed))
        };
        self.writable.load(Ordering::Relaxed) != 0 && is_changed()
    }

    /// Begins a use of an entry that this thread has taken, with one user.
    fn begin(&self, stat: Regular, file_system: FileSystem) {
        self.dev.store(stat.identity.dev, Ordering::Relaxed);
        self.ino.store(stat.identity.ino, Ordering::Relaxed);
        self.size.store(stat.size, Ordering::Relaxed);
        self.changed.store(stat.changed, Ordering::Relaxed);
        self.file_system.store(file_system as u8, Ordering::Relaxed);
        self.writable.store(0, Ordering::Relaxed);
        self.inherited.store(0, Ordering::Relaxed);
        self.locked.store(0, Ordering::Relaxed);
        self.unsaid.store(0, Ordering::Relaxed);
        self.serial.fetch_add(1, Ordering::Relaxed);
        USED.fetch_add(1, Ordering::AcqRel);
        self.users.store(1, Ordering::Release);
        self.state.store(LIVE, Ordering::Release);
    }
}

/// The entry of a file, with one more user; a new entry if there is none yet.
fn enter(stat: Regular, file_system: FileSystem) -> Option<Number> {
    if let Some(number) = find(stat.identity) {
        return Some(number);
    }
    if let Some(number) = own_descriptor::take_kept(stat.identity) {
        number.file().begin(stat, file_system);
        return Some(number);
    }
    // Two threads that open the same file start at the same place, and so find each other's entry.
    let mixed = stat.identity.ino.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    let home = usize::try_from(mixed).unwrap_or(0);
    for step in 0..FILES {
        let place = home.wrapping_add(step).checked_rem(FILES).unwrap_or(0);
        let number = Number(u8::try_from(place.saturating_add(1)).ok()?);
        let file = number.file();
        let taken = file
            .state
            .compare_exchange(FREE, BUSY, Ordering::AcqRel, Ordering::Acquire);
        match taken {
            Ok(_) => {
                file.own.store(0, Ordering::Relaxed);
                file.begin(stat, file_system);
                return Some(number);
            }
            Err(state) => {
                let mut state = state;
                // Another thread is filling the entry. A signal handler may have interrupted that
                // very thread, so the wait is limited; then the file gets a second entry.
                for _ in 0..1000 {
                    if state != BUSY {
                        break;
                    }
                    core::hint::spin_loop();
                    state = file.state.load(Ordering::Acquire);
                }
                if state == LIVE && file.identity() == stat.identity && number.acquire() {
                    return Some(number);
                }
            }
        }
    }
    None
}

/// The entry of a file, with one more user. None: the file has no entry.
fn find(identity: Identity) -> Option<Number> {
    if !any() {
        return None;
    }
    Number::all().find(|number| {
        let file = number.file();
        let same = || file.identity() == identity;
        let live = || file.state.load(Ordering::Acquire) == LIVE;
        if !(live() && same() && number.acquire()) {
            return false;
        }
        // The entry may have become another file's between the check and the count.
        if same() {
            return true;
        }
        number.release(None);
        false
    })
}

/// Records that a descriptor of a model file was opened.
pub(super) fn opened(fd: Descriptor, stat: Regular, file_system: FileSystem) -> Option<Number> {
    let hint = new_hint(fd)?;
    let number = enter(stat, file_system)?;
    let old = hint.set(number);
    hints::raise_highest(fd);
    if let Some(old) = old {
        // It was closed in a way that bypasses the hooks.
        old.release(None);
    }
    Some(number)
}

/// The file that a descriptor is open on, with one more user, which keeps the entry.
pub(super) fn acquire(fd: Descriptor) -> Option<Number> {
    let number = hinted_at(fd)?;
    if !number.acquire() {
        return None;
    }
    if number.file().is(fd) {
        return Some(number);
    }
    number.release(None);
    None
}

/// Records that a descriptor is about to be closed.
pub(super) fn closing(fd: Descriptor) {
    let Some(hint) = hint(fd) else { return };
    let Some(number) = hint.take() else { return };
    let still = number.file().is(fd);
    number.release(still.then_some(fd));
}

/// Records a duplicate of a descriptor.
pub(super) fn duplicated(from: Descriptor, to: Descriptor) {
    let Some(hint) = new_hint(to) else { return };
    let Some(number) = acquire(from) else { return };
    let old = hint.set(number);
    hints::raise_highest(to);
    if let Some(old) = old {
        old.release(None);
    }
}

/// Forgets the descriptors that are no longer open on a file: they would keep it in use.
pub(super) fn sweep(number: Number) {
    for fd in hinted(0, u32::MAX) {
        let Some(hint) = hint(fd) else { continue };
        if hint.forget(number, || !number.file().is(fd)) {
            number.release(None);
        }
    }
}

/// Marks all files as inherited, in a forked child.
pub(super) fn inherit() {
    for file in &TABLE {
        match file.state.load(Ordering::Acquire) {
            LIVE => {
                file.inherited.store(1, Ordering::Release);
                // A thread of the parent was opening it; it does not exist in this process.
                let (set, seen) = (Ordering::AcqRel, Ordering::Relaxed);
                let _ = file.own.compare_exchange(OPENING, 0, set, seen);
            }
            // Another such thread was filling it.
            BUSY => file.state.store(FREE, Ordering::Release),
            _ => {}
        }
    }
}
