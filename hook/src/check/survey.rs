//! Sends a child along every route and gathers what they tell.
//! Touches: its own children, through `children`.

use super::answers::Asked;
use super::apis;
use super::children::{End, Linked, Starter};
use super::codes;
use super::lookup;
use super::patience::Patience;
use super::routes::{self, Route};
use super::row::{Event, NoContext, Reading, Row, Skipped};
use super::verdict::NO_DEVICE;
use crate::inventory::ask::QUIET;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::time::Instant;

/// What all children told.
#[derive(Clone, Debug, Default)]
pub(super) struct Survey {
    /// The answers, in the order in which they came.
    pub(super) asked: Vec<Asked>,
    /// What was not asked.
    pub(super) skipped: Vec<Skipped>,
    /// The devices and their names.
    pub(super) devices: Vec<(String, String)>,
    /// GPUs of which the instances are compared.
    pub(super) parents: Vec<String>,
    /// For each route that a child went, the library of gpuslice that it had loaded.
    pub(super) shims: Vec<(&'static str, Option<String>)>,
    /// Devices that moved, so that answers without a yardstick have no moment.
    pub(super) unplaced: Vec<String>,
    /// Routes that could make no context on a device.
    pub(super) no_context: Vec<NoContext>,
    /// Functions that no route could ask because a call before them failed.
    pub(super) refused: Vec<Skipped>,
    /// The driver's libraries that cannot be loaded, and why.
    missing: BTreeMap<String, String>,
    /// How many routes in a row have not come to an end.
    silent: usize,
    /// Questions that a route did not get as far as asking.
    unanswered: Vec<Skipped>,
}

const LIBRARIES: [&str; 2] = [apis::CUDA, apis::NVML];

impl Survey {
    /// Asks everything. `vars` are set or removed in the children's environment.
    pub(super) fn make(
        vars: &[(OsString, Option<OsString>)],
        mut patience: Patience,
    ) -> anyhow::Result<Survey> {
        let linked = Linked::create()?;
        let mut survey = Survey::default();
        for route in routes::all() {
            progress(&format!("asking by {}", route.name()));
            let starter = Starter {
                // A driver that refuses everything says why each time that it is asked.
                is_heard: survey.shims.is_empty() || !survey.asked.is_empty(),
                linked: &linked,
                vars,
                patience: patience.of_next(),
                quiet: QUIET,
                tell: &tell,
                has_cuda: survey.has(LIBRARIES[0]),
                has_nvml: survey.has(LIBRARIES[1]),
            };
            let started = Instant::now();
            let (events, end) = starter.ask(route)?;
            patience.took(started.elapsed());
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
            if survey.silent >= patience.gives_up_after() {
                survey.give_up_after(route);
                break;
            }
        }
        progress("");
        survey.settle_unanswered();
        survey.place();
        Ok(survey)
    }

    fn has(&self, library: &str) -> bool {
        !self.missing.contains_key(library)
    }

    /// Whether neither library of the driver can be loaded.
    fn no_driver(&self) -> bool {
        self.missing.len() == LIBRARIES.len()
    }

    /// The library that is not here, where only one is, and why.
    pub(super) fn missing(&self) -> impl Iterator<Item = (&str, &str)> {
        let missing = self.missing.iter();
        missing.map(|(library, why)| (library.as_str(), why.as_str()))
    }

    /// Why no function answers by any route, in one line. None where one does, and where one does
    /// worse than to refuse.
    pub(super) fn why_nothing_answers(&self) -> Option<String> {
        if self.no_driver() {
            let reasons: Vec<&str> = self.missing.values().map(String::as_str).collect();
            return Some(format!("no NVIDIA driver here: {}", reasons.join("; ")));
        }
        if !self.asked.is_empty() {
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

    /// What the driver refuses before any function of that library can be asked.
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
            } => self.asked.push(Asked {
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

    /// A child that crashed or hung: a row that says so.
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

    /// Gives the answers of drivers in a namespace of their own their moment. Their yardstick is
    /// NVML's, which tells it where NVML says what CUDA says. Elsewhere it is everybody's, if the
    /// device was quiet.
    fn place(&mut self) {
        for (uuid, _) in &self.devices {
            let is_apart =
                |asked: &Asked| Route::parse(&asked.row.route).is_ok_and(Route::is_apart);
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

    /// A function that no route reaches is one that this driver does not have. One that some
    /// route reaches must be reached by all.
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

    /// Remembers a function that cannot be asked because a call before it failed.
    fn refuse(&mut self, unanswered: &Skipped) {
        let is_missing = self.missing.contains_key(apis::library(&unanswered.api));
        if !is_missing && codes::is_named(&unanswered.why) && !self.refused.contains(unanswered) {
            self.refused.push(unanswered.clone());
        }
    }

    /// Whether a function could not be asked for want of a context.
    pub(super) fn lacks_context(&self, skipped: &Skipped) -> bool {
        let mut failed = self.no_context.iter();
        failed.any(|failed| failed.route == skipped.route && failed.apis.contains(&skipped.api))
    }

    fn is_reached(&self, api: &str) -> bool {
        let mut asked = self.asked.iter();
        asked.any(|asked| asked.row.api == api && asked.row.error.is_none())
    }

    /// Takes back the errors of a function that the driver does not have: a program linked to it
    /// is given the export of libgpuslice.so, which can only say so.
    fn withdraw(&mut self, missing: &Skipped) {
        if !missing.why.ends_with(lookup::NOT_FOUND) {
            return;
        }
        let (gone, kept): (Vec<Asked>, Vec<Asked>) = std::mem::take(&mut self.asked)
            .into_iter()
            .partition(|asked| asked.row.api == missing.api);
        self.asked = kept;
        for Asked { row, .. } in gone {
            self.skipped.push(Skipped {
                api: row.api,
                route: row.route,
                why: row.error.unwrap_or_default(),
            });
        }
    }
}

/// Whether the route itself is missing, as on a driver older than it.
fn is_absence(skipped: &Skipped) -> bool {
    skipped.why.starts_with("the driver has no ")
}

fn no_answer(skipped: Skipped) -> Asked {
    Asked {
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

/// Says something where on a terminal the progress stands.
fn tell(line: &str) {
    progress("");
    crate::cli::tell(line);
}

/// Says on a terminal what is being done: some drivers take seconds for each route.
fn progress(what: &str) {
    let mut out = io::stderr();
    if out.is_terminal() {
        // Nobody is left to be told when even this cannot be written.
        let _ = write!(out, "\r\x1b[K{what}").and_then(|()| out.flush());
    }
}
