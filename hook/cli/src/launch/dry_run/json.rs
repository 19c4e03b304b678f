//! The plan of a run as JSON.
//! Touches: its arguments.

use super::Preview;
use crate::base::json;
use crate::base::text::escaped_path;
use crate::driver::sim;
use gpuslice_config::words::paths;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

/// The plan; the keys come in this order.
#[derive(Serialize)]
struct Plan {
    command: Vec<String>,
    library: Option<String>,
    environment: BTreeMap<String, Option<String>>,
    slice_file: Option<String>,
    writes_slice_file: bool,
    slice: Option<serde_json::Value>,
    promise: Option<u64>,
    limits: Vec<Limit>,
    fence: Option<&'static str>,
    driver_queried: bool,
}

/// The limit of one GPU, as it is recorded for other slices.
#[derive(Serialize)]
struct Limit {
    device: String,
    limit: u64,
}

impl Preview {
    /// Returns the plan as JSON.
    ///
    /// # Errors
    /// When it cannot be serialized.
    pub(crate) fn to_json(&self) -> serde_json::Result<String> {
        let text = |text: &OsStr| escaped_path(Path::new(text));
        let vars = self.plan.vars.iter();
        let mut environment: BTreeMap<String, Option<String>> = vars
            .map(|(name, value)| (text(name), value.as_deref().map(text)))
            .collect();
        let name = |name: &std::ffi::CStr| name.to_string_lossy().into_owned();
        if let Some(state) = &self.state {
            environment.insert(sim::STATE.to_owned(), Some(escaped_path(state)));
        }
        let file = self.file.as_deref().map(escaped_path);
        environment.insert(name(paths::CONFIG), file.clone());
        let slice = self.plan.slice.as_ref();
        let slice = slice.map(|slice| serde_json::from_str(&slice.to_json()));
        let limits = self.admitted.budgets.iter().map(|budget| Limit {
            device: budget.uuid.to_string(),
            limit: budget.memory.get(),
        });
        json::document(&Plan {
            command: self.command.iter().map(|word| text(word)).collect(),
            library: self.plan.library.as_deref().map(escaped_path),
            environment,
            slice_file: file,
            writes_slice_file: self.plan.writes_file(),
            slice: slice.transpose()?,
            promise: self.promise.as_ref().map(|(_, memory)| memory.get()),
            limits: limits.collect(),
            fence: self.plan.writes_file().then(|| self.plan.fence.name()),
            driver_queried: self.is_queried,
        })
    }
}
