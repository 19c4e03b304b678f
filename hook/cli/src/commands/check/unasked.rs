//! Describes queries that could not be made because an earlier call failed. In a slice, they never
//! count as agreement.
//! Touches: its arguments.

use super::ledger::Fill;
use super::query::apis;
use super::query::codes;
use super::survey::Survey;
use gpuslice_config::slice::Slice;
use gpuslice_config::words::device::DeviceUuid;
use std::env;

/// A failed call, the routes on which it failed, and the functions that need it.
struct FailedCall {
    /// The device; None if the call is not about one device.
    device: Option<String>,
    why: String,
    routes: Vec<String>,
    apis: Vec<String>,
}

/// All queries that could not be made.
pub(super) struct Unasked<'a> {
    survey: &'a Survey,
    limits: Option<&'a Slice>,
    failures: Vec<FailedCall>,
}

/// The error that CUDA returns if it finds no device.
const NO_DEVICE: &str = "CUDA_ERROR_NO_DEVICE";

impl<'a> Unasked<'a> {
    /// Collects the failures. `limits` is the slice, if there is one.
    pub(super) fn of(survey: &'a Survey, limits: Option<&'a Slice>) -> Unasked<'a> {
        let mut failures: Vec<FailedCall> = Vec::new();
        let mut add = |device: Option<&str>, why: &str, route: &str, apis: &[String]| {
            let is_it = |known: &FailedCall| known.device.as_deref() == device && known.why == why;
            let place = failures.iter().position(is_it).unwrap_or(failures.len());
            if place == failures.len() {
                failures.push(FailedCall {
                    device: device.map(str::to_owned),
                    why: why.to_owned(),
                    routes: Vec::new(),
                    apis: Vec::new(),
                });
            }
            if let Some(failure) = failures.get_mut(place) {
                failure.add(route, apis);
            }
        };
        for failed in &survey.no_context {
            let device = Some(failed.device.as_str());
            add(device, &failed.why, &failed.route, &failed.apis);
        }
        for skipped in &survey.refused {
            add(
                None,
                &skipped.why,
                &skipped.route,
                std::slice::from_ref(&skipped.api),
            );
        }
        for failure in &mut failures {
            failure.apis.sort_by_key(|api| apis::place(api));
        }
        Unasked {
            survey,
            limits,
            failures,
        }
    }

    /// Returns the first device of the slice on which no context could be created.
    pub(super) fn device(&self) -> Option<DeviceUuid> {
        let mut limited = self.failures.iter().filter(|one| self.is_limited(one));
        limited.find_map(FailedCall::uuid)
    }

    /// Describes the queries that could not be made in the slice. `fill` returns how full the slice
    /// is.
    pub(super) fn in_slice(&self, fill: impl Fn(DeviceUuid) -> Option<Fill>) -> Vec<String> {
        let of_slice = self.failures.iter().filter(|one| self.is_limited(one));
        of_slice
            .map(|one| {
                let mut said = self.sentence(one);
                let is_full = one.why.ends_with("OUT_OF_MEMORY") || one.why.ends_with("Allocation");
                if let Some(fill) = one.uuid().filter(|_| is_full).and_then(&fill) {
                    said.push_str(&format!(
                        "; the processes of the slice hold {} of its {}",
                        fill.used, fill.limit
                    ));
                }
                said
            })
            .collect()
    }

    /// Describes the queries that could not be made on devices that are in no slice.
    pub(super) fn elsewhere(&self) -> Vec<String> {
        let others = self.failures.iter().filter(|one| !self.is_limited(one));
        let of_device = others.filter(|one| one.device.is_some());
        of_device.map(|one| self.sentence(one)).collect()
    }

    fn is_limited(&self, failure: &FailedCall) -> bool {
        let Some(slice) = self.limits else {
            return false;
        };
        match &failure.device {
            Some(_) => failure
                .uuid()
                .is_none_or(|uuid| slice.device(uuid).is_some()),
            // CUDA may find no device because the user has hidden all of them.
            None => {
                let is_hidden = failure.why.ends_with(NO_DEVICE)
                    && env::var_os("CUDA_VISIBLE_DEVICES").is_some();
                !is_hidden
            }
        }
    }

    fn sentence(&self, failure: &FailedCall) -> String {
        let device = failure.device.as_ref();
        let device = device.map_or(String::new(), |device| format!("{device}: "));
        let others: Vec<&str> = self
            .survey
            .routes()
            .filter(|route| !failure.routes.iter().any(|known| known == route))
            .collect();
        let routes = match others.len() {
            0 => "every route".to_owned(),
            few if few.saturating_mul(3) < failure.routes.len() => {
                format!("every route but {}", others.join(", "))
            }
            _ => failure.routes.join(", "),
        };
        let without = match failure.device {
            Some(_) => "without a context, ",
            None => "",
        };
        format!(
            "{device}{} by {routes}: {without}{} cannot be asked",
            codes::answers(&failure.why),
            failure.apis.join(", ")
        )
    }
}

