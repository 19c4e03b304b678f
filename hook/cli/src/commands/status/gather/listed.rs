//! Lists the running slices, and reads what the drivers' answers do not change.
//! Touches: everything `users`, `containers`, `files` and `process` touch.

use crate::commands::status::containers;
use crate::commands::status::files::{self, Files};
use crate::commands::status::model::SliceStatus;
use crate::commands::status::process::{self, Processes, Start};
use crate::commands::status::users::{self, User, with_rights_of};
use crate::runs::run_dir;
use crate::slice::current as current_slice;
use gpuslice_host::base::paths::HostPaths;
use std::fs;
use std::path::PathBuf;

/// A running slice whose files have not been read yet.
#[derive(Debug)]
pub(super) struct ListedSlice {
    pub(super) file: PathBuf,
    /// A run's link in its user's registry, if that is visible.
    pub(super) link: Option<PathBuf>,
    /// The user; None in a container.
    pub(super) user: Option<User>,
    pub(super) pid: Option<i32>,
    /// The moment of its registration, in seconds since 1970.
    pub(super) registered: Option<u64>,
    pub(super) container: Option<containers::ContainerSlice>,
}

/// The part of a slice's state that the drivers' answers do not change.
pub(super) struct ReadSlice {
    pub(super) start: Option<Start>,
    pub(super) command: Option<Vec<String>>,
    pub(super) files: Files,
}

impl ListedSlice {
    /// Returns the command's process.
    pub(super) fn pid(&self) -> Option<u32> {
        u32::try_from(self.pid?).ok()
    }

    /// Returns the user with whose rights its files are read.
    pub(super) fn rights(&self) -> User {
        self.user.unwrap_or_else(User::own)
    }

    /// Checks whether a run has ended since it was listed. Its link is renamed before its files are
    /// removed.
    pub(super) fn has_ended(&self) -> bool {
        match &self.link {
            Some(link) => fs::read_link(link).map_or(true, |file| file != self.file),
            None => run_dir::private_folder(&self.file).is_some_and(|folder| !folder.exists()),
        }
    }

    /// Returns the start of the command; that of the registration if the command has ended.
    fn start(&self, processes: &Processes) -> Option<Start> {
        let command = self.pid().and_then(|pid| processes.start(pid));
        command.or_else(|| self.registered.map(Start::at))
    }

    /// Returns the command of a slice. Only its user and root are shown it.
    fn command(&self) -> Option<Vec<String>> {
        let own = User::own();
        let is_shown = own == User(0) || self.user == Some(own);
        let pid = self.pid().filter(|_| is_shown);
        pid.and_then(process::command_line)
    }

    /// Returns the file with the variables that `gpuslice env` has printed, if that command has made
    /// the slice for this user.
    pub(super) fn printed(&self) -> Option<PathBuf> {
        let is_own = self.user == Some(User::own());
        let folder = run_dir::private_folder(&self.file).filter(|_| is_own)?;
        Some(folder.join(run_dir::PRINTED)).filter(|file| file.exists())
    }
}

/// Returns the slices, and those that are known but cannot be read.
pub(super) fn find(
    places: &HostPaths,
    processes: &Processes,
) -> (Vec<ListedSlice>, Vec<SliceStatus>) {
    if let Some(file) = current_slice::mounted() {
        let mounted = ListedSlice {
            file,
            link: None,
            user: None,
            pid: None,
            registered: None,
            container: None,
        };
        return (vec![mounted], Vec::new());
    }
    let runs = users::runs(processes).into_iter().map(|run| ListedSlice {
        file: run.file,
        link: run.link,
        user: Some(run.user),
        pid: run.pid,
        registered: run.registered,
        container: None,
    });
    let (held, damaged, unlisted) = match containers::held(places) {
        Ok((held, damaged)) => (held, damaged, None),
        Err(error) => {
            let error = format!("{:#}", anyhow::Error::new(error));
            (Vec::new(), Vec::new(), Some(error))
        }
    };
    let unlisted = unlisted.map(|error| SliceStatus {
        error: Some(error),
        file: places.slices(),
        ..SliceStatus::default()
    });
    let of_containers = held.into_iter().map(|held| ListedSlice {
        file: held.file.clone(),
        link: None,
        user: Some(User(0)),
        pid: match held.may_have_ended {
            true => None,
            false => held.containers.first().map(|container| container.pid),
        },
        registered: None,
        container: Some(held),
    });
    let unreadable = damaged.into_iter().map(|damaged| SliceStatus {
        error: Some(damaged.to_string()),
        name: damaged.slice,
        file: damaged.path,
        ..SliceStatus::default()
    });
    let unreadable = unreadable.chain(unlisted);
    (runs.chain(of_containers).collect(), unreadable.collect())
}

impl ReadSlice {
    /// Reads the files of a slice. Its ledger is read, too, so that what /proc says of its
    /// processes is known when the drivers have answered. The ledger's numbers are read after that.
    pub(super) fn read(
        found: &ListedSlice,
        processes: &Processes,
        ledger: &mut Vec<u8>,
    ) -> ReadSlice {
        let unmade = found
            .container
            .as_ref()
            .is_some_and(|held| held.unmade.is_some());
        let mut files = Files::default();
        if !unmade {
            let there = found.container.as_ref().map(|held| &held.files);
            with_rights_of(found.rights(), || {
                files = files::read(&found.file, found.user, there);
                files.read_ledger(found.user, ledger);
            });
        }
        let records = files.figures.take().map(|figures| figures.records);
        if let Some(mapped) = &files.mapped {
            for record in records.iter().flatten() {
                processes.prepare(record.pid, mapped);
            }
        }
        ReadSlice {
            start: found.start(processes),
            command: found.command(),
            files,
        }
    }
}
