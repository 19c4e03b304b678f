//! Generates the man pages of gpuslice-hook and gpuslice-runtime, which container runtimes start.
//! These programs do not use clap, which is larger than all other code of the hook. Their pages are
//! generated from the texts that they print.
//! Touches: its arguments.

use super::{entry, list, literal};
use clap_mangen::roff::{Roff, bold, roman};
use gpuslice_hook::request::annotations;
use gpuslice_hook::request::arguments;
use gpuslice_hook::stage;
use gpuslice_hook::wrapper;
use gpuslice_host::engine::runtimes;

/// Returns the pages, in the section for administrators. `gpuslice runtime` has a page of its own.
pub(super) fn pages() -> Vec<(String, Vec<u8>)> {
    let all = [hook(), runtime()];
    all.into_iter()
        .map(|(name, roff)| (format!("{name}.8"), roff.render().into_bytes()))
        .collect()
}

fn begin(name: &str, about: &str) -> Roff {
    let version = concat!("gpuslice ", env!("CARGO_PKG_VERSION"));
    let mut roff = Roff::new();
    roff.control("TH", [name, "8", "", version, "gpuslice"]);
    roff.control("SH", ["NAME"]);
    roff.text([roman(format!("{name} - {about}"))]);
    roff
}

fn synopsis(roff: &mut Roff, name: &str, rest: &str) {
    roff.control("SH", ["SYNOPSIS"]);
    roff.text([bold(name), roman(" "), roman(rest)]);
}

fn see_also(roff: &mut Roff, pages: &str) {
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman(pages)]);
}

fn hook() -> (&'static str, Roff) {
    let name = "gpuslice-hook";
    let mut roff = begin(name, "gives a container its slice of GPU memory");
    let mut parts = arguments::HELP.split("\n\n");
    let usage = parts.next().unwrap_or_default();
    let usage = usage.trim_start_matches(name).trim();
    synopsis(&mut roff, name, usage);
    roff.control("SH", ["DESCRIPTION"]);
    roff.text([roman(parts.next().unwrap_or_default().replace('\n', " "))]);
    roff.control("SH", ["OPTIONS"]);
    for line in parts.next().unwrap_or_default().lines() {
        if let Some((option, meaning)) = line.trim().split_once("  ") {
            entry(&mut roff, option, meaning.trim());
        }
    }
    list(&mut roff, "STAGES", &STAGES);
    literal(&mut roff, "ANNOTATIONS", &keys());
    let status = |status: u8| status.to_string();
    let (success, failure, usage) = (
        status(stage::SUCCESS),
        status(stage::FAILURE),
        status(stage::USAGE),
    );
    let meanings = [
        (
            &*success,
            "The container may start: it has its slice, needs none, or the policy lets it start without one, as standard error says.",
        ),
        (
            &*failure,
            "It must not start; standard error says why, in one line.",
        ),
        (&*usage, "The hook is configured wrongly."),
    ];
    list(&mut roff, "EXIT STATUS", &meanings);
    list(&mut roff, "FILES", &FILES);
    see_also(
        &mut roff,
        "gpuslice(1), gpuslice-runtime(8), gpuslice-runtime-configure(1), gpuslice-devices(1), gpuslice-gc(1)",
    );
    (name, roff)
}

/// Returns every annotation key with its prefix, one per line.
fn keys() -> String {
    let words: Vec<&str> = annotations::KEYS.split_whitespace().collect();
    let text = words.join(" ");
    let lines = text
        .split(", ")
        .map(|key| format!("{}{key}\n", annotations::PREFIX));
    lines.collect()
}

const STAGES: [(&str, &str); 4] = [
    (
        "createRuntime, prestart",
        "Admits the container, and mounts its slice, the library and the loader's list into it.",
    ),
    (
        "createContainer",
        "The same, where a runtime has only this stage. Not with user namespaces, nor for a slice that containers share, nor on unified memory; and gpuslice status cannot see what such a container uses.",
    ),
    ("poststart", "Nothing."),
    (
        "poststop",
        "Frees the container's slice. If the runtime does not run this stage, the next start or gpuslice gc frees it.",
    ),
];

const FILES: [(&str, &str); 4] = [
    (
        "/etc/gpuslice/config.toml",
        "The host's policy. Only root may write it. An unknown key is an error.",
    ),
    (
        "/run/gpuslice/",
        "The slices of containers, until the next boot, and devices.json, the list of GPUs.",
    ),
    (
        "/usr/lib/gpuslice/libgpuslice.so",
        "The library that is injected.",
    ),
    ("/usr/bin/gpuslice", "The hook runs it to query the driver."),
];

fn runtime() -> (&'static str, Roff) {
    let name = runtimes::WRAPPER;
    let mut roff = begin(
        name,
        "an OCI runtime whose containers have slices of GPU memory",
    );
    synopsis(&mut roff, name, "[OPTIONS] RUNTIME-ARGUMENTS");
    roff.control("SH", ["DESCRIPTION"]);
    roff.text([roman(
        "For engines that have no hooks of their own, such as Docker, and below nvidia-container-runtime. \
         Puts gpuslice-hook into the configuration of each container that is made, which stays as it is \
         otherwise, and becomes runc or crun with the same arguments, environment and exit status. A \
         container whose configuration cannot be changed is not started.",
    )]);
    list(&mut roff, "OPTIONS", &wrapper::arguments::OPTIONS);
    list(
        &mut roff,
        "EXIT STATUS",
        &[
            (
                "1",
                "No runtime was started; the reason is on standard error and in the file of --log.",
            ),
            ("any other", "The runtime's."),
        ],
    );
    list(
        &mut roff,
        "FILES",
        &[
            (
                "/etc/gpuslice/config.toml",
                "runtime = [\"runc\", \"crun\"]: which runtimes are tried, in this order.",
            ),
            (
                "/etc/nvidia-container-runtime/config.toml",
                "If the policy names no runtime and `runtimes` of this file lists gpuslice-runtime, the other runtimes of that list are tried.",
            ),
        ],
    );
    see_also(
        &mut roff,
        "gpuslice-hook(8), gpuslice-runtime-configure(1), runc(8), crun(1)",
    );
    (name, roff)
}
