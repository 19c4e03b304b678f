//! The keys and faults of slices files.

use super::*;
use crate::slice::choices::{MeminfoChoice, PageCacheChoice, PresentAsChoice, TotalChoice};
use crate::slice::options::Headroom;
use clap::{Args as _, Command};
use proptest::prelude::*;
use std::collections::BTreeSet;

const ALL: &str = r#"
# every key
[chat]
memory = "12GiB"
device = { 1 = "8GiB", GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4 = 4294967296 }
total = "device"
present-as = "discrete"
headroom = "512MiB"
maximum = "20GiB"
reserve = 0
host-allowance = "4GiB"
managed = "allow"
pressure = "release"
threshold = ["available=16GiB", "full=5"]
page-cache = "drop-behind"
page-cache-share = true
overcommit = true
meminfo = "mount"
fence = "preload"
enforce = false
command = ["vllm", "serve", "it's a model"]
env = { HF_HOME = "/models", A_1 = "" }
weights = "8GiB"

[embeddings]
device.0 = "4GiB"
headroom = "learned"
"#;

fn fault(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn every_key_becomes_the_option_of_its_name() {
    let slices = parse(ALL).unwrap();
    let [chat, embeddings] = slices.as_slice() else {
        panic!("{slices:?}");
    };
    assert_eq!((chat.name(), chat.line), ("chat", 3));
    assert_eq!((embeddings.name(), embeddings.line), ("embeddings", 25));
    let options = &chat.options;
    assert_eq!(options.memory, Some(Bytes::gib(12)));
    let devices: Vec<_> = options.device.iter().map(|one| one.memory).collect();
    assert_eq!(devices, [Bytes::gib(8), Bytes::gib(4)]);
    assert_eq!(options.total, Some(TotalChoice::Device));
    assert_eq!(options.present_as, Some(PresentAsChoice::Discrete));
    assert_eq!(options.headroom, Some(Headroom::Set(Bytes::mib(512))));
    assert_eq!(options.maximum, Some(Bytes::gib(20)));
    assert_eq!(options.reserve, Some(Bytes::ZERO));
    assert_eq!(options.page_cache, Some(PageCacheChoice::DropBehind));
    assert_eq!(options.meminfo, Some(MeminfoChoice::Mount));
    assert_eq!(options.threshold.len(), 2);
    assert!(options.page_cache_share && options.overcommit && options.no_enforce);
    assert_eq!(chat.command, ["vllm", "serve", "it's a model"]);
    assert_eq!(chat.weights, Some(Bytes::gib(8)));
    let names: Vec<_> = options.env.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["HF_HOME", "A_1"]);
    assert_eq!(embeddings.options.headroom, Some(Headroom::Learned));
    assert!(!embeddings.options.no_enforce && embeddings.command.is_empty());
    // The text above has every key.
    for key in &KEYS {
        let is_given = ALL.contains(&format!("\n{} = ", key.name));
        assert!(is_given, "{}", key.name);
    }
}

#[test]
fn an_empty_file_has_no_slices() {
    assert_eq!(parse("# nothing yet\n"), Ok(Vec::new()));
}

/// Options that say where and how a program runs, and not what its slice is.
const OF_THE_START: [&str; 6] = ["bare", "config", "log", "log-file", "name", "sim"];

#[test]
fn every_option_that_describes_a_slice_has_a_key() {
    let command = SliceOptions::augment_args(Command::new("run"));
    let options = command
        .get_arguments()
        .filter_map(|option| option.get_long());
    let options: BTreeSet<&str> = options.collect();
    let with_key: BTreeSet<&str> = KEYS.iter().filter_map(|key| key.option).collect();
    let rest: BTreeSet<&str> = OF_THE_START.into();
    assert_eq!(options, with_key.union(&rest).copied().collect());
}

