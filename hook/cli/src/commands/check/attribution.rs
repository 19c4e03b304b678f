//! Names the functions and routes that gave an answer, in the shortest exact form.
//! Touches: its arguments.

use super::answers::AskedRow;
use super::query::apis;
use super::verdict::Group;
use std::collections::BTreeSet;
use std::fmt;

/// Functions that gave an answer, all by the same set of routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Askers {
    /// The functions.
    pub(super) apis: Vec<String>,
    /// The routes by which the functions were found.
    pub(super) routes: Routes,
}

/// Some of the routes by which a function was queried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Routes {
    /// All routes.
    Every,
    /// All routes but these few.
    EveryBut(Vec<String>),
    /// Only these routes.
    These(Vec<String>),
}

impl Routes {
    fn of(routes: Vec<String>, all: &[String]) -> Routes {
        let missing = all.iter().filter(|route| !routes.contains(route));
        let missing: Vec<String> = missing.cloned().collect();
        match missing.len() {
            0 => Routes::Every,
            few if few.saturating_mul(3) < routes.len() => Routes::EveryBut(missing),
            _ => Routes::These(routes),
        }
    }
}

impl fmt::Display for Routes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Routes::Every => out.write_str("by every route"),
            Routes::EveryBut(few) => write!(out, "by every route but {}", few.join(", ")),
            Routes::These(routes) => write!(out, "by {}", routes.join(", ")),
        }
    }
}

impl fmt::Display for Askers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.apis.join(", "), self.routes)
    }
}

/// Returns the functions and routes of `rows`. `all` are all rows of that query.
pub(super) fn askers(asked: &[AskedRow], all: &[usize], rows: &[usize]) -> Vec<Askers> {
    let row_of = |row: &usize| asked.get(*row).map(|asked| &asked.row);
    let routes_of = |api: &str, rows: &[usize]| -> Vec<String> {
        let mut seen = BTreeSet::new();
        rows.iter()
            .filter_map(row_of)
            .filter(|row| row.api == api && seen.insert(&row.route))
            .map(|row| row.route.clone())
            .collect()
    };
    let mut names: Vec<&str> = rows
        .iter()
        .filter_map(row_of)
        .map(|row| row.api.as_str())
        .collect();
    names.sort_by_key(|api| apis::place(api));
    names.dedup();
    let mut found: Vec<Askers> = Vec::new();
    for api in names {
        let routes = routes_of(api, rows);
        let routes = Routes::of(routes, &routes_of(api, all));
        match found.iter_mut().find(|askers| askers.routes == routes) {
            Some(askers) => askers.apis.push(api.to_owned()),
            None => found.push(Askers {
                apis: vec![api.to_owned()],
                routes,
            }),
        }
    }
    found
}

/// Returns all rows of the groups.
pub(super) fn everybody(groups: &[Group]) -> Vec<usize> {
    let mut all: Vec<usize> = groups.iter().flat_map(|group| group.rows.clone()).collect();
    all.sort_unstable();
    all
}

/// Formats a group as a sentence: `cuMemGetInfo_v2, cuDeviceTotalMem_v2 by dlmopen say 24.00 GiB
/// total`.
pub(super) fn sentence(asked: &[AskedRow], groups: &[Group], group: &Group) -> String {
    let askers = askers(asked, &everybody(groups), &group.rows);
    let phrase = |askers: &Askers| match &askers.routes {
        Routes::Every => askers.apis.join(", "),
        _ => askers.to_string(),
    };
    let says = match askers.as_slice() {
        [one] if one.apis.len() == 1 => "says",
        _ => "say",
    };
    let phrases: Vec<String> = askers.iter().map(phrase).collect();
    format!("{} {says} {}", phrases.join(", "), group.says)
}
