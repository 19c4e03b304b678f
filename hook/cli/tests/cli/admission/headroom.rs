//! Learned headroom: the refusals of one run lower the TOTAL that the next run sees.

use crate::support::member::{GPU, Member};
use crate::support::{Home, Installation, eventually, start, told};
use gpuslice_config::words::units::Bytes;
use std::fs;
use std::process::Stdio;
use std::sync::LazyLock;

static HERE: LazyLock<Installation> = LazyLock::new(|| Installation::new("headroom"));

const LLAMA: [&str; 3] = ["--sim=rtx3090", "--memory=8GiB", "--name=llama"];

const LEARNS: [&str; 4] = [
    "--sim=rtx3090",
    "--memory=8GiB",
    "--name=llama",
    "--headroom=learned",
];

/// Runs a slice in which one request is refused for each size in `short_by`. Returns the content of
/// the slice file.
fn run(home: &Home, options: &[&str], short_by: &[Bytes]) -> String {
    let mut command = HERE.run(options, "echo $GPUSLICE_CONFIG; read line");
    let (mut child, config) = start(home.of(&mut command).stdin(Stdio::piped()));
    let said = fs::read_to_string(&config).unwrap();
    let member = Member::of(&config);
    for short_by in short_by {
        member.is_refused(*short_by);
    }
    drop(child.stdin.take());
    child.wait().unwrap();
    eventually("the slice file is removed", || {
        !fs::exists(&config).unwrap()
    });
    said
}

fn headroom(home: &Home, options: &[&str]) -> (String, String, i32) {
    let mut command = HERE.gpuslice();
    told(home.of(&mut command).arg("headroom").args(options))
}

fn list(rows: &[&str]) -> (String, String, i32) {
    let head = "SLICE  DEVICE                                    HEADROOM\n";
    let rows: String = rows
        .iter()
        .map(|row| format!("llama  {GPU}  {row}\n"))
        .collect();
    (format!("{head}{rows}"), String::new(), 0)
}

const NONE: &str = "no headroom has been learned\n";

fn learned(mib: u64) -> String {
    format!("      \"headroom\": {},\n", mib << 20)
}

#[test]
fn the_second_start_is_shown_less_by_what_the_first_was_short() {
    let home = Home::new();
    let options = [&LLAMA[..], &["--headroom=learned"]].concat();
    assert_eq!(headroom(&home, &[]).0, NONE);
    let first = run(
        &home,
        &options,
        &[Bytes::mib(41), Bytes::mib(143), Bytes::mib(7)],
    );
    assert!(!first.contains("      \"headroom\""), "{first}");
    assert_eq!(headroom(&home, &[]), list(&["143.00 MiB"]));
    let second = run(&home, &options, &[]);
    assert!(second.contains(&learned(143)), "{second}");
    // A smaller shortage neither replaces a larger one nor adds to it.
    run(&home, &options, &[Bytes::mib(10)]);
    assert_eq!(headroom(&home, &[]), list(&["143.00 MiB"]));
    run(&home, &options, &[Bytes::mib(150)]);
    assert_eq!(headroom(&home, &[]), list(&["150.00 MiB"]));
}

#[test]
fn a_slice_is_learned_from_and_shown_less_only_when_that_is_asked_for() {
    let home = Home::new();
    run(&home, &LLAMA, &[Bytes::mib(41)]);
    assert_eq!(headroom(&home, &[]).0, NONE);
    run(&home, &LEARNS, &[Bytes::mib(41)]);
    assert_eq!(headroom(&home, &[]), list(&["41.00 MiB"]));
    assert!(!run(&home, &LLAMA, &[]).contains("      \"headroom\""));
    let set = [&LLAMA[..], &["--headroom=1GiB"]].concat();
    assert!(run(&home, &set, &[]).contains("  \"headroom\": 1073741824,\n"));
}

#[test]
fn what_was_learned_is_one_names_and_is_forgotten_on_demand() {
    let home = Home::new();
    let other = [
        "--sim=rtx3090",
        "--memory=8GiB",
        "--name=other",
        "--headroom=learned",
    ];
    run(&home, &LEARNS, &[Bytes::mib(41)]);
    assert!(!run(&home, &other, &[Bytes::mib(1)]).contains("      \"headroom\""));
    let nothing = |said: &str| (said.to_owned(), String::new(), 0);
    assert_eq!(headroom(&home, &["reset", "other"]), nothing(""));
    assert_eq!(headroom(&home, &[]), list(&["41.00 MiB"]));
    let said = "no headroom was learned for \"other\"\n";
    assert_eq!(headroom(&home, &["reset", "other"]), nothing(said));
    assert_eq!(headroom(&home, &["reset"]), nothing(""));
    assert_eq!(headroom(&home, &[]), nothing(NONE));
    assert_eq!(
        headroom(&home, &["--json"]),
        nothing("{\n  \"schema\": 1,\n  \"headroom\": []\n}\n")
    );
}

#[test]
fn a_run_without_a_name_of_its_own_leaves_no_memory() {
    let home = Home::new();
    run(
        &home,
        &["--sim=rtx3090", "--memory=8GiB"],
        &[Bytes::mib(41)],
    );
    assert_eq!(headroom(&home, &[]).0, NONE);
}

#[test]
fn a_damaged_file_of_headroom_is_named_and_stops_no_run() {
    let home = Home::new();
    let path = home.state.path().join("gpuslice/headroom.json");
    fs::create_dir(path.parent().unwrap()).unwrap();
    fs::write(&path, "garbage").unwrap();
    let why = format!(
        "{} does not hold learned headroom: expected value at line 1 column 1 \
         (`gpuslice headroom reset` removes it)\n",
        path.display()
    );
    let failed = (String::new(), format!("gpuslice: {why}"), 125);
    assert_eq!(headroom(&home, &[]), failed);
    assert_eq!(headroom(&home, &["reset", "llama"]), failed);
    let options = [&LLAMA[..], &["--headroom=learned"]].concat();
    let mut command = HERE.run(&options, "echo started");
    let warned = format!("gpuslice: warning: {why}");
    assert_eq!(
        told(home.of(&mut command)),
        ("started\n".to_owned(), warned, 0)
    );
    let refused = |options: &[&str]| run(&home, options, &[Bytes::mib(41)]);
    refused(&LEARNS);
    assert_eq!(fs::read_to_string(&path).unwrap(), "garbage");
    assert_eq!(headroom(&home, &["reset"]).2, 0);
    refused(&LEARNS);
    assert_eq!(headroom(&home, &[]), list(&["41.00 MiB"]));
}

#[test]
fn a_simulated_run_leaves_nothing_where_real_ones_are_remembered() {
    let home = Home::new();
    let mut command = HERE.run(&LEARNS, "echo started");
    let command = home
        .of(&mut command)
        .env_remove("XDG_STATE_HOME")
        .env("HOME", home.state.path());
    let warning = "gpuslice: warning: the headroom of a simulated run is remembered only where \
                   XDG_STATE_HOME is set\n";
    assert_eq!(
        told(command),
        ("started\n".to_owned(), warning.to_owned(), 0)
    );
    assert_eq!(fs::read_dir(home.state.path()).unwrap().count(), 0);
}
