//! The child process of `check`: queries every function that one route finds, on every device.
//! Touches: the driver, through that route and through the yardstick.
//!
//! `free` changes during the queries, because of other programs and, on unified memory, because of
//! the host alone. To make the answers comparable, each query is made between two queries of a
//! yardstick. The yardstick is `cuMemGetInfo_v2` by dlopen and dlsym. If CUDA does not list the
//! device or cannot create a context on it, the yardstick is NVML's function. A query counts if the
//! two yardstick answers are equal. Its answer and theirs are then of one moment, and are compared
//! to the byte.
//!
//! On every route, the child holds the primary context of every device that CUDA shows it. On a
//! quiet device all children therefore find equal numbers.
//!
//! A child whose driver is in a namespace of its own uses NVML's yardstick, because CUDA's would
//! cost a second context. If NVML does not answer, the child queries twice. If the device was
//! quiet, these answers are taken to be of the same moment as all others.

use super::apis::{self, APIS, Api, CUDA_YARDSTICK, Family, NVML_YARDSTICK, QueryTarget};
use super::codes;
use super::devices::{self, CudaDevice, Current, NvmlDevice};
use super::events::Teller;
use super::measure::Question;
use super::other_apis;
use super::routes::{self, Objects, Opened, Route};
use super::row::{Event, NoContext, Reading, Row};
use anyhow::Context;
use std::ffi::CString;

/// What a child is told.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Which route to go
    #[arg(long, value_parser = Route::parse)]
    route: Route,
    /// The linked library that needs libcuda.so.1
    #[arg(long)]
    cuda: String,
    /// The linked library that needs libnvidia-ml.so.1
    #[arg(long)]
    nvml: String,
}

/// Queries the functions and sends the answers to the parent.
///
/// # Errors
/// When the arguments are invalid. The driver's errors are sent as events.
pub(crate) fn main(args: &Args) -> anyhow::Result<u8> {
    let objects = Objects {
        cuda: CString::new(args.cuda.as_str())?,
        nvml: CString::new(args.nvml.as_str())?,
    };
    let mut probe = Probe {
        route: args.route,
        questions: Vec::new(),
        yardsticks: Vec::new(),
        teller: Teller::take_stdout().context("cannot take standard output")?,
    };
    probe.teller.tell(&Event::Shim(loaded_shim()));
    probe.teller.step("loading the driver");
    let opened = routes::open(args.route, &objects);
    probe.tell_libraries(&opened);
    if args.route.cudart().is_none() && !args.route.is_other_api() {
        probe.by_driver(&opened);
    }
    probe.teller.step("loading the driver by dlopen and dlsym");
    let yardstick = routes::open(Route::DlsymLocal, &objects);
    probe.by_yardstick(&opened, &yardstick);
    probe.measure();
    probe.teller.tell(&Event::Done);
    Ok(crate::base::exit::SUCCESS)
}

/// Returns the path of libgpuslice.so, if this process has loaded it.
fn loaded_shim() -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines()
        .filter_map(|line| line.get(line.find('/')?..))
        .find(|path| {
            let name = path.rsplit('/').next().unwrap_or_default();
            name.starts_with(crate::driver::preload::LIBRARY)
        })
        .map(str::to_owned)
}

struct Probe {
    route: Route,
    questions: Vec<Question>,
    /// One yardstick per device, looked up by dlopen and dlsym.
    yardsticks: Vec<Question>,
    teller: Teller,
}

impl Probe {
    fn tell_libraries(&mut self, opened: &Opened) {
        if self.route != Route::DlsymLocal {
            return;
        }
        for (name, library) in [(apis::CUDA, &opened.cuda), (apis::NVML, &opened.nvml)] {
            self.teller.tell(&Event::Library {
                name: name.to_owned(),
                error: library.as_ref().err().cloned(),
            });
        }
    }

