//! The report as JSON, text and a page.

pub(crate) mod amount;
pub(crate) mod html;
pub(crate) mod plot;
pub(crate) mod summary;
pub(crate) mod text;
