//! Compares costs with stored ones. A cost that grows by more than [`TOLERANCE`] percent fails a
//! test. So does one that shrinks as much, because it could otherwise grow back unnoticed.
//! Touches: the file with the stored costs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Percent by which a cost may differ from the stored one.
pub const TOLERANCE: u64 = 3;

/// The architecture whose costs are stored.
const COUNTED_ON: &str = "x86_64";

/// A cost that was measured now.
pub struct Cost {
    /// Its name in the file.
    pub name: String,
    /// How many instructions, system calls or page faults.
    pub value: u64,
    /// By how much it may differ from the stored one, if that is more than the tolerance.
    pub slack: u64,
    /// The functions that it consists of, for the message when it has grown.
    pub detail: String,
}

/// Compares costs with those in `file`. With UPDATE_GOLDENS=1 it stores them instead, under `title`.
///
/// # Panics
/// If a cost differs by more than [`TOLERANCE`] percent, or if the file has other names or cannot be
/// read. On an architecture without a file, nothing is compared.
pub fn compare(file: &Path, title: &str, costs: &[Cost]) {
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        let mut text = format!("# {title}\n");
        for Cost { name, value, .. } in costs {
            let _never_fails = writeln!(text, "{name:<56} {value:>9}");
        }
        std::fs::write(file, text).expect("the costs are stored");
        return;
    }
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if std::env::consts::ARCH != COUNTED_ON => {
            println!("not compared: {}: {error}", file.display());
            return;
        }
        Err(error) => panic!("{}: {error}", file.display()),
    };
    let stored = read(&text);
    let wrong = differences(&stored, costs);
    assert!(
        wrong.is_empty(),
        "costs differ from {} (UPDATE_GOLDENS=1 stores them, if the change is meant):\n{}",
        file.display(),
        wrong.join("\n")
    );
}

fn read(text: &str) -> BTreeMap<&str, u64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.trim_end().rsplit_once(' '));
    pairs
        .filter_map(|(name, value)| Some((name.trim_end(), value.parse().ok()?)))
        .collect()
}

fn differences(stored: &BTreeMap<&str, u64>, costs: &[Cost]) -> Vec<String> {
    let mut wrong = Vec::new();
    for Cost {
        name,
        value,
        slack,
        detail,
    } in costs
    {
        let Some(&before) = stored.get(name.as_str()) else {
            wrong.push(format!("  {name}: {value}, and not stored"));
            continue;
        };
        let tolerance = (before.saturating_mul(TOLERANCE) / 100).max(*slack);
        if *value > before.saturating_add(tolerance) {
            wrong.push(format!("  {name}: grew from {before} to {value}. {detail}"));
        } else if *value < before.saturating_sub(tolerance) {
            wrong.push(format!("  {name}: shrank from {before} to {value}"));
        }
    }
    let gone = stored
        .keys()
        .filter(|name| costs.iter().all(|cost| cost.name != **name));
    wrong.extend(gone.map(|name| format!("  {name}: stored, and not measured")));
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(name: &str, value: u64) -> Cost {
        let (name, detail) = (name.to_owned(), "view: 9".to_owned());
        Cost {
            name,
            value,
            slack: 0,
            detail,
        }
    }

    #[test]
    fn a_cost_that_grows_or_shrinks_by_more_than_three_percent_is_named() {
        let stored = read("# title\na query, in a slice      1000\nan allocation  500\ngone 1\n");
        let costs = [
            cost("a query, in a slice", 1030),
            cost("an allocation", 485),
        ];
        assert_eq!(
            differences(&stored, &costs),
            ["  gone: stored, and not measured"]
        );
        let costs = [
            cost("a query, in a slice", 1031),
            cost("an allocation", 484),
            cost("gone", 1),
            cost("new", 7),
        ];
        assert_eq!(
            differences(&stored, &costs),
            [
                "  a query, in a slice: grew from 1000 to 1031. view: 9",
                "  an allocation: shrank from 500 to 484",
                "  new: 7, and not stored"
            ]
        );
    }
}
