//! Without a slice the library changes nothing: on discrete cards, every client prints byte for
//! byte the output that it prints without the preload.
//! Touches: every client, on every machine with discrete cards.

use gpuslice_suite::clients::{Client, Says};
use gpuslice_suite::compile::compile;
use gpuslice_suite::every_client;
use gpuslice_suite::run::{Answer, Machine, Run};

/// Runs a client on a new machine, with or without the preload; there is no slice.
fn answer(client: &Client, scenario: &str, with_shim: bool) -> Answer {
    let machine = Machine::new(scenario);
    let run = machine.place(client.run());
    let answer = if with_shim { run.with_shim() } else { run }.answer();
    match client.says {
        Says::Nvitop => Answer {
            stdout: without_the_moment(&answer.stdout),
            ..answer
        },
        _ => answer,
    }
}

/// nvitop prints three lines that differ between any two of its runs: the date, and the load of the
/// test machine's CPU and memory. These become dots; the rest of the output is compared unchanged.
fn without_the_moment(stdout: &str) -> String {
    let lines = stdout.lines().enumerate().map(|(number, line)| {
        let is_of_the_moment =
            number == 0 || line.starts_with("[ CPU:") || line.starts_with("[ MEM:");
        if is_of_the_moment {
            "…\n".to_owned()
        } else {
            format!("{line}\n")
        }
    });
    lines.collect()
}

fn is_identical(scenario: &str) {
    for client in every_client!() {
        let bare = answer(&client, scenario, false);
        assert_eq!(
            bare.end, "exit 0",
            "{} on {scenario}: {bare:?}",
            client.name
        );
        assert_eq!(
            answer(&client, scenario, true),
            bare,
            "{} on {scenario}",
            client.name
        );
    }
}

#[test]
fn an_rtx3090_is_left_alone() {
    is_identical("rtx3090");
}

#[test]
fn an_h200_is_left_alone() {
    is_identical("h200");
}

#[test]
fn mig_instances_are_left_alone() {
    is_identical("h200-mig");
}

#[test]
fn two_cards_of_one_kind_are_left_alone() {
    is_identical("2xh200");
}

#[test]
fn two_kinds_of_cards_are_left_alone() {
    is_identical("rtx3090+h200");
}

#[test]
fn unified_memory_of_another_machine_than_the_hosts_is_left_alone() {
    // The test machine's meminfo does not describe these machines, as in a container whose meminfo
    // is a copy.
    for scenario in ["gb10", "gb10-nvml-answers", "orin", "thor", "n1x"] {
        for client in every_client!() {
            if matches!(client.says, Says::Cuda | Says::OldCuda | Says::Threads) {
                let bare = answer(&client, scenario, false);
                let with_shim = answer(&client, scenario, true);
                assert_eq!(with_shim, bare, "{} on {scenario}", client.name);
            }
        }
    }
}

/// The first free mapped the tables of the library, and the end of a context called the driver twice.
#[test]
fn frees_and_the_end_of_a_context_cost_nothing_without_a_slice() {
    let words = ["-shared", "-fPIC", "-DDRIVER", "-Wl,-soname,libcuda.so.1"];
    let driver = compile("cc", "c/unsliced.c", "unsliced/libcuda.so.1", &words);
    let words = ["-L{here}", "-l:libcuda.so.1"];
    let program = compile("cc", "c/unsliced.c", "unsliced/program", &words);
    let run = || Run::new(&program).env("LD_LIBRARY_PATH", driver.parent().unwrap());
    assert_eq!(run().answer().clean(), "code 0, pages 0, queries 0\n");
    assert_eq!(
        run().with_shim().answer().clean(),
        "code 0, pages 0, queries 0\n"
    );
}
