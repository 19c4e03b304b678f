//! Generates the man pages of configuration files: gpuslice-slices(5) and gpuslice-config(5).
//! Touches: its arguments.

use super::{entry, literal};
use crate::slice::slices_file::keys;
use clap_mangen::roff::{Roff, bold, roman};

/// Returns the pages, in the section for file formats.
pub(super) fn pages() -> Vec<(String, Vec<u8>)> {
    [("gpuslice-slices", slices()), ("gpuslice-config", config())]
        .into_iter()
        .map(|(name, roff)| (format!("{name}.5"), roff.render().into_bytes()))
        .collect()
}

/// Returns the keys of a slice in `slices.toml`: name, values and meaning.
#[must_use]
pub fn slice_keys() -> Vec<(&'static str, &'static str, &'static str)> {
    let keys = keys::KEYS.iter();
    keys.map(|key| (key.name, key.value, key.meaning)).collect()
}

fn begin(name: &str, about: &str, synopsis: &[&str]) -> Roff {
    let version = concat!("gpuslice ", env!("CARGO_PKG_VERSION"));
    let mut roff = Roff::new();
    roff.control("TH", [name, "5", "", version, "gpuslice"]);
    roff.control("SH", ["NAME"]);
    roff.text([roman(format!("{name} - {about}"))]);
    roff.control("SH", ["SYNOPSIS"]);
    for (place, path) in synopsis.iter().enumerate() {
        if place > 0 {
            roff.control("br", []);
        }
        roff.text([bold(*path)]);
    }
    roff
}

fn paragraphs(roff: &mut Roff, title: &str, texts: &[&str]) {
    roff.control("SH", [title]);
    for (place, text) in texts.iter().enumerate() {
        if place > 0 {
            roff.control("PP", []);
        }
        roff.text([roman(*text)]);
    }
}

/// The example that packages install.
pub const EXAMPLE: &str = include_str!("../../../../../packaging/examples/slices.toml");

