//! Model files on network file systems are evicted, without a query to a lock manager.
//! Touches: `tests/clients/c/network_files.c`, which reports NFS as the file system of all files;
//! model files of 256 MiB.

use file_systems::FileSystem;
use gpuslice_suite::cache::{Models, evict, slice_file};
use gpuslice_suite::compile::c;
use gpuslice_suite::run::Run;
use std::path::Path;

#[path = "../../../../../shim/src/page_cache/file_systems.rs"]
mod file_systems;

/// The output of a program for which all files are on NFS, and of the requests for locks on `model`.
fn on_nfs(program: &str, words: &[&Path], model: &Path, slice: &Path) -> String {
    let run = Run::new(c("network_files")).arg(model).arg(c(program));
    let run = run.args(words).with_shim().slice(slice);
    run.answer().clean()
}

/// `mmap` hung where the lock manager of NFSv3 could not be reached.
#[test]
fn a_model_on_nfs_is_evicted_and_no_lock_is_queried() {
    let models = Models::of(256);
    let folder = tempfile::tempdir().unwrap();
    for mode in ["drop", "drop-behind"] {
        for shared in ["false", "true"] {
            let keys = format!("\"page_cache\":\"{mode}\",\"page_cache_share\":{shared}");
            let slice = slice_file(folder.path(), &keys);
            let model = models.cold("model.bin");
            let words = [Path::new("fragments"), &model];
            let said = on_nfs("loader", &words, &model, &slice);
            let start = "before the last fragment: some\nafter the last fragment: none\nsum ";
            assert!(said.starts_with(start), "{mode}, shared: {shared}: {said}");
        }
    }
}

#[test]
fn a_programs_locks_on_nfs_stay_what_they_are() {
    let models = Models::of(256);
    let folder = tempfile::tempdir().unwrap();
    let slice = slice_file(folder.path(), "\"page_cache\":\"drop\"");
    let model = models.copy("locked.bin", "model.bin");
    let cases = [
        ("model_locks", "writer"),
        ("model_locks", "threads"),
        ("loader", "locks"),
    ];
    for (program, case) in cases {
        evict(&model);
        let words = [Path::new(case), &model, &model];
        let bare = Run::new(c(program)).args(words).answer().clean();
        let said = on_nfs(program, &words, &model, &slice);
        assert_eq!(said, bare.replace(": all\n", ": none\n"), "{case}");
    }
}

/// The numbers are those of linux/magic.h and of the sources of the file systems.
#[test]
fn locks_are_queried_on_known_local_file_systems_only() {
    let kinds = [
        ("tmpfs", 0x0102_1994, FileSystem::Memory),
        ("ramfs", 0x8584_58f6, FileSystem::Memory),
        ("hugetlbfs", 0x9584_58f6, FileSystem::Memory),
        ("ext4", 0xef53, FileSystem::Local),
        ("xfs", 0x5846_5342, FileSystem::Local),
        ("btrfs", 0x9123_683e, FileSystem::Local),
        ("overlayfs", 0x794c_7630, FileSystem::Local),
        ("zfs", 0x2fc1_2fc1, FileSystem::Local),
        ("fuse", 0x6573_5546, FileSystem::Fuse),
        ("nfs", 0x6969, FileSystem::Network),
        ("smb", 0x517b, FileSystem::Network),
        ("cifs", 0xff53_4d42, FileSystem::Network),
        ("smb2", 0xfe53_4d42, FileSystem::Network),
        ("9p", 0x0102_1997, FileSystem::Network),
        ("ceph", 0x00c3_6400, FileSystem::Network),
        ("lustre", 0x0bd0_0bd0, FileSystem::Network),
        ("afs", 0x5346_414f, FileSystem::Network),
        ("kafs", 0x6b41_4653, FileSystem::Network),
        ("gfs2", 0x0116_1970, FileSystem::Network),
        ("ocfs2", 0x7461_636f, FileSystem::Network),
        ("gpfs", 0x4750_4653, FileSystem::Network),
        ("beegfs", 0x1983_0326, FileSystem::Network),
        ("coda", 0x7375_7245, FileSystem::Network),
        ("not told", 0, FileSystem::Network),
    ];
    for (name, number, kind) in kinds {
        assert_eq!(FileSystem::numbered(number), kind, "{name}");
    }
}