#[test]
fn a_fault_names_its_line_its_key_and_what_is_allowed() {
    for (text, told) in [
        (
            "[a]\nmemory = \"12Q\"",
            "line 2: [a] memory: \"12Q\": not a size: unknown unit (use KiB, MiB, GiB or TiB, for example 12GiB)",
        ),
        (
            "[a]\nmemory = 8",
            "line 2: [a] memory: 8 without a unit is 8 B, too little for any program (did you mean 8GiB?)",
        ),
        (
            "[a]\nmemory = true",
            "line 2: [a] memory: expected a size (\"12GiB\") or a number of bytes, found true or false",
        ),
        (
            "[a]\nmemory = 1.5",
            "line 2: [a] memory: expected a size (\"12GiB\") or a number of bytes, found a number with a fraction",
        ),
        (
            "[a]\nmemory = \"1GiB\"\n\ntotal = \"card\"",
            "line 4: [a] total: \"card\" is not one of: slice, device",
        ),
        (
            "[a]\nmemory = \"1GiB\"\nenforce = \"no\"",
            "line 3: [a] enforce: expected true or false, found a string",
        ),
        (
            "[a.device]\n0 = \"8GiB\"\n-1 = \"8GiB\"",
            "line 3: [a] device: \"-1\" is neither an index nor a uuid (write 0 = \"8GiB\" or \"GPU-…\" = \"8GiB\")",
        ),
        (
            "[a]\nmemory = \"1GiB\"\ncommand = \"vllm serve\"",
            "line 3: [a] command: expected a list of texts ([\"vllm\", \"serve\", \"MODEL\"]), found a string",
        ),
        (
            "[a]\nmemory = \"1GiB\"\ncommand = []",
            "line 3: [a] command: the first text names the program, and there is none",
        ),
        (
            "[a]\nmemory = \"1GiB\"\nthreshold = [\n  \"full=5\",\n  \"speed=5\",\n]",
            "line 5: [a] threshold: \"speed=5\": there is no threshold \"speed\" (full, available, request, used, freed)",
        ),
        (
            "[a]\nmemory = \"1GiB\"\n[a.env]\nB = \"1\"\nGPUSLICE_CONFIG = \"x\"",
            "line 5: [a] env: gpuslice sets GPUSLICE_CONFIG itself",
        ),
        (
            "[a]\nmemory = \"1GiB\"\nenv = { \"A-B\" = \"\" }",
            "line 3: [a] env: \"A-B\" is not the name of a variable (letters, digits and _)",
        ),
        (
            "[a]\nheadroom = \"1GiB\"",
            "line 1: [a] has no limit: give it memory = \"12GiB\", or device",
        ),
        (
            "memory = \"1GiB\"",
            "line 1: \"memory\" stands outside of a slice: begin one with a line [NAME]",
        ),
        (
            "[[a]]\nmemory = 1",
            "line 1: write [a] for a slice, not [[a]]",
        ),
        (
            "[\"\"]\nmemory = 1",
            "line 1: \"\" cannot name a slice: a name must not be empty",
        ),
        (
            "[a]\nmemory = \n",
            "line 2: not TOML: string values must be quoted, expected literal string",
        ),
        (
            "[a]\nmemory = 1\nmemory = 2",
            "line 3: not TOML: duplicate key",
        ),
    ] {
        assert_eq!(fault(text), told, "{text}");
    }
    let unknown = |key: &str| fault(&format!("[a]\nmemory = \"1GiB\"\n{key} = 1"));
    assert_eq!(
        unknown("memroy"),
        "line 3: [a] has no key \"memroy\"; did you mean memory?"
    );
    let all = "line 3: [a] has no key \"xyz\"; its keys are memory, device, ";
    assert!(unknown("xyz").starts_with(all));
    assert!(!fault("[a]\nmemory = -5").contains("leave it out"));
}

#[test]
fn a_message_about_options_is_reworded_for_the_file() {
    for (of_options, of_file) in [
        (
            "--memory 80.00 GiB is more than GPU 0 has; give at most 24259MiB",
            "memory 80.00 GiB is more than GPU 0 has; give at most \"24259MiB\"",
        ),
        (
            "--page-cache-share and --no-enforce",
            "page-cache-share and enforce = false",
        ),
        ("--log says --", "--log says --"),
    ] {
        assert_eq!(keys::named_by_keys(of_options), of_file);
    }
}

#[test]
fn a_fault_moves_no_cursor() {
    assert_eq!(
        fault("[\"a\\u001b\"]\nmemory = 1"),
        "line 1: \"a\\u{1b}\" cannot name a slice: no quotes, backslashes or control characters"
    );
}

/// Writes a value as TOML.
fn toml_string(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused_with_a_line(text in "\\PC{0,200}|[\\[\\]a-z=\"\\n{}., 0-9]{0,200}") {
        if let Err(fault) = parse(&text) {
            prop_assert!(fault.line >= 1 && fault.line <= text.matches('\n').count().saturating_add(1));
            prop_assert!(!fault.message.is_empty());
        }
    }

    #[test]
    fn what_was_written_is_read_back(
        slices in prop::collection::btree_map("[a-z0-9 ._-]{1,12}", (1_u64..1 << 40, "\\PC{0,20}"), 0..6),
        total in prop::sample::select(vec!["slice", "device"]),
    ) {
        let mut text = String::new();
        for (name, (memory, argument)) in &slices {
            text += &format!(
                "[{}]\nmemory = \"{memory}MiB\"\ntotal = \"{total}\"\ncommand = [\"x\", {}]\n",
                toml_string(name),
                toml_string(argument),
            );
        }
        let read = parse(&text).unwrap();
        prop_assert_eq!(read.len(), slices.len());
        for (slice, (name, (memory, argument))) in read.iter().zip(&slices) {
            prop_assert_eq!(slice.name(), name);
            prop_assert_eq!(slice.options.memory, Some(Bytes::mib(*memory)));
            prop_assert_eq!(&slice.command, &["x", argument.as_str()]);
        }
    }

    /// A valid file with one line damaged is understood, or the fault names that line or a later one.
    #[test]
    fn a_damaged_line_is_not_blamed_on_an_earlier_one(
        line in 2_usize..19, damage in "[\\]\\[={}\"a-z0-9 ]{1,12}",
    ) {
        let mut lines: Vec<String> = ALL.lines().map(str::to_owned).collect();
        lines[line].push_str(&damage);
        if let Err(fault) = parse(&lines.join("\n")) {
            // A table's own name may be damaged, and the slice is then another.
            prop_assert!(fault.line > line, "{} {}", fault.line, line);
        }
    }
}
