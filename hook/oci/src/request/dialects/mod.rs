//! Translates requests for GPU memory that were written for other systems.
//! Touches: its arguments.
//!
//! Law: annotations request, because whoever creates a pod writes them, or its scheduler does.
//! Environment variables only lower what is granted otherwise, because images set them, too. With no
//! other request, a variable lowers the whole GPU or the policy's maximum, which the container would
//! have without it.
//!
//! Law: a value that is not understood is an error that names its key. What is understood and cannot
//! be honoured is reported.

pub(crate) mod amount;
mod shares;
pub mod table;

pub use amount::{Amount, Portion};

use crate::request::identity::Annotations;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::text::shown;
use gpuslice_host::machine::dialects::Dialects;
use table::{Key, Meaning, Row, TABLE};

/// The facts about a container.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// The dialects that the policy switches on.
    pub dialects: Dialects,
    /// The annotations of the pod, or of the container.
    pub annotations: &'a Annotations,
    /// The environment of the container.
    pub env: &'a [String],
    /// The container's name in its pod.
    pub name: Option<&'a str>,
    /// The GPUs that the container is given, if they are known.
    pub visible: Option<&'a [DeviceUuid]>,
}

/// The translated request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Translation {
    /// The requests of annotations for this container.
    pub asked: Option<Asked>,
    /// The upper bound that variables set.
    pub ceiling: Option<(String, Bytes)>,
    /// The requests that cannot be honoured, one line each.
    pub unheld: Vec<String>,
}

/// A request, and the annotation that makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The annotation's key.
    pub key: String,
    /// Its value, as written.
    pub value: String,
    /// The amount.
    pub amount: Amount,
}

/// An error in a request of another system.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DialectError {
    /// The value is not in the notation of its key.
    #[error("{key}: \"{value}\" is not {expected}")]
    Value {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// The notation.
        expected: &'static str,
    },
    /// The annotation is for a container, but the engine does not pass container names.
    #[error(
        "annotation {0} names a container, and this engine does not pass container names to its hooks"
    )]
    NoName(String),
    /// Two annotations request different amounts.
    #[error("{} says {}, and {} says {}: leave one of them out", one.0, one.1, other.0, other.1)]
    Differ {
        /// One key and its value.
        one: (String, String),
        /// The other key and its value.
        other: (String, String),
    },
    /// HAMi's scheduler has given the pod's containers different shares.
    #[error(
        "{0} gives the containers of this pod different shares, and this one has no \
         CUDA_DEVICE_MEMORY_LIMIT_0, which tells them apart"
    )]
    WhichShare(&'static str),
}

/// An upper bound by a variable: its key, the device's number, the bound.
struct Bound {
    key: String,
    number: Option<usize>,
    memory: Bytes,
}

#[derive(Default)]
struct Found<'a> {
    /// The sizes for the pod, and those for this container only.
    sizes: [Vec<Asked>; 2],
    bursts: Vec<Asked>,
    only: Option<&'a str>,
    shares: Option<(&'static str, &'a str)>,
    bounds: Vec<Bound>,
    unheld: Vec<String>,
}

/// Translates the requests that are made for one container.
///
/// # Errors
/// [`DialectError`] names the key.
pub fn read(given: &Given<'_>) -> Result<Translation, DialectError> {
    let mut found = Found::default();
    for row in TABLE.iter().filter(|row| row.is_on(given.dialects)) {
        values(row, given, &mut |key, number, value| {
            found.note(row, key, number, value)
        })?;
    }
    let Found {
        sizes: [pod, mut own],
        bursts,
        only,
        shares,
        bounds,
        mut unheld,
    } = found;
    if only.is_some() && given.name.is_none() {
        return Err(DialectError::NoName(
            "gpu-fraction-container-name".to_owned(),
        ));
    }
    let is_other = only.is_some_and(|only| given.name != Some(only));
    let is_pods = |asked: &Asked| !asked.key.contains('/');
    let bursts = bursts
        .into_iter()
        .filter(|asked| !(is_other && is_pods(asked)));
    let bursts: Vec<Asked> = bursts.collect();
    let mut is_shared_out = false;
    if let Some((key, list)) = shares {
        let numbered: Vec<(usize, Bytes)> = bounds
            .iter()
            .filter_map(|bound| Some((bound.number?, bound.memory)))
            .collect();
        let share =
            shares::of(list, &numbered, given.visible).map_err(|fault| fault.about(key, list))?;
        is_shared_out = share.is_some();
        own.extend(share.map(|share| {
            unheld.extend(
                share
                    .cores
                    .map(|cores| line(key, &format!("{cores} % of the cores"))),
            );
            Asked {
                key: key.to_owned(),
                value: shown(list),
                amount: Amount::Shares(share.devices),
            }
        }));
    }
    let pod = if is_other { Vec::new() } else { pod };
    let asked = match own.is_empty() {
        false => one(own)?,
        true => one(pod)?,
    };
    let asked = match asked {
        Some(asked) => {
            let larger = bursts
                .iter()
                .filter(|burst| exceeds(&burst.amount, &asked.amount));
            unheld.extend(larger.map(|burst| line(&burst.key, &burst.value)));
            Some(asked)
        }
        None => one(bursts)?,
    };
    // The shares are lowered already, each by its own number.
    let general = |bound: &&Bound| !(is_shared_out && bound.number.is_some());
    let lowest = bounds
        .iter()
        .filter(general)
        .min_by_key(|bound| bound.memory);
    Ok(Translation {
        asked,
        ceiling: lowest.map(|bound| (bound.key.clone(), bound.memory)),
        unheld,
    })
}

