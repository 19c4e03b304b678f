//! Starts of processes, one after another and at once, and storms of contexts.

use super::Setting;
use crate::measure::figure::Measured;
use crate::measure::readings::Reading;
use crate::measure::rounds::interleave;
use crate::measure::variants::{self, Variant};
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::path::Path;

/// Starts a program in a way of `launch`.
fn launch(
    setting: &Setting,
    variant: &Variant,
    [way, figure, count]: [&str; 3],
    program: &Path,
    words: &[&str],
) -> Result<Vec<Reading>> {
    let mut all = vec![program.as_os_str()];
    all.extend(words.iter().map(OsStr::new));
    let how: [&OsStr; 3] = [way.as_ref(), figure.as_ref(), count.as_ref()];
    variant.launch(&setting.workshop, &how, &all)
}

/// Measures all variants.
fn measure(
    setting: &Setting,
    rounds: usize,
    run: impl Fn(&Variant) -> Result<Vec<Reading>>,
) -> Result<Measured> {
    let variants = variants::on_stub(&setting.workshop, setting.peer.as_ref())?;
    let names = variants::names(&variants);
    interleave(&names, setting.effort.plan(rounds), |place| {
        run(variants.get(place).context("a variant")?)
    })
}

pub(crate) fn each(setting: &Setting) -> Result<Measured> {
    let start = setting.workshop.program("start");
    measure(setting, 60, |variant| {
        let nothing = ["each", "/bin/true", "20"];
        let mut readings = launch(setting, variant, nothing, Path::new("/bin/true"), &[])?;
        let first = ["each", "the first query of a process", "20"];
        readings.extend(launch(setting, variant, first, &start, &["query"])?);
        Ok(readings)
    })
}

pub(crate) fn together(setting: &Setting) -> Result<Measured> {
    let start = setting.workshop.program("start");
    measure(setting, 30, |variant| {
        let how = ["together", "200 starts at once", "200"];
        launch(setting, variant, how, &start, &["all"])
    })
}

pub(crate) fn contexts(setting: &Setting) -> Result<Measured> {
    let shop = &setting.workshop;
    let calls = shop.program("calls");
    // The storm has slices of its own: a ledger keeps the slots that were once used.
    let mut measured = measure(setting, 20, |variant| {
        variant.measure(shop, "calls", &["contexts", "10", "200"])
    })?;
    measured.join(measure(setting, 20, |variant| {
        let how = ["together", "64 processes, 50 contexts each", "64"];
        launch(setting, variant, how, &calls, &["storm", "1", "50"])
    })?);
    Ok(measured)
}