    fn by_driver(&mut self, opened: &Opened) {
        self.teller.step("cuInit");
        match devices::cuda_devices(opened) {
            Ok(found) => found
                .iter()
                .for_each(|device| self.ask_cuda(opened, device)),
            Err(why) => self.unanswered(true, &why),
        }
        if !self.route.asks(Family::Nvml) {
            return;
        }
        self.teller.step("nvmlInit_v2");
        match devices::nvml_devices(opened) {
            Ok(found) => {
                for parent in found.parents {
                    self.teller.tell(&Event::Parent(parent));
                }
                found
                    .devices
                    .iter()
                    .for_each(|device| self.ask_nvml(opened, device));
            }
            Err(why) => self.unanswered(false, &why),
        }
    }

    fn ask_cuda(&mut self, opened: &Opened, device: &CudaDevice) {
        self.found(&device.uuid, &device.name);
        self.teller.step("cuDevicePrimaryCtxRetain");
        let context = devices::hold_context(opened, device.ordinal);
        let target = QueryTarget::cuda(device.ordinal);
        let mut unasked = Vec::new();
        for api in self.apis(|family| matches!(family, Family::Cuda | Family::StaticCudart)) {
            match &context {
                Ok(context) => self.add(opened, api, &device.uuid, target, *context),
                Err(_) if !api.needs_context() => {
                    self.add(opened, api, &device.uuid, target, Current::None);
                }
                Err(_) => unasked.push(api.name.to_owned()),
            }
        }
        if let Err(why) = context {
            self.no_context(device, why, unasked);
        }
    }

    /// Reports that no context can be created on a device, and the functions that need one.
    fn no_context(&mut self, device: &CudaDevice, why: String, apis: Vec<String>) {
        self.teller.tell(&Event::NoContext(NoContext {
            device: device.uuid.clone(),
            route: self.route.name().to_owned(),
            why,
            apis,
        }));
    }

    fn ask_nvml(&mut self, opened: &Opened, device: &NvmlDevice) {
        self.found(&device.uuid, &device.name);
        let target = QueryTarget::handle(device.handle);
        for api in self.apis(|family| matches!(family, Family::Nvml | Family::NvmlMig)) {
            if api.family == Family::Nvml || device.mig {
                self.add(opened, api, &device.uuid, target, Current::None);
            }
        }
    }

    /// Prepares the queries of libcudart, and the yardsticks.
    fn by_yardstick(&mut self, opened: &Opened, yardstick: &Opened) {
        let seen = match self.route.is_apart() {
            true => Ok(Vec::new()),
            false => devices::cuda_devices(yardstick),
        };
        if self.route.cudart().is_some() {
            self.by_runtime(opened, &seen);
        }
        if self.route.is_other_api() {
            self.by_other_api(yardstick, seen.as_deref().unwrap_or_default());
        }
        for device in seen.unwrap_or_default() {
            self.teller.step("cuDevicePrimaryCtxRetain");
            if let Ok(context) = devices::hold_context(yardstick, device.ordinal) {
                let target = QueryTarget::cuda(device.ordinal);
                self.add_yardstick(yardstick, CUDA_YARDSTICK, &device.uuid, target, context);
            }
        }
        self.teller.step("nvmlInit_v2");
        for device in devices::nvml_devices(yardstick).unwrap_or_default().devices {
            let mut known = self.yardsticks.iter();
            if !known.any(|known| known.device == device.uuid) {
                let target = QueryTarget::handle(device.handle);
                let current = Current::None;
                self.add_yardstick(yardstick, NVML_YARDSTICK, &device.uuid, target, current);
            }
        }
    }

    fn by_runtime(&mut self, opened: &Opened, seen: &Result<Vec<CudaDevice>, String>) {
        if let Err(why) = &opened.cudart {
            return self.skip("*", format!("not installed ({why})"));
        }
        let seen = match seen {
            Ok(seen) => seen,
            Err(why) => return self.skip("*", why.clone()),
        };
        for device in seen {
            self.found(&device.uuid, &device.name);
            self.teller.step("cudaSetDevice");
            match devices::hold_runtime(opened, device.ordinal) {
                // A runtime that is newer than the driver is a common installation, so its query is
                // only skipped.
                Err(why) if codes::is_newer_than_driver(&why) => {
                    self.skip("*", format!("{}: {why}", device.uuid));
                }
                Err(why) => {
                    let apis = self.apis(|family| matches!(family, Family::Cudart(_)));
                    let apis = apis.map(|api| api.name.to_owned()).collect();
                    self.no_context(device, why, apis);
                }
                Ok(current) => {
                    let target = QueryTarget::cuda(device.ordinal);
                    for api in self.apis(|family| matches!(family, Family::Cudart(_))) {
                        self.add(opened, api, &device.uuid, target, current);
                    }
                }
            }
        }
    }

