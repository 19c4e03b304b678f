//! Queries on unified memory: the simulated GB10, whose meminfo is a file on tmpfs, and the kernel's
//! own meminfo, which takes longer to read.

use super::Setting;
use crate::base::place;
use crate::measure::figure::Measured;
use crate::measure::rounds::interleave;
use crate::measure::variants::{self, Variant};
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::path::PathBuf;

/// The simulated GB10.
const DEVICE: &str = "GPU-b10aaaaa-4444-4555-8666-777788880000";
/// So much that every host has more.
const BUDGET: u64 = 4 << 30;
const PROMISE: u64 = 10 << 30;

/// A slice of the machine with further keys.
fn slice(setting: &Setting, keys: &str) -> Result<PathBuf> {
    let devices =
        format!(r#","devices":[{{"uuid":"{DEVICE}","memory":{BUDGET},"integrated":true}}],{keys}"#);
    setting.workshop.slice("unified", &devices)
}

pub(crate) fn queries(setting: &Setting) -> Result<Measured> {
    let shop = &setting.workshop;
    let state = shop.fresh("gb10")?;
    let drivers = place::target()?.join("sim");
    anyhow::ensure!(
        drivers.exists(),
        "the simulated driver is not built: run make"
    );
    let promises = shop.fresh("promises")?;
    for name in ["own", "a", "b", "c"] {
        std::fs::write(promises.join(format!("{PROMISE}.{name}")), [0; 4096])?;
    }
    let live = format!(r#""meminfo":"{}/meminfo""#, state.display());
    let promised = format!(
        r#"{live},"promises":"{0}","promise":"{0}/{PROMISE}.own""#,
        promises.display()
    );
    let common: [(&str, &OsStr); 2] = [
        ("GPUSLICE_SIM", OsStr::new("gb10")),
        ("GPUSLICE_SIM_STATE", state.as_os_str()),
    ];
    let own = slice(setting, &live)?;
    let mut all = variants::of_preloads(shop, &drivers, &common, &own, setting.peer.as_ref())?;
    let library = place::target()?.join("release/libgpuslice.so");
    for (name, keys) in [
        (
            "gpuslice, in a slice, the kernel's meminfo",
            r#""meminfo":"/proc/meminfo""#,
        ),
        ("gpuslice, in a slice, three neighbours", &promised),
    ] {
        let file = slice(setting, keys)?;
        let more = [common.as_slice(), &[("GPUSLICE_CONFIG", file.as_os_str())]].concat();
        all.push(Variant::new(name, &drivers, Some(&library), &more));
    }
    let names = variants::names(&all);
    interleave(&names, setting.effort.plan(40), |place| {
        let variant = all.get(place).context("a variant")?;
        variant.measure(shop, "calls", &["unified", "30", "2000"])
    })
}
