//! Plug-ins that are opened with `RTLD_DEEPBIND`. Those that call no intercepted function keep the
//! flag.
//! Touches: `tests/clients/c/deepbind.c`.

use gpuslice_suite::compile::compile;
use gpuslice_suite::run::{Machine, Run};
use gpuslice_suite::slice::write;
use std::path::PathBuf;

fn plugin(name: &str, more: &[&str]) -> PathBuf {
    let words = ["-DPLUGIN", "-shared", "-fPIC"];
    compile("cc", "c/deepbind.c", name, &[&words, more].concat())
}

/// The output of the plug-ins without a slice and in this slice, and the log of the latter.
fn said(plugins: &[PathBuf], slice: &str) -> [String; 3] {
    let program = compile("cc", "c/deepbind.c", "deepbind", &["-rdynamic", "-ldl"]);
    let machine = Machine::new("rtx3090");
    let run = || machine.place(Run::new(&program).args(plugins));
    let file = machine.folder().join("slice.json");
    write(&file, slice.as_bytes());
    let sliced = run()
        .with_shim()
        .slice(&file)
        .env("GPUSLICE_LOG", "info")
        .answer();
    assert_eq!(sliced.end, "exit 0", "{sliced:?}");
    [run().answer().clean(), sliced.stdout, sliced.stderr]
}

const ANY: &str = r#"{"version":1,"memory":8589934592}"#;
const DISCRETE: &str = r#"{"version":1,"devices":[{"uuid":"GPU-3090aaaa-1111-4222-8333-444455550000",
    "memory":8589934592,"integrated":false}]}"#;

#[test]
fn a_plug_in_with_a_function_of_its_own_calls_that_as_it_does_bare() {
    let plugins = [plugin("deepbind-own.so", &[])];
    for slice in [ANY, DISCRETE] {
        let [bare, sliced, log] = said(&plugins, slice);
        assert_eq!(bare, "its version is 2\n");
        assert_eq!(sliced, bare);
        assert!(!log.contains("RTLD_DEEPBIND"), "{log}");
    }
}

#[test]
fn a_plug_in_that_opens_files_keeps_it_where_files_are_the_hosts() {
    let plugins = [plugin("deepbind-opens.so", &["-DOPENS"])];
    let [bare, sliced, log] = said(&plugins, DISCRETE);
    assert_eq!(
        (&*bare, &*sliced),
        ("its version is 2\n", "its version is 2\n")
    );
    assert!(!log.contains("RTLD_DEEPBIND"), "{log}");
    // In this slice a device may share the host's memory. The plug-in opens files, so it must see
    // the slice in them.
    let [_, sliced, log] = said(&plugins, ANY);
    assert_eq!(sliced, "its version is 1\n");
    let line = format!(
        "{} is opened without RTLD_DEEPBIND: it calls ",
        plugins[0].display()
    );
    assert!(log.contains(&line), "{log}");
}

#[test]
fn a_plug_in_that_brings_another_library_loses_it_and_the_log_says_so() {
    let other = compile(
        "cc",
        "c/deepbind.c",
        "libdeepbind-other.so",
        &["-DPLUGIN", "-shared", "-fPIC"],
    );
    let words = [
        "-Wl,--no-as-needed",
        "-L{here}",
        "-l:libdeepbind-other.so",
        "-Wl,-rpath,{here}",
    ];
    let plugins = [plugin("deepbind-brings.so", &words)];
    assert!(other.exists());
    let [bare, _, log] = said(&plugins, DISCRETE);
    assert_eq!(bare, "its version is 2\n");
    assert!(
        log.contains("RTLD_DEEPBIND: it loads libdeepbind-other.so"),
        "{log}"
    );
}

#[test]
fn a_plug_in_whose_path_only_the_loader_understands_loses_it() {
    let plugin = plugin("deepbind-own.so", &[]);
    let path = PathBuf::from("$ORIGIN").join(plugin.file_name().unwrap());
    let [bare, sliced, log] = said(&[path], DISCRETE);
    assert_eq!(
        (&*bare, &*sliced),
        ("its version is 2\n", "its version is 1\n")
    );
    assert!(
        log.contains("RTLD_DEEPBIND: its file cannot be read"),
        "{log}"
    );
}
