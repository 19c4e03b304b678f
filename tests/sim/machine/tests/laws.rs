//! Laws that hold whatever programs do: charges add up, no memory is lost, and none is promised
//! twice.
//! Touches: temporary state directories.
#![expect(
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "a test may stop"
)]

use gpuslice_sim_machine::{Kind, Machine, STEP, Truth};
use proptest::prelude::*;
use std::fs;
use tempfile::TempDir;

const GIB: u64 = 1 << 30;

#[derive(Debug, Clone)]
enum Step {
    Take(Kind, u64),
    GiveBack(usize),
    Context,
    Share(usize),
    Cache(u64),
    Host(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![
        Just(Kind::Alloc),
        Just(Kind::Pool),
        Just(Kind::Vmm),
        Just(Kind::Host)
    ];
    prop_oneof![
        4 => (kind, 1..20_000_u64).prop_map(|(kind, steps)| Step::Take(kind, steps * STEP)),
        2 => any::<usize>().prop_map(Step::GiveBack),
        1 => Just(Step::Context),
        1 => any::<usize>().prop_map(Step::Share),
        1 => (0..100_u64).prop_map(|gib| Step::Cache(gib * GIB)),
        1 => (0..100_u64).prop_map(|gib| Step::Host(gib * GIB)),
    ]
}

/// The expected result of a list of steps.
#[derive(Default)]
struct Book {
    held: Vec<(Kind, u64)>,
    shared: u64,
    contexts: u64,
}

fn play(machine: &Machine, step: &Step, book: &mut Book) {
    let before = machine.truth();
    match step {
        Step::Take(kind, bytes) => {
            let granted = machine.charge(0, *kind, *bytes).is_ok();
            assert_eq!(
                granted,
                *bytes <= before.devices[0].allocatable,
                "what is allocatable is granted"
            );
            if granted {
                book.held.push((*kind, *bytes));
            } else {
                assert_eq!(machine.truth(), before, "refused means nothing changed");
            }
        }
        Step::GiveBack(i) if !book.held.is_empty() => {
            let (kind, bytes) = book.held.swap_remove(i % book.held.len());
            machine.discharge(0, kind, bytes);
        }
        Step::Share(i) if !book.held.is_empty() && book.shared < 8 * GIB => {
            let (kind, bytes) = book.held.swap_remove(i % book.held.len());
            machine.share(0, kind, bytes).unwrap();
            book.shared += bytes;
        }
        Step::Context => book.contexts += u64::from(machine.context_created(0).is_ok()),
        Step::Cache(bytes) => machine.change_cache(&format!("={bytes}")).unwrap(),
        Step::Host(bytes) => machine.change_host(&format!("={bytes}")).unwrap(),
        Step::GiveBack(_) | Step::Share(_) => {}
    }
}

fn check(machine: &Machine, truth: &Truth, book: &Book) {
    let device = &truth.devices[0];
    let context = machine.gpu(0).context;
    let expected =
        book.held.iter().map(|it| it.1).sum::<u64>() + book.shared + book.contexts * context;
    assert_eq!(device.used, expected);
    assert_eq!(
        device.used,
        device.processes.iter().map(|it| it.used).sum::<u64>()
    );
    assert_eq!(machine.query(0).free, device.free);
    match &truth.host {
        None => assert_eq!(device.used + device.free, device.total),
        Some(host) => {
            assert_eq!((device.total, device.free), (host.mem_total, host.mem_free));
            assert!(host.mem_free <= host.mem_available && host.mem_available <= host.mem_total);
            assert_eq!(host.mem_available, host.mem_free + host.cache);
        }
    }
}

fn law(scenario: &str, steps: &[Step]) {
    let state = TempDir::new().unwrap();
    let machine = Machine::start(Some(scenario), Some(state.path()), "").unwrap();
    let mut book = Book::default();
    for step in steps {
        play(&machine, step, &mut book);
        check(&machine, &machine.truth(), &book);
    }
    // Another process sees the same. Here, the same state is opened a second time instead.
    assert_eq!(
        Machine::open(state.path()).unwrap().truth(),
        machine.truth()
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn charges_add_up_on_a_card(steps in prop::collection::vec(step(), 1..40)) {
        law("rtx3090", &steps);
    }

    #[test]
    fn charges_add_up_on_unified_memory(steps in prop::collection::vec(step(), 1..40)) {
        law("gb10", &steps);
    }
}

#[test]
fn meminfo_has_the_kernels_lines_and_its_numbers_agree() {
    let state = TempDir::new().unwrap();
    let machine = Machine::start(Some("gb10"), Some(state.path()), "").unwrap();
    machine.change_cache("+60GiB").unwrap();
    machine.change_host("+6GiB").unwrap();
    let text = fs::read_to_string(state.path().join("meminfo")).unwrap();
    let real = "MemTotal MemFree MemAvailable Buffers Cached SwapCached Active Inactive Active(anon) Inactive(anon) \
                Active(file) Inactive(file) Unevictable Mlocked SwapTotal SwapFree";
    let names: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split(':').next())
        .collect();
    assert_eq!(names[..16].join(" "), real);
    assert!(text.len() < 2048, "llama.cpp reads two kilobytes");
    let kib = |name: &str| -> u64 {
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("{name}:")))
            .unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let host = machine.host_memory().unwrap();
    assert_eq!(
        [kib("MemTotal"), kib("MemFree"), kib("MemAvailable")].map(|it| it * 1024),
        [host.mem_total, host.mem_free, host.mem_available]
    );
    assert_eq!(
        kib("Buffers") + kib("Cached") - kib("Shmem") + kib("SReclaimable"),
        host.cache / 1024,
        "the lines of page cache add up"
    );
}

