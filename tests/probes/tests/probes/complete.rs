//! Every name in the table of symbols has a line in the output of a probe.
//! Touches: `shim/src/symbols.rs`, by inclusion; the folder of probes.

use gpuslice_probes::Bench;
use std::collections::BTreeSet;
use std::path::Path;

/// The names of the table.
macro_rules! symbols {
    ($( $lib:ident fn $name:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty = $($hook:ident)::+
        $(, as $base:literal since $since:literal $($per_thread:ident)? )? ; )*) => {
        const NAMES: &[(&str, &str)] = &[$( (stringify!($lib), stringify!($name)) ),*];
    };
}

include!("../../../../shim/src/symbols.rs");

/// The probes of the folder: the programs that take a route as an argument.
fn probes() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("c");
    let mut probes = BTreeSet::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if std::fs::read_to_string(&path)
            .unwrap()
            .contains("route = words[1]")
        {
            let name = path.file_stem().unwrap();
            probes.insert(name.to_str().unwrap().to_owned());
        }
    }
    probes
}

#[test]
fn every_line_of_the_table_has_a_probe() {
    let bench = Bench::counted("rtx3090", "\"memory\":8589934592");
    let mut probed = BTreeSet::new();
    for probe in probes() {
        // Both runtimes are needed, because some functions are in one of them only.
        for major in [12, 13] {
            for line in bench.probe(&probe, major, "dlsym").lines() {
                probed.insert(line.split(' ').next().unwrap().to_owned());
            }
        }
    }
    let lacking: Vec<&str> = NAMES
        .iter()
        // Every probe uses libc's routes, and `safety.rs` tests them.
        .filter(|(library, name)| *library != "Libc" && !probed.contains(*name))
        .map(|(_, name)| *name)
        .collect();
    assert_eq!(lacking, [""; 0]);
}