    /// Prepares the queries beside CUDA and NVML. `seen` are the devices that CUDA lists.
    fn by_other_api(&mut self, yardstick: &Opened, seen: &[CudaDevice]) {
        self.teller.step(other_apis::first_call(self.route));
        let has_library = loaded_shim().is_some();
        let found = match other_apis::devices(self.route, yardstick, seen, has_library) {
            Ok(found) => found,
            Err(why) => return self.skip("*", why),
        };
        for device in found {
            self.found(&device.uuid, &device.name);
            // A route of this kind queries one API only.
            for api in self.apis(|_| true) {
                self.questions.push(Question {
                    api,
                    device: device.uuid.clone(),
                    symbol: device.symbol,
                    target: device.target,
                    current: Current::None,
                });
            }
        }
    }

    /// Returns the functions that this route queries, if `wanted` accepts their family.
    fn apis(&self, wanted: fn(Family) -> bool) -> impl Iterator<Item = &'static Api> + use<> {
        let route = self.route;
        APIS.iter()
            .filter(move |api| wanted(api.family) && route.asks(api.family))
    }

    fn add(
        &mut self,
        opened: &Opened,
        api: &'static Api,
        device: &str,
        target: QueryTarget,
        current: Current,
    ) {
        let symbol = opened
            .lookup(api.family, &api.symbol)
            .and_then(|lookup| lookup.find(&api.symbol));
        match symbol {
            Err(why) => self.tell_unanswered(api.name, &why),
            Ok(symbol) => self.questions.push(Question {
                api,
                device: device.to_owned(),
                symbol,
                target,
                current,
            }),
        }
    }

    fn add_yardstick(
        &mut self,
        opened: &Opened,
        name: &str,
        device: &str,
        target: QueryTarget,
        current: Current,
    ) {
        let api = APIS.iter().find(|api| api.name == name);
        let symbol = api.and_then(|api| {
            let lookup = opened.lookup(api.family, &api.symbol).ok()?;
            Some((api, lookup.find(&api.symbol).ok()?))
        });
        self.yardsticks.extend(symbol.map(|(api, symbol)| Question {
            api,
            device: device.to_owned(),
            symbol,
            target,
            current,
        }));
    }

    fn found(&mut self, uuid: &str, name: &str) {
        self.teller.tell(&Event::Device {
            uuid: uuid.to_owned(),
            name: name.to_owned(),
        });
    }

    fn skip(&mut self, api: &str, why: String) {
        self.teller.skip(api, self.route.name(), why);
    }

    /// Reports that this route cannot query any function of a library.
    fn unanswered(&mut self, of_cuda: bool, why: &str) {
        let families = match of_cuda {
            true => |family| matches!(family, Family::Cuda | Family::StaticCudart),
            false => |family| family == Family::Nvml,
        };
        for api in self.apis(families) {
            self.tell_unanswered(api.name, why);
        }
    }

    fn tell_unanswered(&mut self, api: &str, why: &str) {
        self.teller.tell(&Event::Unanswered {
            api: api.to_owned(),
            route: self.route.name().to_owned(),
            why: why.to_owned(),
        });
    }

    fn measure(&mut self) {
        for question in &self.questions {
            self.teller.step(question.api.name);
            let device = &question.device;
            let yardstick = self.yardsticks.iter().find(|other| other.device == *device);
            let measured = question.measure(yardstick, self.route.is_apart());
            let (reading, error) = match measured.answer {
                Ok(reading) => (reading, None),
                Err(error) => (Reading::default(), Some(error)),
            };
            self.teller.tell(&Event::Row {
                row: Row {
                    device: device.clone(),
                    api: question.api.name.to_owned(),
                    route: self.route.name().to_owned(),
                    reading,
                    error,
                },
                beside: measured.beside,
                settled: measured.settled,
            });
        }
    }
}
