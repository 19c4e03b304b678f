//! OpenCL: what its devices report, and what its programs allocate.

pub(crate) mod buffer;
pub(crate) mod image;
pub(crate) mod info;
mod properties;
pub(crate) mod svm;