#[test]
fn meminfo_is_never_left_with_the_end_of_a_longer_one() {
    let state = TempDir::new().unwrap();
    let machine = Machine::start(Some("gb10"), Some(state.path()), "").unwrap();
    // MemFree falls from nine digits to eight.
    machine.change_host("+30GiB").unwrap();
    let text = fs::read_to_string(state.path().join("meminfo")).unwrap();
    assert_eq!(text.matches("Hugepagesize:").count(), 1, "{text}");
    assert!(text.lines().all(|line| line.contains(':')), "{text}");
}

#[test]
fn a_machine_without_a_state_directory_is_the_processes_own() {
    let one = Machine::start(Some("rtx3090"), None, "").unwrap();
    let other = Machine::start(Some("rtx3090"), None, "").unwrap();
    one.charge(0, Kind::Alloc, GIB).unwrap();
    assert_eq!(
        other.query(0).free,
        other.query(0).total - GIB,
        "two libraries of one process share the machine"
    );
}

#[test]
fn memory_that_is_managed_spills_instead_of_failing() {
    let state = TempDir::new().unwrap();
    let machine = Machine::start(Some("rtx3090"), Some(state.path()), "").unwrap();
    let total = machine.query(0).total;
    assert_eq!(
        machine.charge_up_to(0, Kind::Managed, 100 * GIB),
        total / STEP * STEP
    );
    assert!(machine.charge(0, Kind::Alloc, STEP).is_err());
}

#[test]
fn a_scenario_of_ones_own_may_be_a_file() {
    let state = TempDir::new().unwrap();
    let file = state.path().join("mine.toml");
    let text = include_str!("../../scenarios/rtx3090.toml").replace("25438126080", "\"8GiB\"");
    fs::write(&file, text).unwrap();
    let machine = Machine::start(file.to_str(), Some(state.path()), "").unwrap();
    assert_eq!(machine.query(0).total, 8 * GIB);
    fs::write(&file, "driver = 1").unwrap();
    let wrong = Machine::start(file.to_str(), None, "")
        .err()
        .unwrap()
        .to_string();
    assert!(wrong.contains("mine.toml"), "{wrong}");
}
