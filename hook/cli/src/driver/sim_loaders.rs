//! Names the simulated Vulkan and OpenCL drivers to the loaders of these APIs.
//! Touches: its arguments; the folder of the simulated driver, to see which drivers it has.
//!
//! Vulkan's loader reads a list of manifests, so the simulated driver stands before those that the user
//! has named. OpenCL's loaders read one folder: a folder that the user has named stays.

use crate::driver::sim::Sim;
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The variable with manifests of Vulkan drivers, for loaders from 1.3.207 on.
const DRIVER_FILES: &str = "VK_DRIVER_FILES";
/// The same, for earlier loaders.
const ICD_FILENAMES: &str = "VK_ICD_FILENAMES";
/// The variable with further manifests, which a loader ignores beside the two others.
const ADD_DRIVER_FILES: &str = "VK_ADD_DRIVER_FILES";
/// The variable with the folder that names OpenCL drivers.
const VENDORS: &str = "OCL_ICD_VENDORS";
/// The same, for ocl-icd, which prefers the other one.
const VENDOR_PATH: &str = "OPENCL_VENDOR_PATH";

/// The variables that this module reads.
const READ: [&str; 5] = [
    DRIVER_FILES,
    ICD_FILENAMES,
    ADD_DRIVER_FILES,
    VENDORS,
    VENDOR_PATH,
];

/// The variables of loaders that the user has set.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoaderVars(Vec<(&'static str, OsString)>);

impl LoaderVars {
    /// Reads them. `var` returns a variable of the program's environment.
    pub(crate) fn read(var: impl Fn(&str) -> Option<OsString>) -> LoaderVars {
        let set = READ.iter().filter_map(|name| {
            let value = var(name).filter(|value| !value.is_empty())?;
            Some((*name, value))
        });
        LoaderVars(set.collect())
    }

    fn first(&self, names: [&str; 3]) -> Option<&OsStr> {
        let value = |name: &str| self.0.iter().find(|(set, _)| *set == name);
        names
            .into_iter()
            .find_map(value)
            .map(|(_, value)| value.as_os_str())
    }

    fn sets(&self, name: &str) -> bool {
        self.0.iter().any(|(set, _)| *set == name)
    }
}

impl Sim {
    /// Returns the variables by which loaders find the simulated drivers.
    #[must_use]
    pub(crate) fn loader_vars(&self, user: &LoaderVars) -> Vec<(OsString, OsString)> {
        let mut vars = Vec::new();
        let manifest = self.driver.join("nvidia_icd.json");
        if manifest.is_file() {
            let lists = [
                [DRIVER_FILES, ICD_FILENAMES, ADD_DRIVER_FILES],
                [ICD_FILENAMES, DRIVER_FILES, ADD_DRIVER_FILES],
            ];
            for names in lists {
                let value = listed(&manifest, user.first(names));
                vars.push((names[0].into(), value));
            }
        }
        let vendors = self.driver.join("OpenCL/vendors");
        if vendors.is_dir() && !user.sets(VENDORS) && !user.sets(VENDOR_PATH) {
            vars.push((VENDORS.into(), vendors.into()));
        }
        vars
    }
}

/// A list of manifests that begins with this one.
fn listed(manifest: &Path, user: Option<&OsStr>) -> OsString {
    let mut list = manifest.as_os_str().to_owned();
    for other in user.iter().flat_map(env::split_paths) {
        if other != manifest {
            list.push(":");
            list.push(other);
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The variables of a simulated machine, for a user who has set these.
    fn vars(sim: &Sim, user: &[(&str, &str)]) -> Vec<(String, String)> {
        let var = |name: &str| {
            let found = user.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| (*value).into())
        };
        let text = |value: OsString| value.into_string().unwrap();
        let vars = sim.loader_vars(&LoaderVars::read(var)).into_iter();
        vars.map(|(name, value)| {
            (
                text(name),
                text(value).replace(&text(sim.driver.clone().into()), "/sim"),
            )
        })
        .collect()
    }

    fn set(vars: &[(&str, &str)]) -> Vec<(String, String)> {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        vars.iter().map(pair).collect()
    }

    #[test]
    fn loaders_find_the_simulated_drivers_and_those_that_the_user_names() {
        let folder = tempfile::tempdir().unwrap();
        let sim = Sim {
            machine: "rtx3090".into(),
            driver: folder.path().to_owned(),
        };
        assert!(
            vars(&sim, &[]).is_empty(),
            "a simulator without these drivers"
        );
        fs::write(folder.path().join("nvidia_icd.json"), "{}").unwrap();
        fs::create_dir_all(folder.path().join("OpenCL/vendors")).unwrap();
        let own = "/sim/nvidia_icd.json";
        let expected = [
            ("VK_DRIVER_FILES", own),
            ("VK_ICD_FILENAMES", own),
            ("OCL_ICD_VENDORS", "/sim/OpenCL/vendors"),
        ];
        assert_eq!(vars(&sim, &[]), set(&expected));
        assert_eq!(vars(&sim, &[("VK_DRIVER_FILES", "")]), set(&expected));
        let both = format!("{own}:/a.json:/b");
        for name in READ.into_iter().take(3) {
            let found = vars(&sim, &[(name, "/a.json:/b")]);
            let lists = [("VK_DRIVER_FILES", &*both), ("VK_ICD_FILENAMES", &*both)];
            assert_eq!(found[..2], set(&lists), "{name}");
        }
        let found = vars(
            &sim,
            &[("VK_DRIVER_FILES", "/new"), ("VK_ICD_FILENAMES", "/old")],
        );
        let (new, old) = (format!("{own}:/new"), format!("{own}:/old"));
        let lists = [("VK_DRIVER_FILES", &*new), ("VK_ICD_FILENAMES", &*old)];
        assert_eq!(found[..2], set(&lists));
        for name in ["OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH"] {
            assert_eq!(
                vars(&sim, &[(name, "/pocl")]),
                set(&expected[..2]),
                "{name}"
            );
        }
    }

    #[test]
    fn a_run_in_a_run_names_the_driver_once() {
        let manifest = Path::new("/sim/nvidia_icd.json");
        let once = OsStr::new("/sim/nvidia_icd.json:/a.json");
        assert_eq!(listed(manifest, Some(once)), once);
        assert_eq!(listed(manifest, None), manifest);
    }
}
