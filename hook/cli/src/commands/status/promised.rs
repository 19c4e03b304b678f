//! Reads the promises of unified memory. Each folder is read once per snapshot.
//! Touches: the promises' folders, meminfo.

use super::model::PromiseStatus;
use super::users::User;
use crate::runs::admission::{Neighbour, Room};
use crate::runs::host_memory;
use crate::runs::promise::Promises;
use crate::runs::run_dir;
use gpuslice_config::host::meminfo::HostMemory;
use gpuslice_config::promises;
use gpuslice_config::slice::Slice;
use gpuslice_config::slice::host_reserve;
use gpuslice_config::words::units::Bytes;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The promises in one folder.
#[derive(Debug)]
struct Folder {
    /// The budget and its unused part, by the slice's id.
    held: BTreeMap<String, (Bytes, Bytes)>,
    neighbours: Vec<Neighbour>,
}

/// The folders that were read.
#[derive(Debug, Default)]
pub(super) struct Promised {
    folders: RefCell<BTreeMap<PathBuf, Option<Rc<Folder>>>>,
    hosts: RefCell<BTreeMap<PathBuf, Option<HostMemory>>>,
}

impl Promised {
    /// Returns the promise of a slice; None if it has none.
    pub(super) fn of(&self, slice: &Slice, file: PathBuf, user: User) -> Option<PromiseStatus> {
        let (_, id) = file.file_name()?.to_str()?.split_once('.')?;
        let meminfo = run_dir::hosts_meminfo(slice);
        // Only a slice on a simulated machine names a meminfo of its own, and no containers run there.
        let simulated = meminfo.is_some();
        let folder = self.folder(file.parent()?, user, simulated)?;
        let (budget, unused) = *folder.held.get(id)?;
        // The slice file has the name of the start. A resize has renamed the promise.
        let name = promises::file_name(budget, id)?;
        let meminfo = meminfo.unwrap_or_else(|| host_memory::MEMINFO.into());
        // Another user's slice file may name any file as its meminfo, even a pipe without a writer.
        let is_known = user == User::own() || meminfo == Path::new(host_memory::MEMINFO);
        let host = is_known.then(|| self.host(&meminfo)).flatten();
        let left = host.map(|host| {
            let reserve = slice.reserve;
            let reserve = reserve.unwrap_or(host_reserve::default_reserve(host.total));
            Room::on(&host, reserve, folder.neighbours.clone())
                .left()
                .get()
        });
        Some(PromiseStatus {
            budget: budget.get(),
            spent: budget.minus(unused).get(),
            unused: unused.get(),
            host_available: host.map(|host| host.available.get()),
            host_left: left,
            file: file.with_file_name(name),
        })
    }

    fn host(&self, meminfo: &Path) -> Option<HostMemory> {
        let known = self.hosts.borrow().get(meminfo).copied();
        known.unwrap_or_else(|| {
            let host = host_memory::read(meminfo).ok();
            self.hosts.borrow_mut().insert(meminfo.to_owned(), host);
            host
        })
    }

    fn folder(&self, path: &Path, user: User, simulated: bool) -> Option<Rc<Folder>> {
        let known = self.folders.borrow().get(path).cloned();
        known.unwrap_or_else(|| {
            let folder = read(path, user, simulated).map(Rc::new);
            let mut folders = self.folders.borrow_mut();
            folders.insert(path.to_owned(), folder.clone());
            folder
        })
    }
}

fn read(path: &Path, user: User, simulated: bool) -> Option<Folder> {
    let neighbours = match user == User::own() {
        // As admission counts them, with those of containers.
        true => Promises::beside(&path.join("own"), simulated).standing(),
        // Another user's promises are only read, because only their owner may remove them.
        false => {
            let held = promises::read_folder(path).ok()?;
            let all = held.into_iter().map(|held| Neighbour {
                name: held.slice,
                budget: held.budget,
                unused: held.unused,
            });
            all.collect()
        }
    };
    let held = promises::read_folder(path).ok()?;
    let held = held
        .into_iter()
        .map(|held| (held.slice, (held.budget, held.unused)));
    Some(Folder {
        held: held.collect(),
        neighbours,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_folder_of_promises_is_read_once_for_all_slices() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("promises");
        fs::create_dir(&folder).unwrap();
        let meminfo = place.path().join("meminfo");
        fs::write(
            &meminfo,
            "MemTotal: 64 kB\nMemFree: 32 kB\nMemAvailable: 48 kB\n",
        )
        .unwrap();
        let file = |id: &str| {
            let name = promises::file_name(Bytes::gib(1), id).unwrap();
            folder.join(name)
        };
        for id in ["one", "two"] {
            fs::write(file(id), [0; promises::SIZE]).unwrap();
        }
        let text = format!("{{\"version\":1,\"meminfo\":{meminfo:?}}}");
        let slice = gpuslice_config::slice::parse(text.as_bytes()).unwrap();
        let promised = Promised::default();
        let budget = |id: &str| promised.of(&slice, file(id), User::own()).unwrap().budget;
        assert_eq!(budget("one"), 1 << 30);
        fs::remove_dir_all(&folder).unwrap();
        fs::remove_file(&meminfo).unwrap();
        assert_eq!(budget("two"), 1 << 30);
    }
}
