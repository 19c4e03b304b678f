//! Runs a child along every route and collects the answers.
//! Touches: its own children, through `children`.

use super::answers::AskedRow;
use super::children::{End, Linked, Starter};
use super::query::apis;
use super::query::codes;
use super::query::lookup;
use super::query::routes::{self, Route};
use super::query::row::{Event, NoContext, Reading, Row, Skipped};
use super::timeout::Timeout;
use super::verdict::NO_DEVICE;
use crate::driver::ask::QUIET;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::time::Instant;

/// The answers of all children.
#[derive(Clone, Debug, Default)]
pub(super) struct Survey {
    /// The answers, in the order of arrival.
    pub(super) asked: Vec<AskedRow>,
    /// The queries that were not made.
    pub(super) skipped: Vec<Skipped>,
    /// The devices and their names.
    pub(super) devices: Vec<(String, String)>,
    /// The GPUs that MIG divides. Their instances are compared in their place.
    pub(super) parents: Vec<String>,
    /// For each route that ran, the libgpuslice.so that its child had loaded.
    pub(super) shims: Vec<(&'static str, Option<String>)>,
    /// The devices whose memory changed during the queries. An answer about them without a
    /// yardstick has no known moment.
    pub(super) unplaced: Vec<String>,
    /// The routes that could not create a context on a device.
    pub(super) no_context: Vec<NoContext>,
    /// The functions that no route could query because an earlier call failed.
    pub(super) refused: Vec<Skipped>,
    /// The driver libraries that cannot be loaded, and the reasons.
    missing: BTreeMap<String, String>,
    /// The number of consecutive routes whose child did not finish.
    silent: usize,
    /// The functions that a route could not query.
    unanswered: Vec<Skipped>,
}

const LIBRARIES: [&str; 2] = [apis::CUDA, apis::NVML];

impl Survey {
    /// Queries every function by every route. `vars` are set or removed in the children's
    /// environment.
    pub(super) fn make(
        vars: &[(OsString, Option<OsString>)],
        mut timeout: Timeout,
    ) -> anyhow::Result<Survey> {
        let linked = Linked::create()?;
        let mut survey = Survey::default();
        for route in routes::all() {
            progress(&format!("asking by {}", route.name()));
            let starter = Starter {
                // A driver that refuses every query prints the reason each time, so only the first
                // print is shown.
                is_heard: survey.shims.is_empty() || !survey.asked.is_empty(),
                linked: &linked,
                vars,
                timeout: timeout.of_next(),
                quiet: QUIET,
                tell: &tell,
                has_cuda: survey.has(LIBRARIES[0]),
                has_nvml: survey.has(LIBRARIES[1]),
            };
            let started = Instant::now();
            let (events, end) = starter.ask(route)?;
            timeout.took(started.elapsed());
            for event in events {
                survey.take(event, route);
            }
            match end {
                End::Done => survey.silent = 0,
                End::Early(how, doing) => survey.failed(route, &doing, how),
            }
            if survey.no_driver() {
                break;
            }
            if survey.silent >= timeout.gives_up_after() {
                survey.give_up_after(route);
                break;
            }
        }
        progress("");
        survey.settle_unanswered();
        survey.place();
        Ok(survey)
    }

    /// Returns the routes that ran and query CUDA or NVML.
    pub(super) fn routes(&self) -> impl Iterator<Item = &'static str> {
        let all = self.shims.iter().map(|(route, _)| *route);
        all.filter(|route| !Route::parse(route).is_ok_and(Route::is_other_api))
    }

    fn has(&self, library: &str) -> bool {
        !self.missing.contains_key(library)
    }

    /// Checks whether neither driver library can be loaded.
    fn no_driver(&self) -> bool {
        self.missing.len() == LIBRARIES.len()
    }

    /// Returns the driver libraries that cannot be loaded, and the reasons.
    pub(super) fn missing(&self) -> impl Iterator<Item = (&str, &str)> {
        let missing = self.missing.iter();
        missing.map(|(library, why)| (library.as_str(), why.as_str()))
    }

