//! Real clients, unmodified, on every simulated machine. Without a slice they report the driver's
//! numbers; in a slice they all report the slice's smaller numbers.
//! Touches: every client, on every machine, three times.

mod expected;

use expected::{Answers, Scenario};
use gpuslice_suite::clients::{Client, Says};
use gpuslice_suite::run::{Answer, Machine, Run};
use gpuslice_suite::slice::of_machine;
use gpuslice_suite::{every_client, place};

/// What a client of this kind should print.
fn expected(scenario: &Scenario, answers: &Answers, says: Says) -> String {
    let without = |text: &str, word: &str| -> String {
        text.split_inclusive('\n')
            .filter(|line| !line.contains(word))
            .collect()
    };
    match says {
        Says::Cuda => answers.cuda.into(),
        Says::OldCuda => match scenario.mig {
            Some((instance, card)) => answers.cuda.replace(instance, card),
            None => answers.cuda.into(),
        },
        Says::CudaContexts => without(answers.cuda, " device "),
        Says::Nvml => answers.nvml.into(),
        Says::NvmlV2 => without(answers.nvml, " v1 "),
        Says::Threads => answers.threads.into(),
        Says::Both => answers.both.into(),
        Says::Nvitop => answers.nvitop.into(),
        Says::Gpustat => answers.gpustat.into(),
    }
}

/// The part of a client's output that is compared: all of it, but for nvitop the column of its
/// table that shows memory (the rest are clocks, fans and the processes of this machine).
fn compared(says: Says, stdout: &str) -> String {
    if says != Says::Nvitop {
        return stdout.to_owned();
    }
    let columns = stdout
        .lines()
        .flat_map(|line| line.split('|'))
        .map(str::trim);
    let memory = columns.filter(|column| column.contains("B / ") && !column.starts_with("BAR1"));
    // Where NVML does not answer, nvitop shows /proc/meminfo. That is the test machine's.
    let own = test_machine_total();
    let told = memory.map(|column| match column.split_once(" / ") {
        Some((_, total)) if total == own => "the test machine's own",
        _ => column,
    });
    let words = |column: &str| column.split_whitespace().collect::<Vec<_>>().join(" ");
    told.map(|column| words(column) + "\n").collect()
}

/// MemTotal of the machine that runs the tests, as nvitop writes it.
fn test_machine_total() -> String {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let kilobytes: f64 = meminfo.split_whitespace().nth(1).unwrap().parse().unwrap();
    let (mebibytes, gibibytes) = (kilobytes / 1024.0, kilobytes / 1024.0 / 1024.0);
    match gibibytes {
        ..20.0 => format!("{mebibytes:.0}MiB"),
        ..100.0 => format!("{gibibytes:.2}GiB"),
        _ => format!("{gibibytes:.1}GiB"),
    }
}

/// The fault in a client's answer, if there is one.
fn wrong(
    client: &Client,
    scenario: &Scenario,
    answers: &Answers,
    answer: &Answer,
) -> Option<String> {
    let said = compared(client.says, &answer.stdout);
    if client.needs > scenario.cuda {
        // cudaErrorInsufficientDriver, with a slice as without one.
        let refused = answer.stderr.ends_with("cudaGetDeviceCount(&count): 35\n");
        let is_right = said.is_empty() && refused && answer.end == "exit 1";
        return (!is_right).then(|| format!("error 35 was expected: {answer:?}"));
    }
    let wanted = expected(scenario, answers, client.says);
    let is_right = said == wanted && answer.stderr.is_empty() && answer.end == "exit 0";
    (!is_right).then(|| format!("expected\n{wanted}, got\n{said}, all of it: {answer:?}"))
}

/// Runs every client bare, in a slice, and in the same slice by `gpuslice run`, and lists all
/// answers that are wrong.
fn clients_are_told(scenario: &Scenario) {
    let mut list = Vec::new();
    for client in every_client!() {
        let mut check = |way: &str, answers: &Answers, answer: Answer| {
            if let Some(what) = wrong(&client, scenario, answers, &answer) {
                list.push(format!("{}, {way}: {what}", client.name));
            }
        };
        let machine = Machine::new(scenario.name);
        check("bare", &scenario.bare, machine.place(client.run()).answer());

        let machine = Machine::new(scenario.name);
        let (memory, integrated) = (scenario.slice, scenario.integrated);
        let file = of_machine(machine.folder(), memory, integrated, &machine.state());
        let run = machine.place(client.run()).with_shim().slice(&file);
        check("in a slice", &scenario.sliced, run.answer());

        let (sim, memory) = (
            ["run", "--sim", scenario.name, "--memory"],
            memory.to_string(),
        );
        let command = Run::new(place::gpuslice()).args(sim).args([&memory, "--"]);
        let answer = client.run_by(command).answer();
        let answers = scenario.counted.as_ref().unwrap_or(&scenario.sliced);
        check("by gpuslice run", answers, answer);
    }
    let list = (list.len(), list.join("\n"));
    assert!(
        list.0 == 0,
        "{} answers are wrong on {}:\n{}",
        list.0,
        scenario.name,
        list.1
    );
}

#[test]
fn an_rtx3090_is_sliced_for_every_client() {
    clients_are_told(&expected::RTX3090);
}

#[test]
fn an_h200_is_sliced_for_every_client() {
    clients_are_told(&expected::H200);
}

#[test]
fn mig_instances_are_sliced_for_every_client() {
    clients_are_told(&expected::H200_MIG);
}

#[test]
fn a_gb10_is_sliced_for_every_client() {
    clients_are_told(&expected::GB10);
}

#[test]
fn an_orin_is_sliced_for_every_client() {
    clients_are_told(&expected::ORIN);
}

#[test]
fn a_thor_is_sliced_for_every_client() {
    clients_are_told(&expected::THOR);
}

#[test]
fn an_n1x_is_sliced_for_every_client() {
    clients_are_told(&expected::N1X);
}

#[test]
fn two_h200s_are_sliced_for_every_client() {
    clients_are_told(&expected::two_h200());
}

#[test]
fn two_kinds_of_cards_are_sliced_for_every_client() {
    clients_are_told(&expected::rtx3090_and_h200());
}
