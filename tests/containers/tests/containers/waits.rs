//! The waits of all tests have a time limit, and a failure names the awaited event.

use gpuslice_containers::patience;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

#[test]
fn a_program_that_hangs_fails_its_test_and_is_killed_with_what_it_started() {
    let pids = std::env::temp_dir().join(format!("gpuslice-hangs-{}", std::process::id()));
    let script = format!("sleep 1000 & echo $! >{}; wait", pids.display());
    let mut hangs = Command::new("sh");
    hangs.args(["-c", &script]);
    let wait = std::panic::AssertUnwindSafe(|| {
        patience::output_within(&mut hangs, Duration::from_millis(500)).is_ok()
    });
    let said = std::panic::catch_unwind(wait).expect_err("it hangs");
    let said = said.downcast_ref::<String>().expect("a message");
    assert!(
        said.contains("sleep 1000") && said.contains("has not ended"),
        "{said}"
    );
    let child = std::fs::read_to_string(&pids).expect("its child");
    let stat = Path::new("/proc").join(child.trim()).join("stat");
    patience::until("what it started is killed", || {
        std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "))
    });
    std::fs::remove_file(pids).expect("its file");
}
