//! Unified memory without a slice. Page cache does not count as used, the host keeps its reserve,
//! and NVML answers, whichever way its driver fails to answer.
//! Touches: every client on every machine of unified memory, with a slice file that names only the
//! host's meminfo.

use gpuslice_sim_machine::Machine as Simulated;
use gpuslice_suite::clients::{Client, Says};
use gpuslice_suite::compile::linked_cuda;
use gpuslice_suite::every_client;
use gpuslice_suite::run::{Machine, Run};
use gpuslice_suite::slice::{GIB, write};
use serde_json::json;

const MACHINES: [&str; 4] = ["gb10", "orin", "thor", "n1x"];

/// Starts a machine, so that its meminfo exists, and writes the slice file that names the meminfo.
fn machine(scenario: &str) -> (Machine, Simulated, std::path::PathBuf) {
    let machine = Machine::new(scenario);
    let simulated = Simulated::start(Some(scenario), Some(&machine.state()), "").unwrap();
    let file = machine.folder().join("slice.json");
    let meminfo = machine.state().join("meminfo").display().to_string();
    write(
        &file,
        json!({"version": 1, "meminfo": meminfo})
            .to_string()
            .as_bytes(),
    );
    (machine, simulated, file)
}

/// The reserve that policy sets for a host of this size.
fn reserve(total: u64) -> u64 {
    let total = gpuslice_config::words::units::Bytes::new(total);
    gpuslice_config::slice::host_reserve::default_reserve(total).get()
}

/// Every number that follows `name=` in a client's output.
fn numbers(said: &str, name: &str) -> Vec<u64> {
    let words = said.split_whitespace();
    let values = words.filter_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    values.map(|value| value.parse().unwrap()).collect()
}

fn is_told(client: &Client, scenario: &str) {
    let (machine, simulated, file) = machine(scenario);
    let host = simulated.truth().host.unwrap();
    let most = host.mem_available - reserve(host.mem_total);
    let run = machine.place(client.run()).with_shim().slice(&file);
    let said = run.answer().clean();
    let totals = numbers(&said, "total");
    let named = format!("{} on {scenario}: {said}", client.name);
    assert!(!totals.is_empty(), "{named}");
    assert!(
        totals.iter().all(|total| *total == host.mem_total),
        "{named}"
    );
    // A context or two and the client's own allocations lower free memory.
    for free in numbers(&said, "free") {
        assert!(
            free <= most && free > most - 3 * GIB,
            "{free} of {most}: {named}"
        );
    }
    assert!(!said.contains("error="), "{named}");
}

#[test]
fn every_client_is_told_the_same_on_every_machine() {
    let mut told = 0;
    for scenario in MACHINES {
        for client in every_client!() {
            if !matches!(client.says, Says::Nvitop | Says::Gpustat) && client.needs <= 12_000 {
                is_told(&client, scenario);
                told += 1;
            }
        }
    }
    assert!(told > 30, "{told} clients were asked");
}

#[test]
fn page_cache_moves_the_drivers_answer_and_not_ours() {
    let (machine, simulated, file) = machine("gb10");
    let ask = |with_shim: bool| {
        let run = machine.place(Run::new(linked_cuda()));
        let run = if with_shim {
            run.with_shim().slice(&file)
        } else {
            run
        };
        numbers(&run.answer().clean(), "free")[0]
    };
    let (drivers, ours) = (ask(false), ask(true));
    simulated.change_cache("+60GiB").unwrap();
    let moved = drivers - ask(false);
    assert_eq!(
        moved,
        60 * GIB,
        "the driver's own free memory falls by the page cache"
    );
    assert_eq!(ask(true), ours);
    simulated.change_host("+10GiB").unwrap();
    assert_eq!(
        ask(true),
        ours - 10 * GIB,
        "memory that programs hold is not free"
    );
}

#[test]
fn a_copy_of_meminfo_is_not_believed() {
    let (machine, simulated, file) = machine("gb10");
    let copy = machine.folder().join("meminfo");
    // A copy as lxcfs makes it, with the memory that a container may have.
    write(
        &copy,
        b"MemTotal: 50331648 kB\nMemFree: 40000000 kB\nMemAvailable: 45000000 kB\n",
    );
    let named = copy.display().to_string();
    write(
        &file,
        json!({"version": 1, "meminfo": named})
            .to_string()
            .as_bytes(),
    );
    let run = machine
        .place(Run::new(linked_cuda()))
        .with_shim()
        .slice(&file);
    let said = run.answer().clean();
    let context = 256 << 20;
    let host = simulated.truth().host.unwrap();
    assert_eq!(numbers(&said, "free")[0], host.mem_free - context, "{said}");
}

#[test]
fn missing_and_garbled_meminfo_leave_the_drivers_answer() {
    for text in [
        &b""[..],
        b"garbage",
        b"MemTotal: 127600748 kB\n",
        b"MemTotal: 127600748 kB\nMemFree: 999999999999 kB\nMemAvailable: 1 kB\n",
        b"MemTotal: -1 kB\nMemFree: -1 kB\nMemAvailable: -1 kB\n",
        &[0xff; 5000],
    ] {
        let (machine, _simulated, file) = machine("gb10");
        let bad = machine.folder().join("meminfo");
        write(&bad, text);
        let named = bad.display().to_string();
        write(
            &file,
            json!({"version": 1, "meminfo": named})
                .to_string()
                .as_bytes(),
        );
        let bare = machine.place(Run::new(linked_cuda())).answer();
        let run = machine
            .place(Run::new(linked_cuda()))
            .with_shim()
            .slice(&file);
        assert_eq!(run.answer(), bare, "{text:?}");
    }
}

#[test]
fn without_memavailable_an_old_kernels_other_lines_are_used() {
    let (machine, simulated, file) = machine("gb10");
    let old = machine.folder().join("meminfo");
    let live = std::fs::read_to_string(machine.state().join("meminfo")).unwrap();
    let without = live
        .lines()
        .filter(|line| !line.starts_with("MemAvailable"));
    write(&old, without.collect::<Vec<_>>().join("\n").as_bytes());
    let named = old.display().to_string();
    write(
        &file,
        json!({"version": 1, "meminfo": named})
            .to_string()
            .as_bytes(),
    );
    let run = machine
        .place(Run::new(linked_cuda()))
        .with_shim()
        .slice(&file);
    let free = numbers(&run.answer().clean(), "free")[0];
    let host = simulated.truth().host.unwrap();
    let most = host.mem_available - reserve(host.mem_total);
    assert!(free < most && free > most - 12 * GIB, "{free} of {most}");
}
