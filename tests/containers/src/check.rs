//! What `gpuslice check --json` says inside a container.
//! Touches: a runtime's exec.

use crate::engine::Engine;
use serde_json::Value;

/// Its report.
#[derive(Debug)]
pub struct Check {
    json: Value,
}

impl Check {
    /// Runs it in a container.
    ///
    /// # Panics
    /// When it says nothing that can be read.
    #[must_use]
    pub fn run(engine: &dyn Engine, id: &str) -> Check {
        let done = engine.exec(id, &["/opt/gpuslice", "check", "--json"]);
        let json = serde_json::from_str(&done.out)
            .unwrap_or_else(|error| panic!("{}: {error}: {done:?}", engine.name()));
        Check { json }
    }

    /// Whether all of its answers agree.
    #[must_use]
    pub fn consistent(&self) -> bool {
        self.json["consistent"] == true
    }

    /// The library that is loaded there.
    #[must_use]
    pub fn library(&self) -> Option<&str> {
        self.json["shim"].as_str()
    }

    /// The total of every answer that has one and can tell it whole, without repetitions.
    #[must_use]
    pub fn totals(&self) -> Vec<u64> {
        self.numbers("total")
    }

    /// The free memory, likewise.
    #[must_use]
    pub fn free(&self) -> Vec<u64> {
        self.numbers("free")
    }

    /// How many answers have a total.
    #[must_use]
    pub fn answers(&self) -> usize {
        let rows = self.json["rows"].as_array();
        rows.map_or(0, |rows| {
            rows.iter().filter(|row| row["total"].is_u64()).count()
        })
    }

    /// All that it said.
    #[must_use]
    pub fn json(&self) -> &Value {
        &self.json
    }

    fn numbers(&self, name: &str) -> Vec<u64> {
        let rows = self.json["rows"].as_array().into_iter().flatten();
        // What tells 32 bits tells no large number whole.
        let whole = rows.filter(|row| {
            !matches!(
                row["api"].as_str(),
                Some("cuMemGetInfo" | "cuDeviceTotalMem")
            )
        });
        let mut all: Vec<u64> = whole.filter_map(|row| row[name].as_u64()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}