    /// Returns one line with the reason why no function answers by any route. Returns None if a
    /// function answers, or if a child has crashed or hung.
    pub(super) fn why_nothing_answers(&self) -> Option<String> {
        if self.no_driver() {
            let reasons: Vec<&str> = self.missing.values().map(String::as_str).collect();
            return Some(format!("no NVIDIA driver here: {}", reasons.join("; ")));
        }
        // Vulkan and OpenCL alone are no basis for a comparison.
        let mut asked = self.asked.iter();
        if asked.any(|asked| !asked.row.is_of_other_api()) {
            return None;
        }
        let refusals: Vec<String> = LIBRARIES
            .iter()
            .filter_map(|library| match self.missing.get(*library) {
                Some(why) => Some(format!("{library} cannot be loaded ({why})")),
                None => self.refusal(library),
            })
            .collect();
        Some(match refusals.len() {
            0 => "the NVIDIA driver lists no GPU here".to_owned(),
            _ => format!("the NVIDIA driver does not work: {}", refusals.join(", ")),
        })
    }

    /// Returns the error with which the driver refused every function of that library.
    fn refusal(&self, library: &str) -> Option<String> {
        let mut skipped = self.skipped.iter();
        let skipped = skipped.find(|row| row.api != "*" && apis::library(&row.api) == library)?;
        Some(codes::answers(&skipped.why))
    }

    fn take(&mut self, event: Event, route: Route) {
        match event {
            Event::Library { name, error } => {
                self.missing.extend(error.map(|error| (name, error)));
            }
            Event::Shim(path) => self.shims.push((route.name(), path)),
            Event::Device { uuid, name } => {
                if !self.devices.iter().any(|(known, _)| *known == uuid) {
                    self.devices.push((uuid, name));
                }
            }
            Event::Parent(uuid) => {
                if !self.parents.contains(&uuid) {
                    self.parents.push(uuid);
                }
            }
            Event::Row {
                row,
                beside,
                settled,
            } => self.asked.push(AskedRow {
                row,
                beside,
                settled,
            }),
            Event::Unanswered { api, route, why } => {
                let skipped = Skipped { api, route, why };
                self.unanswered.push(skipped);
            }
            Event::Skipped(skipped) => self.skipped.push(skipped),
            Event::NoContext(failed) => {
                let skipped = failed.apis.iter().map(|api| Skipped {
                    api: api.clone(),
                    route: failed.route.clone(),
                    why: format!("{}: no context: {}", failed.device, failed.why),
                });
                self.skipped.extend(skipped);
                self.no_context.push(failed);
            }
            Event::Step(_) | Event::Done => {}
        }
    }

    /// Adds a row for a child that crashed or hung.
    fn failed(&mut self, route: Route, doing: &str, how: String) {
        let skipped = Skipped {
            api: doing.to_owned(),
            route: route.name().to_owned(),
            why: how,
        };
        self.asked.push(no_answer(skipped));
        self.silent = self.silent.saturating_add(1);
    }

    fn give_up_after(&mut self, last: Route) {
        let many = match self.silent {
            1 => "the first route".to_owned(),
            silent => format!("{silent} routes in a row"),
        };
        for route in routes::all().skip_while(|route| *route != last).skip(1) {
            self.skipped.push(Skipped {
                api: "*".to_owned(),
                route: route.name().to_owned(),
                why: format!("{many} gave no answer"),
            });
        }
    }

