//! The slices that the hooks of a container give: `--memory` and `--slice` of CDI devices, of
//! Kubernetes' claims and of gpuslice-runtime.
//! Touches: its arguments.
//! Law: every hook of a container reads the definitions of all of them, so the order in which a
//! runtime runs them does not matter, and definitions that contradict each other are refused. A
//! slice's name comes from here alone: engines write hooks, images and authors of pods cannot.

use crate::request::annotations::{self, Named, SliceRequest};
use crate::request::spec::Spec;
use crate::request::state::is_id;
use gpuslice_config::words::device::Selector;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::engine::hook_arguments::{SizeError, is_ours};
use gpuslice_host::machine::devices::Devices;

/// The options of a hook that describe a slice. The last five mean what the annotations of the same
/// names mean.
const OPTIONS: [&str; 8] = [
    "slice",
    "claim",
    "memory",
    "total",
    "present-as",
    "headroom",
    "page-cache",
    "fence",
];

/// The most letters of a name in Kubernetes.
const LONGEST_NAME: usize = 253;

/// The slice that one hook gives.
#[derive(Clone, Debug, Default)]
pub struct HookSlice {
    /// Its name. All containers whose hooks give this name share one slice.
    pub name: Option<String>,
    /// The namespace of its claim, which is that of the claim's pods.
    pub namespace: Option<String>,
    /// Its sizes and its options.
    pub request: SliceRequest,
}

/// The slice that all hooks of a container give together.
#[derive(Debug, Default)]
pub(crate) struct GivenSlice {
    /// The names of the slices that it consists of, in order, with commas between them.
    pub(crate) named: Option<String>,
    /// The namespace of its claims.
    pub(crate) namespace: Option<String>,
    /// Its sizes and its options.
    pub(crate) request: SliceRequest,
}

/// The name of an option that describes a slice; `None` for any other word.
pub(crate) fn option(word: &str) -> Option<&'static str> {
    let given = word.strip_prefix("--")?;
    OPTIONS.into_iter().find(|known| *known == given)
}

impl HookSlice {
    /// Sets an option.
    ///
    /// # Errors
    /// When the value is wrong, or contradicts an earlier one.
    pub(crate) fn set(&mut self, option: &str, value: &str) -> Result<(), SizeError> {
        match option {
            "slice" if !is_id(value) || self.name.is_some() => {
                Err(SizeError::Name(value.to_owned()))
            }
            "slice" => {
                self.name = Some(value.to_owned());
                Ok(())
            }
            "claim" => self.set_claim(value),
            "memory" => self.set_memory(value),
            key => annotations::set(&mut self.request, key, key, value)
                .map_err(|fault| SizeError::Option(fault.of_option())),
        }
    }

    fn set_claim(&mut self, value: &str) -> Result<(), SizeError> {
        let plain = |letter: u8| letter.is_ascii_alphanumeric() || b".-".contains(&letter);
        let is_name =
            |text: &str| !text.is_empty() && text.len() <= LONGEST_NAME && text.bytes().all(plain);
        match value.split_once('/') {
            Some((namespace, name)) if is_name(namespace) && is_name(name) => {
                self.namespace = Some(namespace.to_owned());
                Ok(())
            }
            _ => Err(SizeError::Option(format!(
                "--claim {value:?} is not NAMESPACE/NAME"
            ))),
        }
    }

    fn set_memory(&mut self, value: &str) -> Result<(), SizeError> {
        let fault = |why: &dyn ToString| {
            SizeError::Option(format!("--memory {value}: {}", why.to_string()))
        };
        let (gpu, size) = match value.split_once('=') {
            None => (None, value),
            Some((gpu, size)) => (Some(gpu), size),
        };
        let memory = Bytes::configured(size).map_err(|why| fault(&why))?;
        let known = match gpu {
            None => self.request.memory.replace(memory),
            Some(gpu) => {
                let selector = Selector::Uuid(gpu.parse().map_err(|why| fault(&why))?);
                let mut devices = self.request.devices.iter();
                let known = devices.find(|named| named.selector == selector).copied();
                if known.is_none() {
                    let own = false;
                    self.request.devices.push(Named {
                        selector,
                        memory,
                        own,
                    });
                }
                known.map(|known| known.memory)
            }
        };
        match known {
            Some(known) if known != memory => Err(SizeError::Hooks(known, memory)),
            _ => Ok(()),
        }
    }

    /// Checks that a slice which is described has a size.
    ///
    /// # Errors
    /// When it has none.
    pub(crate) fn check(self) -> Result<HookSlice, SizeError> {
        let describes = self.name.is_some() || annotations::first_option(&self.request) != "share";
        match describes && !self.request.limits_something() {
            true => Err(SizeError::NoMemory),
            false => Ok(self),
        }
    }

    /// Reads the definition of a hook. The hook itself refuses what is unknown here.
    fn read(words: &[String]) -> Result<HookSlice, SizeError> {
        let mut read = HookSlice::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if let Some(option) = option(word) {
                read.set(option, words.next().map_or("", String::as_str))?;
            }
        }
        read.check()
    }
}

