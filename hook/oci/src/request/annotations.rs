//! Parses the annotations `gpuslice.io/...` of a container.
//! Touches: its arguments. Never: the environment, which images set.
//! Law: a key that is not understood is an error: `memroy` must not mean "no limit".

use crate::request::dialects::Portion;
use crate::request::identity::{Annotations, Identity};
use gpuslice_config::slice::{Fence, Managed, PageCache, PresentAs, Pressure, Total};
use gpuslice_config::words::device::{DeviceUuid, Selector};
use gpuslice_config::words::units::{Bytes, ParseBytesError};
use gpuslice_host::base::text::shown;
use gpuslice_host::machine::meminfo::ShownBy;
use gpuslice_host::machine::policy::DefaultSlice;

/// The prefix of every key.
pub const PREFIX: &str = "gpuslice.io/";

/// The known keys, listed in the error for an unknown key.
pub const KEYS: &str = "memory, memory.<index or uuid>, total, present-as, headroom, \
                        maximum, host-allowance, managed, pressure, page-cache, meminfo, fence, share, containers, container.<name>.<key>";

/// The slice that a container requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SliceRequest {
    /// The budget of every GPU that is not named.
    pub memory: Option<Bytes>,
    /// The part of every listed GPU that is not named, in place of `memory`.
    pub portion: Option<Portion>,
    /// The budgets of the named GPUs.
    pub devices: Vec<Named>,
    /// The value reported as total memory.
    pub total: Option<Total>,
    /// How unified memory is presented.
    pub present_as: Option<PresentAs>,
    /// The bytes subtracted from the reported total.
    pub headroom: Option<Bytes>,
    /// The largest limit that a resize may give, which the reported total shows.
    pub maximum: Option<Bytes>,
    /// Host memory that is not charged.
    pub host_allowance: Option<Bytes>,
    /// Whether managed memory counts against the slice.
    pub managed: Option<Managed>,
    /// The reaction to memory pressure.
    pub pressure: Option<Pressure>,
    /// The handling of model files in the page cache.
    pub page_cache: Option<PageCache>,
    /// The way in which `/proc/meminfo` shows the slice.
    pub meminfo: Option<ShownBy>,
    /// The mechanism that enforces the limit.
    pub fence: Option<Fence>,
    /// Whether the pod's containers share one slice.
    pub shared: bool,
}

/// The budget of one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// The GPU, as the annotation names it.
    pub selector: Selector,
    /// Its budget.
    pub memory: Bytes,
    /// Whether the budget is the container's own rather than its pod's.
    pub own: bool,
}

impl SliceRequest {
    /// The budget of a GPU that is not named.
    #[must_use]
    pub fn memory_of(&self, total: Bytes) -> Option<Bytes> {
        self.portion.map(|part| part.of(total)).or(self.memory)
    }

    /// Whether a memory size is requested.
    #[must_use]
    pub fn limits_something(&self) -> bool {
        self.memory.is_some() || !self.devices.is_empty()
    }

    /// Takes the options of the policy's default.
    pub(crate) fn takes(&mut self, default: &DefaultSlice) {
        self.total = default.total;
        self.present_as = default.present_as;
        self.headroom = default.headroom;
        self.host_allowance = default.host_allowance;
        self.pressure = default.pressure;
    }

    /// The size on the GPU of this selector.
    #[must_use]
    pub(crate) fn size_of(&self, selector: Selector) -> Option<Bytes> {
        let mut named = self.devices.iter();
        let named = named.find(|named| named.selector == selector);
        named.map(|named| named.memory).or(self.memory)
    }

    /// An option that has another value in the other request. Only the options that hooks have are
    /// compared.
    pub(crate) fn contradicts(&self, other: &SliceRequest) -> Option<&'static str> {
        fn differ<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
            one.is_some() && other.is_some() && one != other
        }
        let options = [
            ("total", differ(self.total, other.total)),
            ("present-as", differ(self.present_as, other.present_as)),
            ("headroom", differ(self.headroom, other.headroom)),
            ("page-cache", differ(self.page_cache, other.page_cache)),
            ("fence", differ(self.fence, other.fence)),
        ];
        options
            .iter()
            .find(|(_, differ)| *differ)
            .map(|(key, _)| *key)
    }

    /// Takes the options that hooks have, where this request has none.
    pub(crate) fn fill(&mut self, from: &SliceRequest) {
        self.total = self.total.or(from.total);
        self.present_as = self.present_as.or(from.present_as);
        self.headroom = self.headroom.or(from.headroom);
        self.page_cache = self.page_cache.or(from.page_cache);
        self.fence = self.fence.or(from.fence);
    }
}