impl FailedCall {
    fn add(&mut self, route: &str, apis: &[String]) {
        if !self.routes.iter().any(|known| known == route) {
            self.routes.push(route.to_owned());
        }
        for api in apis {
            if !self.apis.contains(api) {
                self.apis.push(api.clone());
            }
        }
    }

    fn uuid(&self) -> Option<DeviceUuid> {
        self.device.as_ref()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::check::query::row::{NoContext, Skipped};
    use gpuslice_config::slice::parse;

    const UUID: &str = "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";

    fn survey(why: &str) -> Survey {
        let refused = Skipped {
            api: "cuMemGetInfo_v2".to_owned(),
            route: "dlmopen".to_owned(),
            why: "cuInit: CUDA_ERROR_UNKNOWN".to_owned(),
        };
        let no_context = NoContext {
            device: UUID.to_owned(),
            route: "dlmopen".to_owned(),
            why: why.to_owned(),
            apis: vec!["cuMemGetInfo_v2".to_owned()],
        };
        let mut survey = Survey::default();
        survey.shims.push(("dlmopen", None));
        survey.refused.push(refused);
        survey.no_context.push(no_context);
        survey
    }

    #[test]
    fn in_a_slice_no_error_is_hidden_as_a_question_that_was_not_asked() {
        let survey = survey("cuDevicePrimaryCtxRetain: CUDA_ERROR_DEVICE_UNAVAILABLE");
        let slice = parse(br#"{"version":1,"memory":8589934592}"#).unwrap();
        let unasked = Unasked::of(&survey, Some(&slice));
        let context = format!(
            "{UUID}: cuDevicePrimaryCtxRetain returns 46 (CUDA_ERROR_DEVICE_UNAVAILABLE) by every route: \
             without a context, cuMemGetInfo_v2 cannot be asked"
        );
        let init = "cuInit returns 999 (CUDA_ERROR_UNKNOWN) by every route: cuMemGetInfo_v2 cannot be asked";
        assert_eq!(unasked.in_slice(|_| None), [context.as_str(), init]);
        assert_eq!(unasked.elsewhere(), Vec::<String>::new());
        let bare = Unasked::of(&survey, None);
        assert_eq!(bare.in_slice(|_| None), Vec::<String>::new());
        assert_eq!(bare.elsewhere(), [context]);
    }

    #[test]
    fn a_device_that_the_slice_does_not_limit_is_not_the_slices() {
        let survey = survey("cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY");
        let other = format!(
            r#"{{"version":1,"devices":[{{"uuid":"{}","memory":1}}]}}"#,
            UUID.replace('4', "5")
        );
        let slice = parse(other.as_bytes()).unwrap();
        let unasked = Unasked::of(&survey, Some(&slice));
        assert_eq!(unasked.device(), None);
        assert_eq!(unasked.elsewhere().len(), 1);
    }
}
