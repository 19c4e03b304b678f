//! The lines and the JSON of a report on cached files.

use super::*;

fn seen(files: &[Option<u64>]) -> String {
    let files = files.iter().map(|before| FileReport {
        before: *before,
        ..FileReport::new("/m/a.gguf".into(), 8 << 20, State::Cached)
    });
    Report::new(files.collect(), Duration::ZERO).residency(false)
}

#[test]
fn what_may_not_be_read_is_unknown_and_not_nothing() {
    let last = |text: String| text.lines().next_back().unwrap().to_owned();
    let unknown = "cached amount unknown for 2 files (16.00 MiB)";
    assert_eq!(last(seen(&[None, None])), unknown);
    assert!(!seen(&[None, None]).contains("0 B"));
    let some = seen(&[Some(4 << 20), None]);
    let known = "4.00 MiB of 8.00 MiB cached (50%), in 1 of 1 file\n\
                 cached amount unknown for 1 file (8.00 MiB)\n";
    assert!(some.ends_with(known), "{some}");
    let all = "4.00 MiB of 16.00 MiB cached (25%), in 1 of 2 files";
    assert_eq!(last(seen(&[Some(4 << 20), Some(0)])), all);
}

fn lines(files: &[(&str, Option<u64>, u64)]) -> Vec<String> {
    let files = files.iter().map(|(path, before, size)| FileReport {
        before: *before,
        ..FileReport::new((*path).into(), *size, State::Cached)
    });
    let report = Report::new(files.collect(), Duration::ZERO);
    report.residency(false).lines().map(str::to_owned).collect()
}

#[test]
fn the_largest_comes_first_and_the_unknown_last_with_its_part_in_percent() {
    const MIB: u64 = 1 << 20;
    let said = lines(&[
        ("/m/a", Some(MIB), 1000 * MIB),
        ("/m/b", None, MIB),
        ("/m/c", Some(3 * MIB), 4 * MIB),
        ("/m/d", Some(0), 4 * MIB),
        ("/m/e", Some(4 * MIB), 4 * MIB),
    ]);
    assert_eq!(
        said,
        [
            "CACHED    PART  OF           FILE",
            "4.00 MiB  100%  4.00 MiB     /m/e",
            "3.00 MiB  75%   4.00 MiB     /m/c",
            "1.00 MiB  <1%   1000.00 MiB  /m/a",
            "?         ?     1.00 MiB     /m/b",
            "8.00 MiB of 1012.00 MiB cached (<1%), in 3 of 4 files",
            "cached amount unknown for 1 file (1.00 MiB)",
        ]
    );
}

#[test]
fn the_header_is_there_where_nothing_is_cached_and_a_summary_has_none() {
    let said = lines(&[("/m/a", Some(0), 8)]);
    assert_eq!(
        said,
        [
            "CACHED  PART  OF  FILE",
            "0 B of 8 B cached (0%), in 0 of 1 file"
        ]
    );
    let report = Report::new(Vec::new(), Duration::ZERO);
    assert_eq!(
        report.residency(true),
        "0 B of 0 B cached (-), in 0 of 0 files\n"
    );
}
