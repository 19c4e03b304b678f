//! Look-ups of functions, by dlsym and by cuGetProcAddress.

use crate::Act;
use crate::libraries;
use crate::world::World;
use std::ffi::{CStr, CString};

pub fn acts() -> Vec<(usize, Act)> {
    vec![(3, proc_address as Act), (2, proc_address_v1), (3, dlsym)]
}

const VERSIONS: [u64; 16] = [
    2000, 2020, 3020, 4000, 7000, 10_020, 11_020, 11_030, 11_040, 12_000, 12_050, 12_080, 13_000,
    13_040, 99_999, 0,
];

/// The name of a function, as programs ask for it: with its suffixes or without.
fn name(world: &mut World<'_>) -> CString {
    let exported = &world.libraries.names;
    let exported = exported[world.rng.below(exported.len())].clone();
    let text = exported.to_string_lossy();
    let asked = match world.rng.below(20) {
        0 => String::new(),
        1 => format!("{text}x"),
        2 => text.into_owned(),
        3 => String::from("cuGetProcAddress"),
        4 => String::from("dlsym"),
        _ => text
            .split("_v")
            .next()
            .unwrap_or_default()
            .replace("_ptsz", "")
            .replace("_ptds", ""),
    };
    CString::new(asked).unwrap_or(exported)
}

fn version(world: &mut World<'_>) -> u64 {
    match world.rng.percent(95) {
        true => world.rng.pick(&VERSIONS),
        false => world.rng.next() & 0xffff_ffff,
    }
}

fn proc_address(world: &mut World<'_>) {
    let asking = world.rng.pick(&[
        "cuGetProcAddress_v2",
        "cuGetProcAddress_v2",
        "cuGetProcAddress_v2_ptsz",
    ]);
    let address = world.libraries.find(asking, &mut world.rng);
    let (name, version) = (name(world), version(world));
    let flags = world.rng.bits(&[0, 0, 1, 2, 2, 3, 7]);
    if address == 0 {
        return;
    }
    world.say(&format!("{asking}({name:?}, {version}, {flags:#x})"));
    let (mut found, mut status) = (0x5a5a_u64, 0x5a5a_5a5a_u32);
    let status_at = match world.rng.percent(85) {
        true => &raw mut status as u64,
        false => 0,
    };
    let mut words = [0; 11];
    words[..5].copy_from_slice(&[
        name.as_ptr() as u64,
        &raw mut found as u64,
        version,
        flags,
        status_at,
    ]);
    // SAFETY: the places are a pointer and an int, and the name is a C string.
    let rc = unsafe { libraries::call(address, words) };
    finish(world, rc, found, Some(status));
}

fn proc_address_v1(world: &mut World<'_>) {
    let address = world.libraries.find("cuGetProcAddress", &mut world.rng);
    let (name, version) = (name(world), version(world));
    let flags = world.rng.bits(&[0, 0, 1, 2]);
    if address == 0 {
        return;
    }
    world.say(&format!(
        "cuGetProcAddress({name:?}, {version}, {flags:#x})"
    ));
    let mut found = 0x5a5a_u64;
    let mut words = [0; 11];
    words[..4].copy_from_slice(&[name.as_ptr() as u64, &raw mut found as u64, version, flags]);
    // SAFETY: the place is a pointer, and the name is a C string.
    let rc = unsafe { libraries::call(address, words) };
    finish(world, rc, found, None);
}

/// Logs which function was found.
fn finish(world: &mut World<'_>, rc: i32, found: u64, status: Option<u32>) {
    let name = match found {
        0x5a5a => "-",
        found => world.libraries.name_of(found),
    };
    let name = name.to_owned();
    world.say(&format!(" = {rc} {status:x?} {name}"));
}

fn dlsym(world: &mut World<'_>) {
    let name = name(world);
    let (handle, text) = match world.rng.below(4) {
        0 => (libc::RTLD_DEFAULT, "RTLD_DEFAULT"),
        1 => (world.libraries.nvml, "libnvidia-ml"),
        _ => (world.libraries.cuda, "libcuda"),
    };
    world.say(&format!("dlsym({text}, {name:?})"));
    let found = libraries::lookup(handle, &name);
    let known = world.libraries.name_of(found).to_owned();
    let why = match found {
        // SAFETY: dlerror returns null or a C string.
        0 => unsafe { libc::dlerror().as_ref() }.map_or(String::new(), |text| {
            // SAFETY: it is a C string until the next call of the loader.
            let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
            text.into_owned()
        }),
        _ => String::new(),
    };
    world.say(&format!(" = {known} {why}"));
}