/// The request that annotations make for one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnnotatedRequest {
    /// No annotation is ours.
    Nothing,
    /// The pod's `containers` does not name this one.
    NotThisContainer,
    /// The container requests this slice.
    Slice(SliceRequest),
}

/// An error in an annotation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnnotationError {
    /// The key is unknown.
    #[error("unknown annotation {PREFIX}{0} (known: {KEYS})")]
    Unknown(String),
    /// The value is not a size.
    #[error("annotation {PREFIX}{0}: \"{1}\": {2}")]
    Size(String, String, ParseBytesError),
    /// The key does not name a device.
    #[error("annotation {PREFIX}{0}: \"{1}\" is neither the index nor the uuid of a GPU")]
    Device(String, String),
    /// The value is not one of the accepted words.
    #[error("annotation {PREFIX}{0}: \"{1}\" is not one of {2}")]
    Word(String, String, &'static str),
    /// The annotation names a container, but the engine does not pass container names.
    #[error(
        "annotation {PREFIX}{0} names a container, and this engine does not pass container names to \
         its hooks"
    )]
    NoName(String),
    /// Options are given without a memory size.
    #[error("annotation {PREFIX}{0} needs a size (add {PREFIX}memory)")]
    NoMemory(&'static str),
    /// The container has options of its own without a memory size, and `containers` does not list it.
    #[error(
        "annotation {PREFIX}{CONTAINER}{0}.{1} needs a size: {PREFIX}containers does not list {0}, so \
         the pod's keys are not for it (add {PREFIX}{CONTAINER}{0}.memory)"
    )]
    Unlisted(String, &'static str),
}

/// The budgets of single GPUs, for this container.
#[must_use]
pub fn named(devices: &[(DeviceUuid, Bytes)]) -> Vec<Named> {
    let named = devices.iter().map(|(uuid, memory)| Named {
        selector: Selector::Uuid(*uuid),
        memory: *memory,
        own: true,
    });
    named.collect()
}

impl AnnotationError {
    /// The text of the error, for the option of the same name.
    pub(crate) fn of_option(&self) -> String {
        self.to_string()
            .replacen("annotation gpuslice.io/", "--", 1)
    }
}

/// Whether any annotation is ours.
#[must_use]
pub fn any(annotations: &Annotations) -> bool {
    annotations.keys().any(|key| key.starts_with(PREFIX))
}

/// Reads the request for one container.
///
/// # Errors
/// [`AnnotationError`] names the annotation.
pub fn read(
    annotations: &Annotations,
    who: &Identity,
) -> Result<AnnotatedRequest, AnnotationError> {
    read_beside(annotations, who, false)
}

/// Like [`read`]. `sized`: the container's hooks give a size, so annotations need none.
///
/// # Errors
/// [`AnnotationError`] names the annotation.
pub fn read_beside(
    annotations: &Annotations,
    who: &Identity,
    sized: bool,
) -> Result<AnnotatedRequest, AnnotationError> {
    let ours: Vec<(&str, &str)> = annotations
        .iter()
        .filter_map(|(key, value)| Some((key.strip_prefix(PREFIX)?, value.trim())))
        .collect();
    if ours.is_empty() {
        return Ok(AnnotatedRequest::Nothing);
    }
    let (own, pod): (Vec<_>, Vec<_>) = ours
        .into_iter()
        .partition(|(key, _)| key.starts_with(CONTAINER));
    let by_name = |(key, _): &&(&str, &str)| *key == "containers";
    let named = own.first().or_else(|| pod.iter().find(by_name));
    if let (Some((key, _)), None) = (named, &who.name) {
        return Err(AnnotationError::NoName(shown(key)));
    }
    let mut request = SliceRequest::default();
    let mut listed = None;
    for (key, value) in pod {
        match key {
            "containers" => listed = Some(value),
            key => set(&mut request, key, key, value)?,
        }
    }
    let mentioned = |list: &str| {
        let mut names = list.split(',').map(str::trim);
        who.name
            .as_deref()
            .is_some_and(|own| names.any(|name| name == own))
    };
    let is_listed = listed.map(mentioned);
    if is_listed == Some(false) {
        request = SliceRequest::default();
    }
    let mut named = false;
    let mut has_own_memory = false;
    for (key, value) in own {
        let unknown = || AnnotationError::Unknown(shown(key));
        let rest = key.strip_prefix(CONTAINER).ok_or_else(unknown)?;
        let (name, own_key) = rest.split_once('.').ok_or_else(unknown)?;
        if who.name.as_deref() == Some(name) {
            set(&mut request, key, own_key, value)?;
            named = true;
            has_own_memory |= own_key == "memory";
        } else {
            // The key is for another container; its value is validated all the same.
            set(&mut SliceRequest::default(), key, own_key, value)?;
        }
    }
    if is_listed == Some(false) && !named {
        return Ok(AnnotatedRequest::NotThisContainer);
    }
    // The container's own size for every GPU overrides its pod's for single ones.
    request.devices.retain(|named| named.own || !has_own_memory);
    match sized || request.limits_something() {
        true => Ok(AnnotatedRequest::Slice(request)),
        false if request == SliceRequest::default() => match is_listed {
            Some(true) => Err(AnnotationError::NoMemory("containers")),
            // Every key was for other containers.
            _ => Ok(AnnotatedRequest::NotThisContainer),
        },
        false => Err(match (is_listed, &who.name) {
            (Some(false), Some(name)) => {
                AnnotationError::Unlisted(shown(name), first_option(&request))
            }
            _ => AnnotationError::NoMemory(first_option(&request)),
        }),
    }
}

