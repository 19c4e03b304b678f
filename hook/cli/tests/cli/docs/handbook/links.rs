//! Links of the pages lead to files and headings, the summary is complete, README is short.
//! Touches: the documents in the tree.

use super::{BOOK, documents, pages, prose, read, with_includes, workspace};
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// Returns the targets of links and pictures: `](target)`.
fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    let targets = prose.split("](").skip(1);
    targets
        .filter_map(|rest| rest.split(')').next().map(str::to_owned))
        .collect()
}

/// Returns the anchors that mdBook and GitHub give to headings, such as `#a-pod-that-does-not-fit`.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut block = false;
    let mut anchors = BTreeSet::new();
    for line in text.lines() {
        if line.starts_with("```") {
            block = !block;
        } else if !block && line.starts_with('#') {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter_map(|letter| match letter {
                ' ' => Some('-'),
                '-' | '_' => Some(letter),
                letter => letter.is_alphanumeric().then_some(letter),
            });
            anchors.insert(kept.collect());
        }
    }
    anchors
}

/// Returns a path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                assert!(plain.pop(), "{} leaves the repository", path.display());
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

#[test]
fn every_link_of_a_page_leads_to_a_file_and_to_a_heading_that_are_there() {
    let mut seen = 0;
    for page in documents() {
        let text = with_includes(&page);
        for link in links(&text) {
            if link.starts_with("https://") {
                continue;
            }
            seen += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => page.clone(),
                file => plain(&page.with_file_name(file)),
            };
            let name = format!("{}: ({link})", page.display());
            assert!(workspace().join(&target).exists(), "{name}: no such file");
            if page.starts_with(BOOK) {
                assert!(target.starts_with(BOOK), "{name} leaves the handbook");
            }
            if !anchor.is_empty() {
                let anchors = anchors(&with_includes(&target));
                assert!(anchors.contains(anchor), "{name}: no such heading");
            }
        }
    }
    assert!(seen > 60, "{seen}");
}

#[test]
fn the_summary_lists_every_page_of_the_handbook_once() {
    let mut listed: Vec<PathBuf> = links(&read(Path::new(BOOK).join("SUMMARY.md")))
        .iter()
        .map(|link| Path::new(BOOK).join(link))
        .collect();
    listed.push(Path::new(BOOK).join("SUMMARY.md"));
    listed.sort();
    assert_eq!(listed, pages());
}

#[test]
fn the_readme_is_short_and_wrapped() {
    let text = read("README.md");
    assert!(text.lines().count() <= 130, "{}", text.lines().count());
    for line in text.lines() {
        let is_wrapped = line.starts_with('|') || line.chars().count() <= 100;
        assert!(is_wrapped, "{line}");
    }
}
