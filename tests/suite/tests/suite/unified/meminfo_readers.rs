//! Programs that read the memory of a machine, in a run with a mounted `/proc/meminfo`: by libc, by
//! system calls, and by `sysinfo`.
//! Touches: runs on a simulated GB10, in mount namespaces. Needs root.

use super::meminfo_mounted::{LIMIT, is_root, run};
use gpuslice_suite::compile;
use gpuslice_suite::run::{Machine, Run};

const MIB: u64 = 1 << 20;

#[test]
fn sysinfo_is_the_hosts_for_programs_without_the_library() {
    if !is_root() {
        return;
    }
    let machine = Machine::new("gb10");
    let said = run(&machine, &["--meminfo", "mount"]).args(["busybox", "free", "-k"]);
    let said = said.answer().stdout;
    let words = said.lines().find_map(|line| line.strip_prefix("Mem:"));
    let total = words.and_then(|words| words.split_whitespace().next());
    // The simulated machine has a meminfo of its own, but no `sysinfo`.
    let hosts = std::fs::read_to_string("/proc/meminfo").unwrap();
    let hosts = hosts
        .lines()
        .next()
        .and_then(|line| line.split_whitespace().nth(1));
    assert!(total.is_some(), "{said}");
    assert_eq!(total, hosts, "{said}");
}

/// Half of the memory that Java sees, which is the size of its heap.
fn heap(run: Run) -> u64 {
    let flags = [
        "-XX:+UseContainerSupport",
        "-XX:MaxRAMPercentage=50",
        "-XX:+PrintFlagsFinal",
    ];
    let said = run.args(flags).arg("-version").answer().stdout;
    let line = said
        .lines()
        .find(|line| line.contains(" MaxHeapSize "))
        .unwrap_or_else(|| panic!("no heap: {said}"));
    line.split_whitespace().nth(3).unwrap().parse().unwrap()
}

#[test]
#[ignore = "make readers: installs node and Java"]
fn node_and_java_see_the_slice_where_it_is_mounted() {
    if !is_root() {
        return;
    }
    let script = "const os = require('os'), fs = require('fs');\
        console.log(os.totalmem(), os.freemem());\
        console.log(fs.readFileSync('/proc/meminfo', 'utf8').split('\\n')[0]);";
    let java = compile::find("java").expect("tests/setup.sh readers installs it");
    let of_this_machine = heap(Run::new(&java));
    let without_library = ["env", "-u", "LD_PRELOAD"];
    for before in [&[][..], &without_library] {
        let machine = Machine::new("gb10");
        let mounted = || run(&machine, &["--meminfo", "mount"]).args(before);
        let said = mounted().args(["node", "-e", script]).answer();
        // The library keeps the spaces of the kernel's text. A mounted page has its own.
        let words: Vec<&str> = said.stdout.split_whitespace().collect();
        let (bytes, kibibytes) = (LIMIT.to_string(), (LIMIT >> 10).to_string());
        let expected = [&*bytes, &*bytes, "MemTotal:", &*kibibytes, "kB"];
        assert_eq!(words, expected, "{before:?} {said:?}");
        // Java calls `sysinfo`, which only the library replaces.
        let seen = heap(mounted().arg(&java));
        match before.is_empty() {
            true => assert!(seen.abs_diff(LIMIT / 2) < 64 * MIB, "{seen}"),
            false => assert_eq!(seen, of_this_machine),
        }
    }
}