    /// Determines the moment of answers from drivers in a namespace of their own. Their yardstick
    /// is NVML's. It is usable if NVML's free equals CUDA's. Otherwise, if the device was quiet,
    /// the yardstick value of all other routes is used.
    fn place(&mut self) {
        for (uuid, _) in &self.devices {
            let is_apart =
                |asked: &AskedRow| Route::parse(&asked.row.route).is_ok_and(Route::is_apart);
            let of_device = self
                .asked
                .iter_mut()
                .filter(|asked| asked.row.device == *uuid);
            let (apart, others): (Vec<_>, Vec<_>) = of_device.partition(|asked| is_apart(asked));
            let mut said = others.iter().filter_map(|asked| asked.beside);
            let first = said.next();
            let quiet = said.all(|beside| Some(beside) == first);
            let nvml_tells = others.iter().any(|asked| {
                let same = asked.beside.is_some() && asked.row.reading.free == asked.beside;
                same && asked.row.api == apis::NVML_YARDSTICK
            });
            for asked in apart {
                if !nvml_tells {
                    asked.beside = first.filter(|_| quiet);
                }
                let moves = asked.row.reading.free.is_some() && !quiet;
                if moves && asked.beside.is_none() && !self.unplaced.contains(uuid) {
                    self.unplaced.push(uuid.clone());
                }
            }
        }
    }

    /// Judges functions that a route could not query. If no route finds the function, this driver
    /// does not have it. If one route finds it, all routes must.
    fn settle_unanswered(&mut self) {
        for mut skipped in std::mem::take(&mut self.unanswered) {
            if let Some(why) = self.missing.get(apis::library(&skipped.api)) {
                skipped.why.clone_from(why);
            }
            if is_absence(&skipped) {
                "*".clone_into(&mut skipped.api);
            } else if self.is_reached(&skipped.api) {
                self.asked.push(no_answer(skipped));
                continue;
            } else {
                self.withdraw(&skipped);
                self.refuse(&skipped);
            }
            if !self.skipped.contains(&skipped) {
                self.skipped.push(skipped);
            }
        }
    }

    /// Records a function that cannot be queried because an earlier call failed.
    fn refuse(&mut self, unanswered: &Skipped) {
        let is_missing = self.missing.contains_key(apis::library(&unanswered.api));
        if !is_missing && codes::is_named(&unanswered.why) && !self.refused.contains(unanswered) {
            self.refused.push(unanswered.clone());
        }
    }

    /// Checks whether a function could not be queried because a context was missing.
    pub(super) fn lacks_context(&self, skipped: &Skipped) -> bool {
        let mut failed = self.no_context.iter();
        failed.any(|failed| failed.route == skipped.route && failed.apis.contains(&skipped.api))
    }

    fn is_reached(&self, api: &str) -> bool {
        let mut asked = self.asked.iter();
        asked.any(|asked| asked.row.api == api && asked.row.error.is_none())
    }

    /// Moves the errors of a function that the driver does not have to the skipped queries. A
    /// program linked to that function finds the export of libgpuslice.so instead, which can only
    /// return an error.
    fn withdraw(&mut self, missing: &Skipped) {
        if !missing.why.ends_with(lookup::NOT_FOUND) {
            return;
        }
        let (gone, kept): (Vec<AskedRow>, Vec<AskedRow>) = std::mem::take(&mut self.asked)
            .into_iter()
            .partition(|asked| asked.row.api == missing.api);
        self.asked = kept;
        for AskedRow { row, .. } in gone {
            self.skipped.push(Skipped {
                api: row.api,
                route: row.route,
                why: row.error.unwrap_or_default(),
            });
        }
    }
}

/// Checks whether the route itself does not exist, as on a driver that is older than the route.
fn is_absence(skipped: &Skipped) -> bool {
    skipped.why.starts_with("the driver has no ")
}

fn no_answer(skipped: Skipped) -> AskedRow {
    AskedRow {
        row: Row {
            device: NO_DEVICE.to_owned(),
            api: skipped.api,
            route: skipped.route,
            reading: Reading::default(),
            error: Some(skipped.why),
        },
        beside: None,
        settled: true,
    }
}

/// Prints a line to the user, in place of the progress line on a terminal.
fn tell(line: &str) {
    progress("");
    crate::base::streams::tell(line);
}

/// Shows the current step on a terminal, because some drivers take seconds for each route.
fn progress(what: &str) {
    let mut out = io::stderr();
    if out.is_terminal() {
        // A failure to write the progress is ignored.
        let _ = write!(out, "\r\x1b[K{what}").and_then(|()| out.flush());
    }
}
