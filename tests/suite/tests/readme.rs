//! The README and the handbook show what the commands in them say today.

use gpuslice_suite::place;
use std::process::Command;

/// Paths and process ids, which are other ones every time, as one word.
fn settled(text: &str) -> String {
    let lines = text.lines().map(|line| match line.split_once("  ") {
        Some(("slice" | "library", rest)) if rest.contains('/') => {
            let told = rest
                .trim_start()
                .split_once(": ")
                .map_or("", |(_, told)| told);
            told.split_once(" (from")
                .map_or("", |(told, _)| told)
                .to_owned()
        }
        _ => line.trim_end().to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}

#[test]
fn what_the_handbook_shows_of_check_is_what_check_says() {
    let page = "packaging/handbook/src/unified-memory.md";
    let page = std::fs::read_to_string(place::workspace().join(page)).unwrap();
    let sessions: Vec<&str> = page
        .split("$ gpuslice check --sim ")
        .skip(1)
        .map(|session| session.split("```").next().unwrap())
        .collect();
    assert_eq!(sessions.len(), 2);
    for session in sessions {
        let (options, shown) = session.split_once('\n').unwrap();
        let said = Command::new(place::gpuslice())
            .args(["check", "--sim"])
            .args(options.split_whitespace())
            .env_remove("LD_PRELOAD")
            .output()
            .unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        assert_eq!(
            settled(shown),
            settled(&said),
            "gpuslice check --sim {options}"
        );
    }
}
