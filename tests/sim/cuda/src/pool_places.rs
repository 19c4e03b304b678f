//! The pools of a location and an allocation type (CUDA 13).
//! Touches: this process's pools.

use crate::abi::*;
use crate::driver::driver;
use crate::managed::Location;
use crate::pool::{Place, current_pool, default_pool};

/// The location, as one that other names of it equal: only these types have an id.
fn place(location: Location, kind: i32) -> Place {
    let Location { kind: at, id } = location;
    Place {
        kind,
        location: at,
        id: if matches!(at, 1 | 3 | 6) { id } else { 0 },
    }
}

cuda! {
    fn cuMemGetDefaultMemPool(out: Out<Handle>, location: In<Location>, kind: i32) {
        let driver = driver()?;
        let place = place(location.get()?, kind);
        out.set(default_pool(driver, &mut driver.state(), place)?)
    }

    fn cuMemGetMemPool(out: Out<Handle>, location: In<Location>, kind: i32) {
        let driver = driver()?;
        let place = place(location.get()?, kind);
        let mut state = driver.state();
        out.set(match place == Place::on(place.id) {
            true => current_pool(driver, &mut state, place.id)?,
            false => default_pool(driver, &mut state, place)?,
        })
    }
}
