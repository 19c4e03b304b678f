//! Calls in one process: queries, look-ups, allocations by kind, number and thread, and files.

use super::{Setting, page_cache};
use crate::base::place;
use crate::base::workshop::LIMIT;
use crate::measure::figure::Measured;
use crate::measure::readings::Reading;
use crate::measure::rounds::interleave;
use crate::measure::variants::{self, Variant};
use anyhow::{Context, Result};

/// Measures all variants with programs of the workshop.
fn measure(
    setting: &Setting,
    rounds: usize,
    run: impl Fn(&Variant) -> Result<Vec<Reading>>,
) -> Result<Measured> {
    let variants = variants::on_stub(&setting.workshop, setting.peer.as_ref())?;
    among(setting, variants, rounds, run)
}

/// The same, with a slice whose limit the driver holds, where this machine can have one.
fn measure_both_fences(
    setting: &Setting,
    rounds: usize,
    run: impl Fn(&Variant) -> Result<Vec<Reading>>,
) -> Result<Measured> {
    let mut variants = variants::on_stub(&setting.workshop, setting.peer.as_ref())?;
    variants.extend(variants::held_by_driver(&setting.workshop)?);
    among(setting, variants, rounds, run)
}

fn among(
    setting: &Setting,
    variants: Vec<Variant>,
    rounds: usize,
    run: impl Fn(&Variant) -> Result<Vec<Reading>>,
) -> Result<Measured> {
    let notes = variants::verify(&setting.workshop, &variants)?;
    let plan = setting.effort.plan(rounds);
    let mut measured = interleave(&variants::names(&variants), plan, |place| {
        run(variants.get(place).context("a variant")?)
    })?;
    measured.notes = notes;
    Ok(measured)
}

pub(crate) fn query(setting: &Setting) -> Result<Measured> {
    let shop = &setting.workshop;
    measure_both_fences(setting, 60, |variant| {
        let mut readings = variant.measure(shop, "calls", &["query", "20", "2000"])?;
        readings.extend(variant.measure(shop, "linked", &["20", "2000"])?);
        Ok(readings)
    })
}

pub(crate) fn look_ups(setting: &Setting) -> Result<Measured> {
    let shop = &setting.workshop;
    measure(setting, 60, |variant| {
        variant.measure(shop, "calls", &["look-ups", "20", "1000"])
    })
}

pub(crate) fn kinds(setting: &Setting) -> Result<Measured> {
    let shop = &setting.workshop;
    measure_both_fences(setting, 60, |variant| {
        let mut readings = Vec::new();
        for mode in ["kinds", "vulkan", "opencl"] {
            readings.extend(variant.measure(shop, "calls", &[mode, "20", "2000"])?);
        }
        Ok(readings)
    })
}

pub(crate) fn alive(setting: &Setting) -> Result<Measured> {
    let counts: &[&str] = setting
        .effort
        .of(&["0", "200", "2000", "20000"], &["0", "20000"]);
    measure(setting, 20, |variant| {
        let mut readings = Vec::new();
        for count in counts {
            let words = ["alive", "10", "500", count];
            readings.extend(variant.measure(&setting.workshop, "calls", &words)?);
        }
        Ok(readings)
    })
}

pub(crate) fn threads(setting: &Setting) -> Result<Measured> {
    let counts: &[&str] = setting.effort.of(&["1", "2", "4", "8", "16"], &["1", "4"]);
    measure(setting, 30, |variant| {
        let mut readings = Vec::new();
        for count in counts {
            let words = ["threads", "10", "2000", count];
            readings.extend(variant.measure(&setting.workshop, "calls", &words)?);
        }
        Ok(readings)
    })
}

/// In a slice that drops model files, where the library follows files and mappings.
pub(crate) fn files(setting: &Setting) -> Result<Measured> {
    let shop = &setting.workshop;
    let keys = format!(r#","memory":{LIMIT},"page_cache":"drop""#);
    let config = shop.slice("drops", &keys)?;
    let peer = setting.peer.as_ref();
    let variants = variants::of_preloads(shop, &shop.drivers(), &[], &config, peer)?;
    let ordinary = shop.fresh("files")?.join("ordinary.txt");
    std::fs::write(&ordinary, vec![1_u8; 1 << 20]).context("a file")?;
    let model = page_cache::model(&place::target()?, 256 << 20)?;
    let (ordinary, model) = (ordinary.to_string_lossy(), model.to_string_lossy());
    let names = variants::names(&variants);
    interleave(&names, setting.effort.plan(40), |place| {
        let variant = variants.get(place).context("a variant")?;
        let mut readings = variant.measure(shop, "files", &["20", "200", &ordinary])?;
        let words = ["20", "200", &ordinary, &model];
        readings.extend(variant.measure(shop, "files", &words)?);
        Ok(readings)
    })
}