/// The slice that the hooks of a container give, this hook's own arguments included. Slices of
/// different names add up: a scheduler has counted each of them.
///
/// # Errors
/// When two hooks contradict each other, or one is malformed.
pub(crate) fn of(spec: &Spec, own: &HookSlice) -> Result<Option<GivenSlice>, SizeError> {
    let stages = spec.hooks.iter().flatten();
    let hooks = stages
        .filter(|(stage, _)| *stage != "poststop")
        .flat_map(|(_, hooks)| hooks.iter().flatten())
        .filter(|hook| is_ours(&hook.path, &hook.args));
    // One slice of each name, by name. The first is that of all hooks without a name.
    let mut parts = vec![HookSlice::default()];
    let mut add = |slice: HookSlice| {
        let at = parts.partition_point(|known| known.name < slice.name);
        match parts.get_mut(at) {
            Some(known) if known.name == slice.name => join(&mut known.request, &slice.request),
            _ => {
                parts.insert(at, slice);
                Ok(())
            }
        }
    };
    add(own.clone())?;
    for hook in hooks {
        add(HookSlice::read(&hook.args)?)?;
    }
    let mut given = GivenSlice {
        // All claims of a pod are in its namespace.
        namespace: parts.iter().find_map(|part| part.namespace.clone()),
        ..GivenSlice::default()
    };
    for part in &parts {
        let Some(name) = &part.name else { continue };
        given.named = Some(match given.named {
            None => name.clone(),
            Some(names) => names + "," + name,
        });
        add_up(&mut given.request, &part.request)?;
    }
    if let Some(unnamed) = parts.first() {
        join(&mut given.request, &unnamed.request)?;
    }
    Ok(given.request.limits_something().then_some(given))
}

/// Adds the sizes of another slice, for each GPU, and its options.
fn add_up(sum: &mut SliceRequest, part: &SliceRequest) -> Result<(), SizeError> {
    // A size of every GPU is also that of the GPUs that only the other names.
    for named in &part.devices {
        if sum
            .devices
            .iter()
            .all(|known| known.selector != named.selector)
        {
            let memory = sum.memory.unwrap_or(Bytes::ZERO);
            sum.devices.push(Named { memory, ..*named });
        }
    }
    for known in &mut sum.devices {
        if let Some(memory) = part.size_of(known.selector) {
            known.memory = known.memory.plus(memory);
        }
    }
    let plain = sum.memory.into_iter().chain(part.memory);
    sum.memory = plain.reduce(Bytes::plus);
    options(sum, part)
}

/// Adds what another hook says of the same slice: the sizes of other GPUs, and options.
fn join(known: &mut SliceRequest, more: &SliceRequest) -> Result<(), SizeError> {
    if !known.limits_something() {
        known.memory = more.memory;
        known.devices.clone_from(&more.devices);
    }
    let plain = more.memory.and_then(|memory| {
        let others = known.devices.iter().map(|named| named.memory);
        // A size of every GPU, beside which GPUs may have sizes of their own.
        let others = others
            .filter(|_| known.memory.is_none())
            .chain(known.memory);
        others
            .map(|other| (other, memory))
            .find(|(other, memory)| other != memory)
    });
    if let Some((one, other)) = plain {
        return Err(SizeError::Hooks(one, other));
    }
    for named in &more.devices {
        match known.size_of(named.selector) {
            Some(size) if size != named.memory => return Err(SizeError::Hooks(size, named.memory)),
            _ if known.devices.contains(named) => {}
            _ => known.devices.push(*named),
        }
    }
    known.memory = known.memory.or(more.memory);
    options(known, more)
}

fn options(known: &mut SliceRequest, more: &SliceRequest) -> Result<(), SizeError> {
    if let Some(option) = known.contradicts(more) {
        return Err(SizeError::Options(option));
    }
    known.fill(more);
    Ok(())
}

impl GivenSlice {
    /// The request of a container that these hooks and annotations describe.
    ///
    /// # Errors
    /// When an annotation that applies to this container contradicts the hooks.
    pub(crate) fn with(
        &self,
        annotated: SliceRequest,
        devices: &Devices,
    ) -> Result<SliceRequest, SizeError> {
        let given = &self.request;
        let differs = |key: String, annotation: Bytes, hook: Option<Bytes>| SizeError::Annotation {
            hook: hook.unwrap_or(Bytes::ZERO),
            key,
            annotation,
        };
        if let Some(memory) = annotated.memory {
            let named = given.devices.iter().map(|named| named.memory);
            let mut sizes = named.chain(given.memory);
            if let Some(size) = sizes.find(|size| *size != memory) {
                return Err(differs("memory".to_owned(), memory, Some(size)));
            }
        }
        for named in &annotated.devices {
            // An index stands for the GPUs that the host's list has at it.
            let targets = devices.select(named.selector);
            let each = targets.iter().map(|target| Selector::Uuid(target.uuid));
            let each = each.chain(targets.is_empty().then_some(named.selector));
            let mut sizes = each.map(|selector| given.size_of(selector));
            if let Some(size) = sizes.find(|size| *size != Some(named.memory)) {
                let key = format!("memory.{}", named.selector);
                return Err(differs(key, named.memory, size));
            }
        }
        let shared = annotated.shared && self.named.is_some();
        let contradiction = annotated.contradicts(given);
        if let Some(option) = contradiction.or(shared.then_some("share")) {
            return Err(SizeError::AnnotationOption(option));
        }
        let mut request = annotated;
        request.fill(given);
        // The annotation's size also counts for a GPU that the hooks do not name.
        request.memory = given.memory.or(request.memory);
        request.devices.clone_from(&given.devices);
        Ok(request)
    }
}

#[cfg(test)]
#[path = "hook_slices_tests.rs"]
mod tests;
