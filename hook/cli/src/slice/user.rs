//! The owners of slices, and the rights of one user for files.
//! Touches: the machine's list of users; the rights of the calling thread over files.

use nix::unistd::{Gid, Uid, geteuid, setfsgid, setfsuid};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// A user, by user id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User(pub(crate) u32);

impl User {
    /// The user who runs the command.
    pub(crate) fn own() -> User {
        User(geteuid().as_raw())
    }

    /// Returns the user's name, or the user id if there is no name.
    pub(crate) fn name(self) -> String {
        let known = self.account().map(|account| account.name);
        known.unwrap_or_else(|| self.0.to_string())
    }

    /// Looks the user up, once in each process of gpuslice.
    fn account(self) -> Option<Account> {
        static KNOWN: Mutex<BTreeMap<u32, Option<Account>>> = Mutex::new(BTreeMap::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let account = known.entry(self.0).or_insert_with(|| {
            let found = nix::unistd::User::from_uid(Uid::from_raw(self.0));
            let found = found.ok().flatten();
            found.map(|user| Account {
                name: user.name,
                group: user.gid,
            })
        });
        account.clone()
    }
}

/// A user's entry in the machine's list of users.
#[derive(Clone, Debug)]
struct Account {
    name: String,
    group: Gid,
}

impl Serialize for User {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&self.name())
    }
}

/// Runs code that depends on another user's files, with only that user's rights.
pub(crate) fn with_rights_of<T>(user: User, doing: impl FnOnce() -> T) -> T {
    let own = User::own();
    if user == own || own != User(0) {
        return doing();
    }
    // If the user is unknown, a group without members is used.
    let group = user
        .account()
        .map_or(Gid::from_raw(user.0), |account| account.group);
    // These calls affect this thread only, and remove root's capabilities over files.
    let groups = setfsgid(group);
    let users = setfsuid(Uid::from_raw(user.0));
    let done = doing();
    setfsuid(users);
    setfsgid(groups);
    done
}