/// Whether a container of the pod requests memory in these dialects.
#[must_use]
pub fn any(given: &Given<'_>) -> bool {
    let memory = |row: &&Row| !matches!(row.meaning, Meaning::Only | Meaning::Unheld(_));
    let mut rows = TABLE
        .iter()
        .filter(memory)
        .filter(|row| row.is_on(given.dialects));
    // A key that names a container that this one may be counts, too.
    rows.any(|row| {
        values(row, given, &mut |_, _, _| {
            Err(DialectError::NoName(String::new()))
        })
        .is_err()
    })
}

/// Whether an annotation is one of these dialects.
#[must_use]
pub fn is_annotation(key: &str, dialects: Dialects) -> bool {
    let mut rows = TABLE.iter().filter(|row| row.is_on(dialects));
    rows.any(|row| match row.key {
        Key::Pod(own) => key == own,
        Key::Container(prefix, suffix) => key.starts_with(prefix) && key.ends_with(suffix),
        Key::Variable(_) | Key::Numbered(_) => false,
    })
}

/// The value of a variable that is too long, which no form reads.
const TOO_LONG: &str = "(longer than 1 KiB)";

/// Receives a key, the number of the device at its end, and its value.
type Receive<'r, 'a> = &'r mut dyn FnMut(&str, Option<usize>, &'a str) -> Result<(), DialectError>;

/// Finds the values of a row.
fn values<'a>(row: &Row, given: &Given<'a>, receive: Receive<'_, 'a>) -> Result<(), DialectError> {
    match row.key {
        Key::Pod(key) => match given.annotations.get(key) {
            Some(value) => receive(key, None, value.trim()),
            None => Ok(()),
        },
        Key::Container(prefix, suffix) => {
            for (key, value) in given.annotations {
                let name = key
                    .strip_prefix(prefix)
                    .and_then(|rest| rest.strip_suffix(suffix));
                match (name, given.name) {
                    (Some(_), None) => return Err(DialectError::NoName(shown(key))),
                    (Some(name), Some(own)) if name == own => receive(key, None, value.trim())?,
                    _ => {}
                }
            }
            Ok(())
        }
        Key::Variable(name) | Key::Numbered(name) => {
            for variable in given.env {
                let Some((key, value)) = variable.split_once('=') else {
                    // The reader of config.json keeps only the start of a variable that is too long.
                    if variable
                        .strip_suffix('?')
                        .is_some_and(|start| name.starts_with(start))
                    {
                        receive(name, Some(0), TOO_LONG)?;
                    }
                    continue;
                };
                let number = key.strip_prefix(name).map(str::parse);
                match (row.key, number) {
                    (Key::Numbered(_), Some(Ok(number))) => {
                        receive(key, Some(number), value.trim())?;
                    }
                    (Key::Variable(_), Some(_)) if key == name => receive(key, None, value.trim())?,
                    _ => {}
                }
            }
            Ok(())
        }
    }
}

impl<'a> Found<'a> {
    fn note(
        &mut self,
        row: &Row,
        key: &str,
        number: Option<usize>,
        value: &'a str,
    ) -> Result<(), DialectError> {
        let fault = |expected| DialectError::Value {
            key: key.to_owned(),
            value: shown(value),
            expected,
        };
        match row.meaning {
            Meaning::Size(form) | Meaning::Burst(form) => {
                let amount = form.read(value).filter(|amount| *amount != NOTHING);
                let asked = Asked {
                    amount: amount.ok_or_else(|| fault(form.expected()))?,
                    value: shown(value),
                    key: key.to_owned(),
                };
                let [pod, own] = &mut self.sizes;
                match (row.meaning, row.key) {
                    (Meaning::Burst(_), _) => self.bursts.push(asked),
                    (_, Key::Container(..)) => own.push(asked),
                    _ => pod.push(asked),
                }
            }
            Meaning::Ceiling(form) => match form.read(value) {
                // Zero is no limit in each of these systems.
                Some(NOTHING) => {}
                Some(Amount::Size(memory)) => self.bounds.push(Bound {
                    key: key.to_owned(),
                    number,
                    memory,
                }),
                _ => return Err(fault(form.expected())),
            },
            Meaning::Only => self.only = Some(value),
            Meaning::Shares => {
                if let Key::Pod(key) = row.key {
                    self.shares = Some((key, value));
                }
            }
            Meaning::Unheld(idle) => {
                if !idle.contains(&value) {
                    self.unheld.push(line(key, &shown(value)));
                }
            }
        }
        Ok(())
    }
}

const NOTHING: Amount = Amount::Size(Bytes::ZERO);

/// The line about something that cannot be honoured.
fn line(key: &str, value: &str) -> String {
    format!("{key} {value} is not honoured: a slice limits memory, and has one size")
}

/// The one amount that all of these request.
fn one(all: Vec<Asked>) -> Result<Option<Asked>, DialectError> {
    let mut all = all.into_iter();
    let Some(first) = all.next() else {
        return Ok(None);
    };
    match all.find(|other| other.amount != first.amount) {
        None => Ok(Some(first)),
        Some(other) => Err(DialectError::Differ {
            one: (first.key, first.value),
            other: (other.key, other.value),
        }),
    }
}

/// Whether a burst may exceed the size. Amounts of different kinds cannot be compared.
fn exceeds(burst: &Amount, size: &Amount) -> bool {
    match (burst, size) {
        (Amount::Size(burst), Amount::Size(size)) => burst > size,
        (burst, size) => burst != size,
    }
}

#[cfg(test)]
#[path = "dialects_tests.rs"]
mod tests;
