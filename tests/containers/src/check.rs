//! Runs `gpuslice check --json` inside a container and reads its report.
//! Touches: the exec of a runtime.

use crate::engine::Engine;
use serde_json::Value;

/// The report.
#[derive(Debug)]
pub struct Check {
    json: Value,
}

impl Check {
    /// Runs the command in a container.
    ///
    /// # Panics
    /// When the output is not JSON.
    #[must_use]
    pub fn run(engine: &dyn Engine, id: &str) -> Check {
        // Its own limit for an answer, 10 s, is for machines that are not busy with other tests.
        let done = engine.exec(id, &["/opt/gpuslice", "check", "--json", "--timeout=60"]);
        let json = serde_json::from_str(&done.out)
            .unwrap_or_else(|error| panic!("{}: {error}: {done:?}", engine.name()));
        Check { json }
    }

    /// Whether all answers in the report agree.
    #[must_use]
    pub fn consistent(&self) -> bool {
        self.json["consistent"] == true
    }

    /// The path of the library that the container has loaded.
    #[must_use]
    pub fn library(&self) -> Option<&str> {
        self.json["shim"].as_str()
    }

    /// The distinct totals of all answers that can express a total without truncation.
    #[must_use]
    pub fn totals(&self) -> Vec<u64> {
        self.numbers("total")
    }

    /// The distinct amounts of free memory, likewise.
    #[must_use]
    pub fn free(&self) -> Vec<u64> {
        self.numbers("free")
    }

    /// The number of answers with a total.
    #[must_use]
    pub fn answers(&self) -> usize {
        let rows = self.json["rows"].as_array();
        rows.map_or(0, |rows| {
            rows.iter().filter(|row| row["total"].is_u64()).count()
        })
    }

    /// The whole report.
    #[must_use]
    pub fn json(&self) -> &Value {
        &self.json
    }

    fn numbers(&self, name: &str) -> Vec<u64> {
        let rows = self.json["rows"].as_array().into_iter().flatten();
        // An answer of 32 bits cannot express a large number.
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
