//! Look-ups of the driver in a linker namespace of their own, while the program loads and unloads
//! libraries.
//! Touches: `tests/clients/c/lookups_apart.c`, on a simulated card.

use gpuslice_suite::compile::compile;
use gpuslice_suite::run::{Machine, Run};
use gpuslice_suite::slice::{GIB, of_all_devices};
use std::time::Duration;

/// How often the program loads and unloads a library. It takes a second or two.
const ROUNDS: &str = "10000";

#[test]
fn look_ups_in_a_namespace_go_on_while_the_program_unloads_libraries() {
    let compiled = |name: &str, words: &[&str]| compile("cc", "c/lookups_apart.c", name, words);
    let library = ["-shared", "-fPIC"];
    let driver = ["-L{sim}", "-l:libcuda.so.1"];
    let plugin = [&["-DPLUGIN"], &library[..], &driver].concat();
    let plugin = compiled("namespace-plugin.so", &plugin);
    let other = compiled("namespace-other.so", &[&["-DOTHER"], &library[..]].concat());
    let program = compiled("namespace", &["-ldl", "-pthread"]);
    let machine = Machine::new("rtx3090");
    let slice = of_all_devices(machine.folder(), 8 * GIB, &machine.state());
    for route in ["default", "next", "handle"] {
        let run = || {
            let run = Run::new(&program).arg(&plugin).arg(route).arg(&other);
            machine.place(run.arg(ROUNDS).patience(Duration::from_secs(60)))
        };
        assert_eq!(run().answer().clean(), "25438126080\n", "{route}, bare");
        let sliced = run().with_shim().slice(&slice).answer();
        assert_eq!(sliced.clean(), format!("{}\n", 8 * GIB), "{route}");
    }
}