/// The prefix of a key that applies to one container only.
const CONTAINER: &str = "container.";

/// An option that the request gives; `share` where it gives no other.
pub(crate) fn first_option(request: &SliceRequest) -> &'static str {
    let given = [
        ("total", request.total.is_some()),
        ("present-as", request.present_as.is_some()),
        ("headroom", request.headroom.is_some()),
        ("maximum", request.maximum.is_some()),
        ("host-allowance", request.host_allowance.is_some()),
        ("managed", request.managed.is_some()),
        ("pressure", request.pressure.is_some()),
        ("page-cache", request.page_cache.is_some()),
        ("meminfo", request.meminfo.is_some()),
        ("fence", request.fence.is_some()),
    ];
    let first = given.iter().find(|(_, given)| *given);
    first.map_or("share", |(name, _)| name)
}

/// Sets one key. `full` is the key as written, for errors.
pub(crate) fn set(
    request: &mut SliceRequest,
    full: &str,
    key: &str,
    value: &str,
) -> Result<(), AnnotationError> {
    let size = || {
        let fault = |fault| AnnotationError::Size(shown(full), shown(value), fault);
        Bytes::configured(value).map_err(fault)
    };
    let word = |words| AnnotationError::Word(shown(full), shown(value), words);
    match key {
        "memory" => request.memory = Some(size()?),
        "total" => {
            request.total = Some(Total::from_word(value).ok_or_else(|| word("slice, device"))?)
        }
        "present-as" => {
            request.present_as =
                Some(PresentAs::from_word(value).ok_or_else(|| word("uma, discrete"))?);
        }
        // A headroom of 0 is valid, although 0 is not a valid size.
        "headroom" if value == "0" => request.headroom = Some(Bytes::ZERO),
        "headroom" => request.headroom = Some(size()?),
        "maximum" => request.maximum = Some(size()?),
        "host-allowance" if value == "0" => request.host_allowance = Some(Bytes::ZERO),
        "host-allowance" => request.host_allowance = Some(size()?),
        "managed" => {
            request.managed = Some(Managed::from_word(value).ok_or_else(|| word("count, allow"))?);
        }
        "pressure" => {
            request.pressure =
                Some(Pressure::from_word(value).ok_or_else(|| word("refuse, release"))?);
        }
        "page-cache" => {
            let known = PageCache::from_word(value);
            request.page_cache = Some(known.ok_or_else(|| word("keep, drop, drop-behind"))?);
        }
        "meminfo" => {
            let known = ShownBy::from_word(value);
            request.meminfo = Some(known.ok_or_else(|| word("preload, mount"))?);
        }
        "fence" => {
            let known = Fence::from_word(value);
            request.fence = Some(known.ok_or_else(|| word(Fence::WORDS))?);
        }
        "share" => match value {
            "pod" => request.shared = true,
            "container" => request.shared = false,
            _ => return Err(word("pod, container")),
        },
        key => {
            let Some(device) = key.strip_prefix("memory.") else {
                return Err(AnnotationError::Unknown(shown(full)));
            };
            let selector = device
                .parse()
                .map_err(|_| AnnotationError::Device(shown(full), shown(device)))?;
            let memory = size()?;
            request.devices.retain(|known| known.selector != selector);
            request.devices.push(Named {
                selector,
                memory,
                own: full.starts_with(CONTAINER),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "annotations_tests.rs"]
mod tests;
