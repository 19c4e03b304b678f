//! Describes the slice that programs find, as `check` shows it: its file, its contents, or its
//! error.
//! Touches: the slice file; the environments of this process's ancestors.

use crate::base::text;
use crate::commands::status::process::{self, Processes};
use crate::slice::{current as current_slice, file as slice_file, ledger as slice_ledger};
use gpuslice_config::slice::{DriverLimit, PresentAs, Slice, Total};
use gpuslice_config::words::paths;
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A slice, in its JSON form.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SliceShown {
    /// The slice file.
    pub(super) path: PathBuf,
    /// The slice's name.
    pub(super) name: Option<String>,
    /// The budget of every device that is not listed.
    #[serde(rename = "limit")]
    pub(super) memory: Option<u64>,
    /// The setting for the reported total.
    pub(super) total: Option<&'static str>,
    /// The form in which unified memory is presented.
    pub(super) present_as: Option<&'static str>,
    /// The memory withheld from the reported total.
    pub(super) headroom: Option<u64>,
    /// The mechanism that enforces the limit: "driver", "preload" or "counted" (nothing is refused).
    pub(super) fence: Option<&'static str>,
    /// The devices with a budget of their own.
    pub(super) devices: Vec<DeviceShown>,
    /// The reason why the file cannot be used.
    pub(super) error: Option<String>,
    /// The slice itself.
    #[serde(skip)]
    pub(super) slice: Option<Box<Slice>>,
}

/// A device of a slice, in its JSON form.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DeviceShown {
    /// Its uuid.
    pub(super) device: String,
    /// Its budget.
    #[serde(rename = "limit")]
    pub(super) memory: Option<u64>,
    /// How the driver enforces the limit; None if the library does.
    pub(super) driver_limit: Option<DriverLimit>,
}

impl SliceShown {
    /// Finds the slice of a program in an environment with these changes.
    pub(super) fn find(vars: &[(OsString, Option<OsString>)]) -> Option<SliceShown> {
        let path = match current_slice::mounted() {
            Some(mounted) => mounted,
            None => match (named(vars), current_slice::missing()) {
                (Some(named), _) => named,
                (None, Some((path, why))) => {
                    let error = format!("this container started without its slice: {why}");
                    return Some(SliceShown::unusable(Some(&path), error));
                }
                (None, None) => return None,
            },
        };
        Some(match slice_file::read(&path) {
            Err(error) => SliceShown::unusable(Some(&path), anyhow::Error::new(error).to_string()),
            Ok(mut slice) => {
                slice_ledger::apply_limits(&path, &mut slice);
                SliceShown::usable(path, slice)
            }
        })
    }

    /// Describes a slice file that cannot be used.
    pub(super) fn unusable(path: Option<&Path>, error: String) -> SliceShown {
        let path = path.map(Path::to_owned).or_else(|| named(&[]));
        SliceShown {
            path: path.unwrap_or_default(),
            name: None,
            memory: None,
            total: None,
            present_as: None,
            headroom: None,
            fence: None,
            devices: Vec::new(),
            error: Some(error),
            slice: None,
        }
    }

    /// Says what enforces the limit.
    pub(super) fn held_by(&self) -> Option<String> {
        let mut listed = self.devices.iter();
        let backend = listed.find_map(|device| device.driver_limit);
        Some(match (self.fence?, backend) {
            ("driver", Some(backend)) => format!("driver ({})", backend.word()),
            ("counted", _) => "nothing (--no-enforce)".to_owned(),
            _ => "preload (cooperative)".to_owned(),
        })
    }

    fn usable(path: PathBuf, slice: Slice) -> SliceShown {
        SliceShown {
            path,
            name: Some(slice.name.as_str().to_owned()),
            memory: slice.memory.map(|memory| memory.get()),
            total: Some(match slice.total {
                Total::Slice => "slice",
                Total::Device => "device",
            }),
            present_as: Some(match slice.present_as {
                PresentAs::Uma => "uma",
                PresentAs::Discrete => "discrete",
            }),
            headroom: Some(slice.headroom.get()),
            fence: fence(&slice),
            devices: slice
                .devices()
                .map(|listed| DeviceShown {
                    device: listed.uuid.to_string(),
                    memory: listed.memory.map(|memory| memory.get()),
                    driver_limit: listed.driver_limit.filter(|_| slice.enforce),
                })
                .collect(),
            error: None,
            slice: Some(Box::new(slice)),
        }
    }
}

/// Returns what enforces the limit: the driver, if it holds that of every listed device.
fn fence(slice: &Slice) -> Option<&'static str> {
    let mut listed = slice.devices().peekable();
    let is_listed = listed.peek().is_some();
    match slice.limits_something() {
        false => None,
        true if !slice.enforce => Some("counted"),
        true if is_listed && listed.all(|listed| listed.driver_limit.is_some()) => Some("driver"),
        true => Some("preload"),
    }
}

/// Returns a note if this process is in no slice but one of its ancestors is. Either its
/// environment was cleared, or a user left the slice on purpose.
pub(super) fn left_behind() -> Option<String> {
    let processes = Processes::default();
    let variable = [paths::CONFIG.to_bytes(), b"="].concat();
    let ancestors = processes.ancestors(std::process::id());
    ancestors.into_iter().find_map(|pid| {
        let file = process::variable(pid, &variable).filter(|file| !file.is_empty())?;
        let file = PathBuf::from(OsString::from_vec(file));
        let name = slice_file::read(&file).ok()?.name;
        let program = process::name(pid).unwrap_or_default();
        Some(format!(
            "this process is in no slice, but process {pid} ({}), which has started it, is in slice \
             {} ({}): the environment was not passed on",
            text::printable(&program),
            text::printable(name.as_str()),
            file.display()
        ))
    })
}

/// Returns the slice file that the environment names.
fn named(vars: &[(OsString, Option<OsString>)]) -> Option<PathBuf> {
    let variable = OsStr::from_bytes(paths::CONFIG.to_bytes());
    let changed = vars.iter().rev().find(|(name, _)| name == variable);
    let value = match changed {
        Some((_, value)) => value.clone(),
        None => std::env::var_os(variable),
    };
    value.filter(|path| !path.is_empty()).map(PathBuf::from)
}
