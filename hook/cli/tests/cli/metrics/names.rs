//! The handbook's page on metrics has the table of the code.

use gpuslice_cli::commands::metrics::{Family, Type, compatible, families};
use std::fs;
use std::path::Path;

const START: &str = "<!-- The next table is made by `make goldens`. -->\n";

fn row(family: &Family) -> String {
    let kind = match family.kind {
        Type::Gauge => "gauge",
        Type::Counter => "counter",
    };
    let (name, labels, help) = (family.full_name(), family.labels, family.help);
    format!("| `{name}` | {kind} | {labels} | {help} |\n")
}

fn table<'a>(families: impl IntoIterator<Item = &'a Family>) -> String {
    let rows: String = families.into_iter().map(row).collect();
    format!("\n| metric | type | labels | meaning |\n|---|---|---|---|\n{rows}")
}

#[test]
fn golden_the_page_on_metrics_has_every_metric() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/handbook/src/metrics.md");
    let page = fs::read_to_string(&path).unwrap();
    let mut tables = vec![table(families::ALL)];
    let others = compatible::ALL.iter();
    tables.extend(others.map(|(_, families)| table(*families)));
    let mut parts = page.split(START);
    let mut made = parts.next().unwrap().to_owned();
    for (part, table) in parts.zip(&tables) {
        let is_table = |line: &&str| line.trim().is_empty() || line.starts_with('|');
        let length: usize = part
            .split_inclusive('\n')
            .take_while(is_table)
            .map(str::len)
            .sum();
        made = [&made, START, table, "\n", &part[length..]].concat();
    }
    assert_eq!(page.matches(START).count(), tables.len());
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        fs::write(&path, &made).unwrap();
    }
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        made,
        "run `make goldens`"
    );
}