fn slices() -> Roff {
    let mut roff = begin(
        "gpuslice-slices",
        "slices of GPU memory, by name",
        &[
            "~/.config/gpuslice/slices.toml",
            "/etc/gpuslice/slices.toml",
        ],
    );
    paragraphs(
        &mut roff,
        "DESCRIPTION",
        &[
            "A TOML file with a table for each slice. The table's name is the slice's name. \
             gpuslice run --slice NAME starts a command in the slice, gpuslice env NAME puts a shell \
             into it, and gpuslice plan checks whether all slices fit together. The unit \
             gpuslice@NAME.service runs the slice's own command.",
            "With --file FILE, only that file is read. Otherwise $XDG_CONFIG_HOME/gpuslice/slices.toml \
             (by default in ~/.config) and then /etc/gpuslice/slices.toml are searched, and the first \
             that has the slice is used. A file that exists must be valid as a whole: a fault in it is \
             an error, with its line.",
            "The host's file must belong to root, and no other user may write to it. The user's file \
             and FILE must belong to the user or to root.",
        ],
    );
    roff.control("SH", ["KEYS"]);
    for (name, value, meaning) in slice_keys() {
        entry(
            &mut roff,
            name,
            &format!("{}. {meaning}", capitalized(value)),
        );
    }
    paragraphs(
        &mut roff,
        "COMMAND LINE",
        &[
            "gpuslice run --slice refuses the options that describe a slice, such as --memory. \
             --overcommit, --sim, --log, --log-file, --strict and --dry-run can be added. A command \
             after -- replaces the file's command.",
        ],
    );
    literal(&mut roff, "EXAMPLE", EXAMPLE);
    paragraphs(
        &mut roff,
        "SEE ALSO",
        &["gpuslice-run(1), gpuslice-plan(1), gpuslice-env(1), gpuslice-config(5)"],
    );
    roff
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

/// A key of the policy: its section, its name, its values and its meaning.
pub type PolicyKey = (&'static str, &'static str, &'static str, &'static str);

const SIZE: &str = "a size (\"8GiB\")";

/// The keys of the host's policy. A test compares them with those that the policy's reader knows.
pub const POLICY: [PolicyKey; 30] = [
    (
        "",
        "library",
        "a path",
        "The library that is injected. Default: lib/gpuslice/libgpuslice.so in the hook's prefix; packages use /usr.",
    ),
    (
        "",
        "command",
        "a path",
        "The command that queries the driver. Default: bin/gpuslice in the hook's prefix; packages use /usr.",
    ),
    (
        "",
        "devices",
        "a list of indices and uuids",
        "The GPUs that slices are made of. Default: all.",
    ),
    (
        "",
        "reserve",
        SIZE,
        "On unified memory, what the host keeps for itself. Default: by the machine's size.",
    ),
    (
        "",
        "overcommit",
        "true or false",
        "Whether slices together may have more than the memory that exists. Default: false.",
    ),
    (
        "",
        "deny-unannotated",
        "true or false",
        "Whether a container without an annotation and without a default slice is refused. Default: false.",
    ),
    (
        "",
        "exempt-namespaces",
        "a list of namespaces ([\"kube-system\"])",
        "Kubernetes with the NRI plugin: the namespaces whose containers need no slice. deny-unannotated, the default slice and the maximum do not apply to containers there that request none. The hook ignores this key, because images can forge the namespace. Default: none.",
    ),
    (
        "",
        "when-not-injectable",
        "\"warn\" or \"refuse\"",
        "A container whose image cannot load the library: it starts without a slice, or not at all. Default: warn.",
    ),
    (
        "",
        "thresholds",
        "a list of thresholds ([\"available=16GiB\"])",
        "When a host of unified memory counts as short of memory, as with gpuslice run --threshold.",
    ),
    (
        "",
        "meminfo",
        "\"preload\" or \"mount\"",
        "On unified memory, who shows slices in /proc/meminfo to containers without the annotation gpuslice.io/meminfo: the library, or a file that gpusliced writes. Default: preload.",
    ),
    (
        "",
        "fence",
        "\"auto\", \"driver\" or \"preload\"",
        "Enforces the limits of containers by the driver (R615 and later) or by the preloaded library. With driver, a container that the driver cannot limit is refused. With auto, the annotation gpuslice.io/fence may choose. Default: auto, the driver if it can, else the library.",
    ),
    (
        "",
        "driver-limits",
        "\"auto\" or \"off\"",
        "off is the older form of fence = \"preload\". Default: auto.",
    ),
    (
        "",
        "runtime",
        "a list of names or paths",
        "The runtimes that gpuslice-runtime tries in turn. Default: those of NVIDIA's toolkit, then runc, crun.",
    ),
    (
        "on-error",
        "annotated",
        "\"refuse\" or \"start\"",
        "A container that asks for a slice, when the host fails. Default: refuse.",
    ),
    (
        "on-error",
        "others",
        "\"refuse\" or \"start\"",
        "The same for other containers. Default: start.",
    ),
    (
        "default",
        "memory",
        SIZE,
        "The slice of containers that ask for none, lowered to the maximum. The section needs this key.",
    ),
    (
        "default",
        "total",
        "\"slice\" or \"device\"",
        "Total that their programs see. Default: slice.",
    ),
    (
        "default",
        "present-as",
        "\"uma\" or \"discrete\"",
        "How their GPU presents itself on unified memory. Default: uma.",
    ),
    (
        "default",
        "headroom",
        SIZE,
        "How much less than the limit they are shown. Default: 0.",
    ),
    (
        "default",
        "host-allowance",
        SIZE,
        "How much of their host memory is not charged. Default: 4GiB.",
    ),
    (
        "default",
        "pressure",
        "\"refuse\" or \"release\"",
        "Reaction when the host runs short of memory. Default: refuse.",
    ),
    (
        "maximum",
        "container",
        SIZE,
        "The most that one container may have of each GPU, also if it asks for nothing. Default: all of it.",
    ),
    (
        "maximum",
        "namespace",
        SIZE,
        "The most that all containers of one Kubernetes namespace may have of each GPU. Default: all of it.",
    ),
    (
        "namespaces.NAME",
        "container",
        SIZE,
        "A lower maximum for the containers of one namespace.",
    ),
    (
        "namespaces.NAME",
        "namespace",
        SIZE,
        "A lower maximum for one namespace.",
    ),
    (
        "page-cache",
        "mode",
        "\"keep\", \"drop\" or \"drop-behind\"",
        "Keeps model files in the page cache, or evicts them, for containers that request no mode. Default: drop on unified memory, else keep.",
    ),
    (
        "page-cache",
        "mounts",
        "a list of paths",
        "The mounts of models, as containers see them. Unless the mode is keep, their pages are dropped before a container starts and after it has stopped.",
    ),
    (
        "dialects",
        "kai",
        "true or false",
        "Whether the annotations of KAI Scheduler and Run:ai request slices: gpu-memory, gpu-fraction, NvFractions. Default: false.",
    ),
    (
        "dialects",
        "hami",
        "true or false",
        "Whether the annotation of HAMi's scheduler requests slices, and the variables of HAMi-core lower them. Default: false.",
    ),
    (
        "dialects",
        "nvidia",
        "true or false",
        "Whether the variables of NVIDIA's container toolkit and of MPS lower slices. Default: false.",
    ),
];

fn config() -> Roff {
    let mut roff = begin(
        "gpuslice-config",
        "what a host allows its containers of its GPUs' memory",
        &["/etc/gpuslice/config.toml"],
    );
    paragraphs(
        &mut roff,
        "DESCRIPTION",
        &[
            "A TOML file that gpuslice-hook and gpuslice-runtime read whenever a container starts. \
             Without it, nothing is restricted. A key that is not known, or a value that is not \
             understood, is an error, and a container that asks for a slice does not start. The file \
             must belong to root, and no other user may write to it.",
            "For a hook in another prefix than /usr, PREFIX/etc/gpuslice/config.toml replaces it, if it exists.",
            "The file does not affect gpuslice run.",
        ],
    );
    let mut section = None;
    for (of, name, value, meaning) in POLICY {
        if section != Some(of) {
            section = Some(of);
            let title = match of {
                "" => "KEYS".to_owned(),
                of => format!("SECTION [{of}]"),
            };
            roff.control("SH", [title.as_str()]);
        }
        entry(
            &mut roff,
            name,
            &format!("{}. {meaning}", capitalized(value)),
        );
    }
    paragraphs(
        &mut roff,
        "FILES",
        &["The installed /etc/gpuslice/config.toml has every key, commented out."],
    );
    paragraphs(
        &mut roff,
        "SEE ALSO",
        &["gpuslice-hook(8), gpuslice-runtime(8), gpuslice-slices(5), gpusliced(1)"],
    );
    roff
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuslice_host::machine::policy;
    use std::collections::BTreeSet;

    /// The names in the error for an unknown key: "unknown field `x`, expected one of `a`, `b`".
    fn known(text: &str) -> BTreeSet<String> {
        let error = policy::parse(text).unwrap_err();
        let (_, names) = error.split_once("expected ").unwrap();
        let names = names.split('`').skip(1).step_by(2);
        names.map(str::to_owned).collect()
    }

    #[test]
    fn the_page_of_the_policy_has_the_keys_that_its_reader_knows() {
        let sections: BTreeSet<&str> = POLICY.iter().map(|key| key.0).collect();
        assert!(sections.len() > 4, "{sections:?}");
        for section in &sections {
            let text = match *section {
                "" => "unknown = 1".to_owned(),
                section => format!("[{section}]\nunknown = 1"),
            };
            let own = POLICY.iter().filter(|key| key.0 == *section);
            let mut own: BTreeSet<String> = own.map(|key| key.1.to_owned()).collect();
            if section.is_empty() {
                let named = sections.iter().filter(|section| !section.is_empty());
                own.extend(named.map(|section| section.trim_end_matches(".NAME").to_owned()));
            }
            assert_eq!(known(&text), own, "[{section}]");
        }
    }

    #[test]
    fn the_words_on_the_page_are_those_that_the_reader_takes() {
        for (section, name, value, _) in POLICY {
            let words = value.split('"').skip(1).step_by(2);
            for word in words.filter(|_| !value.starts_with("a list")) {
                let key = match section {
                    "default" if name != "memory" => format!("memory = \"8GiB\"\n{name}"),
                    _ => name.to_owned(),
                };
                let section = match section {
                    "" => String::new(),
                    section => format!("[{section}]\n"),
                };
                let text = format!("{section}{key} = \"{word}\"\n");
                assert!(policy::parse(&text).is_ok(), "{text}");
            }
        }
    }
}
