//! The README and the handbook show what commands and the demo print today.

use gpuslice_suite::place;
use std::process::Command;

/// The text without paths and process ids, which differ in every run.
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

/// The words of a text, with `PID` for each process id.
fn words(text: &str) -> Vec<String> {
    let is_pid = |word: &str| word.bytes().all(|letter| letter.is_ascii_digit());
    let settled = |word: &str| match word.trim_end_matches(')') {
        "" => word.to_owned(),
        number if is_pid(number) => word.replace(number, "PID"),
        _ => word.to_owned(),
    };
    text.split_whitespace().map(settled).collect()
}

#[test]
fn the_picture_of_the_readme_shows_what_the_demo_prints() {
    // The demo finds Python in the environment that the clients have.
    let _ = place::venv("python");
    let runtime = tempfile::tempdir_in("/dev/shm").unwrap();
    let demo = Command::new(place::workspace().join("tests/demo/two_engines.sh"))
        .env("TARGET", place::target())
        .env("XDG_RUNTIME_DIR", runtime.path())
        .env_remove("LD_PRELOAD")
        .output()
        .unwrap();
    let printed = String::from_utf8(demo.stdout).unwrap();
    assert!(demo.status.success(), "{printed}");
    let picture = place::workspace().join("packaging/picture.svg");
    let picture = std::fs::read_to_string(picture).unwrap();
    let lines = picture
        .lines()
        .filter_map(|line| line.strip_prefix("<text")?.split_once('>'))
        .filter_map(|(_, line)| line.strip_suffix("</text>"));
    let drawn = lines.collect::<Vec<_>>().join("\n");
    let drawn = drawn
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&");
    assert_eq!(words(&drawn), words(&printed), "run `make picture`");
}
