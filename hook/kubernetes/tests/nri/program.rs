//! Tests the program `gpuslice-dra nri` and its readiness probe.
//! Touches: a socket, temporary folders, children.

use crate::engine::{Engine, Host, pod};
use gpuslice_dra::nri::api::RegisterRequest;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};
/// The program, which a test ends.
pub(crate) struct Program(pub(crate) Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn probe(folder: &Path) -> (bool, String) {
    let mut probe = Command::new(env!("CARGO_BIN_EXE_gpuslice-dra"));
    let probe = probe.arg("--plugins").arg(folder).args(["ready", "--nri"]);
    let output = probe.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.success(), said)
}

fn ready(folder: &Path) -> bool {
    probe(folder).0
}

pub(crate) fn wait_for(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !so() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_program_connects_again_when_the_engine_restarts() {
    let host = Host::new("");
    let (_program, socket, plugins) = host.program();
    wait_for("it says that there is no engine", || {
        plugins.join("gpuslice.io/nri-ready").exists()
    });
    assert!(!ready(&plugins));
    for _ in 0..2 {
        let listener = UnixListener::bind(&socket).unwrap();
        let mut engine = Engine::new(listener.accept().unwrap().0);
        engine.register(Ok(Vec::new()));
        engine.call("Configure", &RegisterRequest::default());
        wait_for("it is ready", || ready(&plugins));
        assert!(
            engine
                .create(&pod(&[("gpuslice.io/memory", "1GiB")]), "main")
                .is_some()
        );
        drop((engine, listener));
        std::fs::remove_file(&socket).unwrap();
        wait_for("it is not ready", || !ready(&plugins));
    }
}

#[test]
fn the_program_is_not_ready_without_the_hook_and_still_adjusts() {
    let host = Host::new("");
    let (_program, socket, plugins) = host.program();
    let listener = UnixListener::bind(&socket).unwrap();
    let mut engine = Engine::new(listener.accept().unwrap().0);
    engine.register(Ok(Vec::new()));
    engine.call("Configure", &RegisterRequest::default());
    wait_for("it is ready", || ready(&plugins));
    let hook = host.folder.path().join("usr/bin/gpuslice-hook");
    std::fs::remove_file(&hook).unwrap();
    wait_for("it is not ready", || !ready(&plugins));
    let sentence = "there is no executable /usr/bin/gpuslice-hook on this host, so no container would \
                    get its slice (install gpuslice, or name the file by --hook)";
    let (_, said) = probe(&plugins);
    assert!(said.trim_end().ends_with(sentence), "{said}");
    // The engine cannot start the container. Without the plugin it would have the whole GPU.
    let asking = pod(&[("gpuslice.io/memory", "1GiB")]);
    assert!(engine.create(&asking, "main").is_some());
    std::fs::write(&hook, "").unwrap();
    std::fs::set_permissions(&hook, Permissions::from_mode(0o755)).unwrap();
    wait_for("it is ready again", || ready(&plugins));
}
