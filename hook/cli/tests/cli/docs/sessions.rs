//! Recorded sessions with gpuslice: help, and the errors for mistyped commands.

use crate::support::{Home, Installation};

#[test]
fn the_sessions_go_as_they_are_written() {
    let here = Installation::new("cli");
    let folder = here.folder.with_file_name("work");
    std::fs::create_dir_all(&folder).unwrap();
    // The sessions name these two programs but never run them.
    for name in ["gpuslice-hook", "gpuslice-runtime"] {
        std::os::unix::fs::symlink("/bin/true", here.folder.join(name)).unwrap();
    }
    // No other test sees the slices of these sessions, or remembers the headroom that they learn.
    let home = Home::new();
    cases(&here, &home).case("tests/cmd/*.trycmd");
}

#[test]
fn the_sessions_that_list_slices_go_as_they_are_written() {
    let (here, home) = (Installation::new("cli-alone"), Home::new());
    cases(&here, &home).case("tests/cmd/alone/*.trycmd");
}

fn cases(here: &Installation, home: &Home) -> trycmd::TestCases {
    let cases = trycmd::TestCases::new();
    let path = format!(
        "{}:{}",
        here.folder.display(),
        std::env::var("PATH").unwrap()
    );
    cases
        .register_bin("gpuslice", here.executable())
        .env("COLUMNS", "100")
        .env("PATH", path)
        .env("XDG_RUNTIME_DIR", home.runtime.path().to_str().unwrap())
        .env("XDG_STATE_HOME", home.state.path().to_str().unwrap())
        .env("GPUSLICE_SIM_STATE", "")
        .env("GPUSLICE_SIM_FAULTS", "")
        .insert_var("[RELEASE]", here.folder.to_str().unwrap().to_owned())
        .unwrap();
    cases
}
