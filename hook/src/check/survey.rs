//! Sends a child along every route and gathers what they tell.
//! Touches: its own children, through `children`.

use super::answers::Asked;
use super::apis;
use super::children::{End, Linked, Starter};
use super::lookup;
use super::routes::{self, Route};
use super::row::{Event, Reading, Row, Skipped};
use super::verdict::NO_DEVICE;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

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
    /// Routes whose numbers would not hold still.
    pub(super) moving: Vec<&'static str>,
    /// The driver's libraries that cannot be loaded, and why.
    missing: BTreeMap<String, String>,
    /// How many routes in a row have not come to an end.
    silent: usize,
    /// Questions that a route did not get as far as asking.
    unanswered: Vec<(Skipped, usize)>,
}

/// After so many routes in a row that crash or hang it is the driver, not the route.
const GIVE_UP: usize = 3;

const LIBRARIES: [&str; 2] = [apis::CUDA, apis::NVML];

impl Survey {
    /// Asks everything. `vars` are set or removed in the children's environment.
    pub(super) fn make(
        vars: &[(OsString, Option<OsString>)],
        patience: Duration,
    ) -> anyhow::Result<Survey> {
        let linked = Linked::create()?;
        let mut survey = Survey::default();
        for (child, route) in routes::all().enumerate() {
            progress(&format!("asking by {}", route.name()));
            let starter = Starter {
                linked: &linked,
                vars,
                patience,
                has_cuda: survey.has(LIBRARIES[0]),
                has_nvml: survey.has(LIBRARIES[1]),
            };
            let (events, end) = starter.ask(route)?;
            for event in events {
                survey.take(event, route, child);
            }
            match end {
                End::Done => survey.silent = 0,
                End::Early(how, doing) => survey.failed(route, child, &doing, how),
            }
            if survey.no_driver() {
                break;
            }
            if survey.silent >= GIVE_UP {
                survey.give_up_after(route);
                break;
            }
        }
        progress("");
        survey.settle_unanswered();
        survey.tell_moments();
        Ok(survey)
    }

    fn has(&self, library: &str) -> bool {
        !self.missing.contains_key(library)
    }

    /// Whether neither library of the driver can be loaded.
    pub(super) fn no_driver(&self) -> bool {
        self.missing.len() == LIBRARIES.len()
    }

    /// The library that is not here, where only one is, and why.
    pub(super) fn missing(&self) -> impl Iterator<Item = (&str, &str)> {
        let missing = self.missing.iter();
        missing.map(|(library, why)| (library.as_str(), why.as_str()))
    }

    /// One line that says so.
    pub(super) fn why_no_driver(&self) -> String {
        let reasons: Vec<&str> = self.missing.values().map(String::as_str).collect();
        format!("no NVIDIA driver here: {}", reasons.join("; "))
    }

