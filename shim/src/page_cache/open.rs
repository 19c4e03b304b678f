//! Tests whether files that programs open are models, and finds the slice's policy for them.
//! Touches: the slice, once; the kernel, for files that are large and named like a model's.
//! Law: a file that is no model costs a look at the end of its name.

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use gpuslice_config::slice::{ModelFiles, PageCache};

use super::file_systems::FileSystem;
use super::quiesce::InFlight;
use super::{file_names, files, range_locks};
use crate::log::Piece::{Raw, Str};
use crate::log::{self, Level};
use crate::slice::{self, loaded_slice::LoadedSlice};
use crate::sys::file_calls::{self, Descriptor};
use crate::sys::stack;

/// The slice's policy.
static WISH: AtomicU8 = AtomicU8::new(NOT_ASKED);
const NOT_ASKED: u8 = 0;
const KEEP: u8 = 1;
const DROP: u8 = 2;
const DROP_BEHIND: u8 = 3;

/// The file size from which the slice is read, when such a file whose name has a suffix is opened.
const LARGE: u64 = 1 << 20;
/// The number of smaller files after which the slice is read too: querying further sizes costs
/// more.
const MANY: u32 = 16;

/// Whether a file opened by this path may be a model.
#[inline(always)]
pub(crate) fn matters(path: &[u8]) -> bool {
    match WISH.load(Ordering::Acquire) {
        KEEP => false,
        NOT_ASKED => file_names::may_have_suffix(path),
        _ => file_names::ends().may_be_of(path),
    }
}

/// Whether model files are dropped.
#[inline(always)]
pub(crate) fn drops() -> bool {
    WISH.load(Ordering::Relaxed) > KEEP
}

/// Handles a descriptor opened by a path that `matters`.
#[cold]
#[inline(never)]
pub(crate) fn opened(path: &[u8], fd: i32) {
    match WISH.load(Ordering::Relaxed) {
        KEEP => {}
        NOT_ASKED => first(path, fd),
        _ => {
            if let Some(models) = models()
                && models.has_name(path)
            {
                model_opened(models, path, Descriptor(fd));
            }
        }
    }
}

fn models() -> Option<&'static ModelFiles> {
    slice::current().map(LoadedSlice::model_files)
}

/// Reads the slice on the first file that may matter. Most programs open only small files, and end
/// before the slice would have been read.
fn first(path: &[u8], fd: i32) {
    static SEEN: AtomicU32 = AtomicU32::new(0);
    if !file_names::is_plausible(path) {
        return;
    }
    let Some(_in_flight) = InFlight::begin() else {
        return;
    };
    let large = file_calls::stat(Descriptor(fd)).is_some_and(|stat| stat.size >= LARGE);
    if !large && SEEN.fetch_add(1, Ordering::Relaxed) < MANY {
        return;
    }
    // Reading the slice takes more stack than a signal handler may have.
    let wish = stack::on_a_large_one(wish, core::ptr::null_mut()).unwrap_or(KEEP);
    if let Some(models) = models() {
        file_names::keep(models.ends());
    }
    WISH.store(wish, Ordering::Release);
    if wish != KEEP {
        opened(path, fd);
    }
}

extern "C" fn wish(_: *mut core::ffi::c_void) -> u8 {
    match slice::current().map(LoadedSlice::page_cache) {
        None | Some(PageCache::Keep) => KEEP,
        Some(PageCache::Drop) => DROP,
        Some(PageCache::DropBehind) => DROP_BEHIND,
    }
}

#[cold]
#[inline(never)]
fn model_opened(models: &ModelFiles, path: &[u8], fd: Descriptor) {
    let Some(_in_flight) = InFlight::at_own_files() else {
        return;
    };
    let Some(access) = file_calls::access(fd).filter(|access| access.reads) else {
        return;
    };
    let Some(stat) = file_calls::stat(fd) else {
        return;
    };
    if stat.size < models.smallest.get() {
        return;
    }
    let file_system = FileSystem::numbered(file_calls::file_system(fd));
    if file_system == FileSystem::Memory {
        let line = [
            Raw(path),
            Str(" is stored in memory (tmpfs or similar) and cannot be evicted"),
        ];
        log::say(Level::Info, &line, None);
        return;
    }
    if let Some(number) = files::opened(fd, stat, file_system) {
        if access.writes {
            number.file().may_be_written();
        }
        range_locks::begins(number, fd);
    }
}

/// Whether the processes of several slices share the ranges that they still need.
pub(super) fn shares() -> bool {
    slice::current().is_some_and(LoadedSlice::shares_page_cache)
}

/// Whether pages are dropped while files are loaded.
pub(super) fn drops_behind() -> bool {
    WISH.load(Ordering::Relaxed) == DROP_BEHIND
}
