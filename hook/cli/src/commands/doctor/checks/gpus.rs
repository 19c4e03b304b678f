//! The GPUs that a process's driver lists, each machine queried once.
//! Touches: the driver, in a child.
//! Law: libraries that another user's environment names are never loaded.

use crate::commands::doctor::process::ProcessFacts;
use crate::driver::ask;
use crate::driver::inventory::Inventory;
use crate::driver::sim::{self, Sim};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::time::Duration;

/// The time that a driver is given to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// The variables that lead to a driver.
type Variables = Vec<(OsString, OsString)>;

/// The answers.
#[derive(Debug, Default)]
pub(in super::super) struct Gpus {
    known: RefCell<BTreeMap<Variables, Result<Rc<Inventory>, String>>>,
}

impl Gpus {
    /// Returns the GPUs of a process's machine: this one, or the one that it simulates.
    pub(in super::super) fn of(&self, process: &ProcessFacts) -> Option<Rc<Inventory>> {
        self.ask(simulated(process).unwrap_or_default()).ok()
    }

    /// Returns the GPUs of this machine, or the reason why the driver lists none.
    pub(in super::super) fn here(&self) -> Result<Rc<Inventory>, String> {
        self.ask(Vec::new())
    }

    fn ask(&self, variables: Variables) -> Result<Rc<Inventory>, String> {
        let known = self.known.borrow().get(&variables).cloned();
        known.unwrap_or_else(|| {
            let why = "querying the driver for its GPUs";
            let answer = ask::within(&variables, why, PATIENCE);
            let answer = answer.map(Rc::new).map_err(|error| error.to_string());
            let mut all = self.known.borrow_mut();
            all.insert(variables, answer.clone());
            answer
        })
    }
}

/// Returns the variables of the machine that a process of this user simulates. Its name is looked
/// up in this installation's simulator.
fn simulated(process: &ProcessFacts) -> Option<Variables> {
    let value = |name: &str| process.environment.get(name.as_bytes());
    let machine = value(sim::SIM).filter(|_| process.creds.is_own())?;
    let own = std::env::current_exe().ok()?;
    let found = Sim::find(machine.to_str()?, own.parent()?).ok()?;
    let mut variables = found.vars(None);
    for name in [
        OsStr::from_bytes(sim::STATE.as_bytes()),
        OsStr::new("CUDA_DEVICE_ORDER"),
    ] {
        let value = process.environment.get(name.as_bytes());
        variables.extend(value.map(|value| (name.to_owned(), value.to_owned())));
    }
    Some(variables)
}