    fn take(&mut self, event: Event, route: Route, child: usize) {
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
            Event::Row { row, yardstick } => self.asked.push(Asked {
                row,
                moment: child,
                settled: true,
                yardstick,
            }),
            Event::Unanswered { api, route, why } => {
                let skipped = Skipped { api, route, why };
                self.unanswered.push((skipped, child));
            }
            Event::Skipped(skipped) => self.skipped.push(skipped),
            Event::Moving => self.moving.push(route.name()),
            Event::Step(_) | Event::Done => {}
        }
    }

    /// A child that crashed or hung: a row that says so.
    fn failed(&mut self, route: Route, child: usize, doing: &str, how: String) {
        let skipped = Skipped {
            api: doing.to_owned(),
            route: route.name().to_owned(),
            why: how,
        };
        self.asked.push(no_answer(skipped, child));
        self.silent = self.silent.saturating_add(1);
    }

    fn give_up_after(&mut self, last: Route) {
        for route in routes::all().skip_while(|route| *route != last).skip(1) {
            self.skipped.push(Skipped {
                api: "*".to_owned(),
                route: route.name().to_owned(),
                why: format!("{GIVE_UP} routes in a row gave no answer"),
            });
        }
    }

    /// Puts children of one moment together. Until here each child's answers are a moment of
    /// their own.
    fn tell_moments(&mut self) {
        let children = routes::all().count();
        let yardsticks: Vec<Vec<&Row>> = (0..children)
            .map(|child| {
                let own = self.asked.iter().filter(|asked| asked.moment == child);
                own.filter(|asked| asked.yardstick)
                    .map(|asked| &asked.row)
                    .collect()
            })
            .collect();
        let moments = moments(&yardsticks);
        for asked in &mut self.asked {
            let route = routes::all().nth(asked.moment).map(Route::name);
            asked.settled = !route.is_some_and(|route| self.moving.contains(&route));
            asked.moment = moments.get(asked.moment).copied().unwrap_or(asked.moment);
        }
    }

    /// A function that no route reaches is one that this driver does not have. One that some
    /// route reaches must be reached by all.
    fn settle_unanswered(&mut self) {
        for (mut skipped, child) in std::mem::take(&mut self.unanswered) {
            if let Some(why) = self.missing.get(apis::library(&skipped.api)) {
                skipped.why.clone_from(why);
            }
            if is_absence(&skipped) {
                "*".clone_into(&mut skipped.api);
            } else if self.is_reached(&skipped.api) {
                self.asked.push(no_answer(skipped, child));
                continue;
            } else {
                self.withdraw(&skipped);
            }
            if !self.skipped.contains(&skipped) {
                self.skipped.push(skipped);
            }
        }
    }

    fn is_reached(&self, api: &str) -> bool {
        let mut asked = self.asked.iter().filter(|asked| !asked.yardstick);
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

/// The moment of each child, from what its yardstick said. A child whose yardstick says what the
/// last one's said is of the same moment. A child without one is of the moment around it, if
/// nothing moved meanwhile.
fn moments<T: PartialEq>(yardsticks: &[Vec<T>]) -> Vec<usize> {
    let mut moments: Vec<usize> = Vec::with_capacity(yardsticks.len());
    let mut last: Option<(usize, &Vec<T>)> = None;
    for (child, said) in yardsticks.iter().enumerate() {
        if said.is_empty() {
            moments.push(child);
            continue;
        }
        let moment = match last {
            Some((before, earlier)) if earlier == said => {
                let moment = moments.get(before).copied().unwrap_or(child);
                for between in moments.iter_mut().skip(before.saturating_add(1)) {
                    *between = moment;
                }
                moment
            }
            _ => child,
        };
        moments.push(moment);
        last = Some((child, said));
    }
    moments
}

/// Whether the route itself is missing, as on a driver older than it.
fn is_absence(skipped: &Skipped) -> bool {
    skipped.why.starts_with("the driver has no ")
}

fn no_answer(skipped: Skipped, moment: usize) -> Asked {
    Asked {
        row: Row {
            device: NO_DEVICE.to_owned(),
            api: skipped.api,
            route: skipped.route,
            reading: Reading::default(),
            error: Some(skipped.why),
        },
        moment,
        settled: true,
        yardstick: false,
    }
}

/// Says on a terminal what is being done: some drivers take seconds for each route.
fn progress(what: &str) {
    let mut out = io::stderr();
    if out.is_terminal() {
        // Nobody is left to be told when even this cannot be written.
        let _ = write!(out, "\r\x1b[K{what}").and_then(|()| out.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::moments;

    #[test]
    fn children_that_measured_the_same_are_of_one_moment() {
        assert_eq!(moments(&[vec![7], vec![7], vec![7]]), [0, 0, 0]);
        assert_eq!(moments(&[vec![7], vec![8], vec![8], vec![7]]), [0, 1, 1, 3]);
    }

    #[test]
    fn a_child_without_a_yardstick_is_of_the_moment_around_it_or_of_none() {
        assert_eq!(moments(&[vec![7], vec![], vec![], vec![7]]), [0, 0, 0, 0]);
        assert_eq!(moments(&[vec![7], vec![], vec![8], vec![]]), [0, 1, 2, 3]);
        assert_eq!(moments(&[vec![], vec![7], vec![7]]), [0, 1, 1]);
        assert_eq!(moments::<u8>(&[vec![], vec![]]), [0, 1]);
    }
}
