//! Calls of one process while others of the slice hold memory.

use super::Setting;
use crate::measure::figure::Measured;
use crate::measure::rounds::interleave;
use crate::measure::variants::{self, Variant};
use anyhow::{Context, Result};
use std::ffi::OsStr;

pub(crate) fn crowds(setting: &Setting) -> Result<Measured> {
    let shop = &setting.workshop;
    let counts: &[u64] = setting.effort.of(&[1, 8, 64, 512], &[1, 64]);
    // Each number has slices of its own: a ledger keeps the slots that were once used.
    let sets: Vec<Vec<Variant>> = counts
        .iter()
        .map(|_| variants::on_stub(shop, setting.peer.as_ref()))
        .collect::<Result<_>>()?;
    let (holder, program) = (shop.program("start"), shop.program("calls"));
    let names = variants::names(sets.first().context("a number of processes")?);
    interleave(&names, setting.effort.plan(12), |place| {
        let mut readings = Vec::new();
        for (count, variants) in counts.iter().zip(&sets) {
            let variant = variants.get(place).context("a variant")?;
            // The measuring process is one of them.
            let others = count.saturating_sub(1).to_string();
            let how = [OsStr::new("among"), others.as_ref(), holder.as_os_str()];
            let count = count.to_string();
            let words: [&OsStr; 5] = [
                program.as_os_str(),
                "pair".as_ref(),
                "20".as_ref(),
                "1000".as_ref(),
                count.as_ref(),
            ];
            readings.extend(variant.launch(shop, &how, &words)?);
        }
        Ok(readings)
    })
}
