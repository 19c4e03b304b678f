//! Programs whose dynamic loader is not the one of their image's glibc.
//! Touches: mount namespaces of its own. Needs root.

use crate::support::{Container, Host, is_root, text};
use std::fs;
use std::os::unix::fs::symlink;

/// /bin/true, with another path of its loader.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "offsets in a file of the system"
)]
fn program_of(loader: &str) -> Vec<u8> {
    let mut program = fs::read("/bin/true").unwrap();
    let number = |at: usize| u64::from_le_bytes(program[at..at + 8].try_into().unwrap());
    let headers = usize::try_from(number(32)).unwrap();
    let mut headers = (0..).map(|index| headers + index * 56);
    let interp = headers.find(|at| program[*at] == 3).unwrap();
    let place = (program.len() as u64, loader.len() as u64 + 1);
    program[interp + 8..][..8].copy_from_slice(&place.0.to_le_bytes());
    program[interp + 32..][..8].copy_from_slice(&place.1.to_le_bytes());
    program.extend(loader.as_bytes());
    program.push(0);
    program
}

/// Starts a container with this program. Returns the hook's message, and its record's.
fn says(container: &Container<'_>, loader: &str) -> (String, Option<String>) {
    fs::write(container.rootfs().join("program"), program_of(loader)).unwrap();
    let spec = serde_json::json!({
        "root": {"path": "rootfs"}, "annotations": {"gpuslice.io/memory": "8GiB"},
        "process": {"args": ["/program"]},
    });
    fs::write(container.bundle.join("config.json"), spec.to_string()).unwrap();
    let said = container.hook(&["createRuntime"]);
    assert!(said.status.success(), "{said:?}");
    let record = text(container.host.run(&format!("slices/{}.json", container.id)));
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    let member = &record["containers"][0];
    assert!(member["no_slice"].is_null(), "it has its slice: {record}");
    let not_limited = member["not_limited"].as_str().map(str::to_owned);
    (String::from_utf8(said.stderr).unwrap(), not_limited)
}

/// The loader of nixpkgs' glibc reads /etc/ld-nix.so.preload in place of the image's list.
#[test]
fn a_program_whose_loader_reads_no_preload_list_is_named_in_one_line() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let known = match std::env::consts::ARCH {
        "x86_64" => "lib64/ld-linux-x86-64.so.2",
        _ => "lib/ld-linux-aarch64.so.1",
    };
    let glibcs = fs::read(format!("/{known}")).unwrap();
    let mut nixs = glibcs.clone();
    let list = b"/etc/ld.so.preload";
    while let Some(at) = nixs.windows(list.len()).position(|found| found == list) {
        nixs[at..][..list.len()].copy_from_slice(b"/etc/ld-nix.preloa");
    }
    let start = |id: &str, loader: &str, made: &dyn Fn(&std::path::Path)| {
        let container = host.container(id);
        let store = container.rootfs().join("nix/store/glibc");
        fs::create_dir_all(&store).unwrap();
        made(&store.join("ld.so"));
        let said = says(&container, loader);
        assert!(container.hook(&["poststop"]).status.success());
        said
    };
    let here = "/nix/store/glibc/ld.so";
    let why = "its first program has a loader that reads no /etc/ld.so.preload, so the slice limits \
               only programs that the image's loader starts";
    for (id, bytes) in [("nix", nixs.as_slice()), ("musl", b"musl")] {
        let said = start(id, here, &|place| fs::write(place, bytes).unwrap());
        let line = format!("gpuslice: {id} starts, but {why}\n");
        assert_eq!(said, (line, Some(why.to_owned())));
    }
    let unnamed = (String::new(), None);
    // A link to the image's loader, a copy of a loader of glibc, and no file, so no program starts.
    let link = |place: &std::path::Path| symlink(format!("/{known}"), place).unwrap();
    assert_eq!(start("link", here, &link), unnamed);
    let copy = |place: &std::path::Path| fs::write(place, &glibcs).unwrap();
    assert_eq!(start("copy", here, &copy), unnamed);
    assert_eq!(start("none", here, &|_| ()), unnamed);
    assert_eq!(start("usual", &format!("/{known}"), &|_| ()), unnamed);
    assert_eq!(start("relative", known, &|_| ()), unnamed);
}
