//! The name and the arguments of gpuslice-hook in a hook definition.
//! Touches: its arguments.

use gpuslice_config::words::units::Bytes;
use std::path::Path;

/// The name of the hook's executable in every hook definition of ours.
pub const NAME: &str = "gpuslice-hook";

/// The option that gives a size.
pub const MEMORY: &str = "--memory";

/// Why the sizes of one container cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// Two hook definitions give different sizes.
    #[error(
        "two hooks in config.json give different slices of the same GPU, {0} and {1}: request only \
         one CDI device or runtime of gpuslice, or claims of one size"
    )]
    Hooks(Bytes, Bytes),
    /// A hook definition and an annotation give different sizes.
    #[error(
        "a hook in config.json (of a claim, a CDI device or a runtime) gives a slice of {hook}, and \
         annotation gpuslice.io/{key} says {annotation}: leave one of them out"
    )]
    Annotation {
        /// The size of the hook.
        hook: Bytes,
        /// The annotation's key.
        key: String,
        /// Its size.
        annotation: Bytes,
    },
    /// Two hook definitions give an option different values.
    #[error("two hooks in config.json give different values of --{0}")]
    Options(&'static str),
    /// A hook definition and an annotation give an option different values.
    #[error(
        "annotation gpuslice.io/{0} contradicts a hook in config.json (of a claim, a CDI device or a \
         runtime): leave the annotation out"
    )]
    AnnotationOption(&'static str),
    /// The value of an option is wrong.
    #[error("{0}")]
    Option(String),
    /// The name of a slice is not usable, or a second one.
    #[error("--slice {0:?} is a second name, or not a name (letters, digits, and _ . + -)")]
    Name(String),
    /// A slice is described that has no size.
    #[error("the options of a slice need its size (add {MEMORY})")]
    NoMemory,
    /// The size of a hook definition is not a size.
    #[error("{MEMORY} {0:?} is not a size (try 8GiB)")]
    Malformed(String),
}

/// Whether a hook definition runs gpuslice-hook.
#[must_use]
pub fn is_ours(path: &Path, arguments: &[String]) -> bool {
    let named = |path: &Path| path.file_name().is_some_and(|name| name == NAME);
    named(path) || arguments.first().is_some_and(|name| named(Path::new(name)))
}

/// The value of `--memory` among the arguments of a hook definition: a size, or `GPU-UUID=SIZE`.
#[must_use]
pub fn memory_of(arguments: &[String]) -> Option<&str> {
    let mut rest = arguments.iter().skip_while(|word| *word != MEMORY);
    rest.next()?;
    Some(rest.next().map_or("", String::as_str))
}

/// The one size that these values give.
///
/// # Errors
/// When they differ, or one is not a size.
pub fn one<'a>(values: impl IntoIterator<Item = &'a str>) -> Result<Option<Bytes>, SizeError> {
    let mut found: Option<Bytes> = None;
    // Sizes of single GPUs may differ. The hook itself compares those.
    for value in values.into_iter().filter(|value| !value.contains('=')) {
        let size = Bytes::configured(value).map_err(|_| SizeError::Malformed(value.to_owned()))?;
        match found {
            Some(other) if other != size => return Err(SizeError::Hooks(other, size)),
            _ => found = Some(size),
        }
    }
    Ok(found)
}
