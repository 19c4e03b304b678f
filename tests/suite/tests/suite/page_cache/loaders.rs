//! Real loaders, unmodified. In a slice that drops model files they read the same data, and leave
//! none of it in the page cache.
//! Touches: the programs of `tests/clients/`, model files of 256 MiB; of 2 GiB in `make loaders`.

use gpuslice_suite::cache::{Loaded, Models, length, resident, slice_file, stays};
use gpuslice_suite::compile::{c, compile};
use gpuslice_suite::place;
use gpuslice_suite::run::Run;
use std::path::{Path, PathBuf};

/// A loader: the file it takes, and how it is started.
struct Loader {
    name: String,
    file: &'static str,
    program: PathBuf,
    words: Vec<String>,
}

fn python(name: &str, file: &'static str) -> Loader {
    let script = place::source("python/loaders.py").display().to_string();
    Loader {
        name: name.into(),
        file,
        program: place::venv("python"),
        words: vec![script, name.into()],
    }
}

/// A loader that needs PyTorch, which only `make loaders` installs.
fn torch(name: &str, file: &'static str) -> Loader {
    Loader {
        program: place::target().join("loaders-venv/bin/python"),
        ..python(name, file)
    }
}

fn compiled(name: &str, program: PathBuf) -> Loader {
    Loader {
        name: name.into(),
        file: "model.bin",
        program,
        words: Vec::new(),
    }
}

impl Loader {
    fn load(&self, file: &Path) -> Run {
        Run::new(&self.program).args(&self.words).arg(file)
    }
}

/// Loads a file bare and in a slice. Both loads read the same data; only the bare one leaves it
/// cached.
fn leaves_nothing(models: &Models, loader: &Loader, folder: &Path, mode: &str) {
    let file = models.cold(loader.file);
    let bare = Loaded::by(loader.load(&file));
    let kept = resident(&file);
    let said = bare.said.clone();
    bare.end();
    assert!(
        kept > length(&file) / 2,
        "{}: without the slice a load leaves only {kept} bytes: the test proves nothing",
        loader.name
    );
    // The load in the slice begins with most of the file cached, and ends with none of it.
    let slice = slice_file(folder, &format!("\"page_cache\":\"{mode}\""));
    let loaded = Loaded::by(loader.load(&file).with_shim().slice(&slice));
    let left = resident(&file);
    assert_eq!(loaded.said, said, "{}: another checksum", loader.name);
    loaded.end();
    assert_eq!(left, 0, "{}: bytes left in the page cache", loader.name);
}

#[test]
fn every_python_loader_leaves_nothing_and_reads_the_same() {
    let models = Models::of(256);
    let folder = tempfile::tempdir().unwrap();
    for loader in python_loaders() {
        leaves_nothing(&models, &loader, folder.path(), "drop");
    }
}

fn python_loaders() -> Vec<Loader> {
    vec![
        python("safetensors-numpy", "model.safetensors"),
        python("safetensors-open", "model.safetensors"),
        python("gguf", "model.gguf"),
        python("memmap", "model.bin"),
        python("memmap-written", "model.bin"),
        python("fromfile", "model.bin"),
        python("read", "model.bin"),
        python("readinto", "model.bin"),
        python("pread", "model.bin"),
        python("mmap", "model.bin"),
        python("mmap-written", "model.bin"),
    ]
}

#[test]
fn compiled_loaders_leave_nothing_and_read_the_same() {
    let models = Models::of(256);
    let folder = tempfile::tempdir().unwrap();
    for loader in compiled_loaders() {
        leaves_nothing(&models, &loader, folder.path(), "drop");
    }
}

fn compiled_loaders() -> Vec<Loader> {
    let ifstream = compile("c++", "c/loader.cpp", "loader-ifstream", &[]);
    vec![
        compiled("std::ifstream", ifstream),
        compiled("Rust's std", env!("CARGO_BIN_EXE_client-loader").into()),
    ]
}

#[test]
#[ignore = "make loaders: files of 2 GiB, and PyTorch"]
fn loaders_of_large_files_leave_nothing_and_read_the_same() {
    let models = Models::of(2048);
    let folder = tempfile::tempdir().unwrap();
    let torch = [
        torch("torch-safetensors", "model.safetensors"),
        torch("torch-safetensors-written", "model.safetensors"),
        torch("torch-from-file", "model.bin"),
        torch("torch-from-file-written", "model.bin"),
        torch("torch-load", "model.pt"),
    ];
    let mut all = Vec::from(torch);
    all.extend(python_loaders());
    all.extend(compiled_loaders());
    // One file at a time: they are large.
    for file in ["model.pt", "model.gguf", "model.safetensors", "model.bin"] {
        for loader in all.iter().filter(|loader| loader.file == file) {
            for mode in ["drop", "drop-behind"] {
                leaves_nothing(&models, loader, folder.path(), mode);
                println!("{}: {mode}: nothing is left", loader.name);
            }
        }
        if file == "model.bin" {
            fragments_leave_nothing(&models, folder.path());
            println!("fragments: nothing is left");
        }
        models.remove(file);
    }
}

#[test]
fn loaders_read_the_same_while_their_pages_are_dropped_behind_them() {
    let models = Models::of(256);
    let folder = tempfile::tempdir().unwrap();
    for loader in [
        python("safetensors-numpy", "model.safetensors"),
        python("readinto", "model.bin"),
        python("pread", "model.bin"),
        python("memmap-written", "model.bin"),
    ] {
        leaves_nothing(&models, &loader, folder.path(), "drop-behind");
    }
}

#[test]
fn a_file_unmapped_in_fragments_is_evicted_after_the_last_one() {
    let folder = tempfile::tempdir().unwrap();
    fragments_leave_nothing(&Models::of(256), folder.path());
}

/// Loads with llama.cpp's sequence of calls. The program itself prints which parts are resident.
fn fragments_leave_nothing(models: &Models, folder: &Path) {
    let program = c("loader");
    let run = |file: &Path| Run::new(&program).arg("fragments").arg(file);
    let bare = run(&models.cold("model.bin")).answer().clean();
    assert!(bare.contains("after the last fragment: all\n"), "{bare}");
    let slice = slice_file(folder, "\"page_cache\":\"drop\"");
    let said = run(&models.cold("model.bin")).with_shim().slice(&slice);
    let said = said.answer().clean();
    let expected = bare.replace(
        "after the last fragment: all\n",
        "after the last fragment: none\n",
    );
    assert_eq!(said, expected);
}

#[test]
fn a_slice_leaves_the_page_cache_alone_unless_it_asks_for_dropping() {
    let models = Models::of(256);
    let folder = tempfile::tempdir().unwrap();
    for keys in ["", "\"page_cache\":\"keep\""] {
        let file = models.cold("model.bin");
        let slice = slice_file(folder.path(), keys);
        let loaded = Loaded::by(
            python("mmap", "model.bin")
                .load(&file)
                .with_shim()
                .slice(&slice),
        );
        assert!(stays(&file), "{keys:?}");
        loaded.end();
    }
}

#[test]
fn what_is_no_model_by_its_name_or_its_size_is_left_alone() {
    let models = Models::of(256);
    let folder = tempfile::tempdir().unwrap();
    let load = |file: &Path, keys: &str| {
        let slice = slice_file(folder.path(), keys);
        let run = python("mmap", "model.bin").load(file);
        let loaded = Loaded::by(run.with_shim().slice(&slice));
        let left = (stays(file), resident(file) == 0);
        loaded.end();
        match left {
            (true, false) => "stays",
            (false, true) => "gone",
            _ => "something between",
        }
    };
    let drop = "\"page_cache\":\"drop\"";
    assert_eq!(load(&models.other(), drop), "stays", "no model's suffix");
    let listed = format!("{drop},\"model_files\":{{\"suffixes\":[\"dat\"],\"smallest\":1048576}}");
    assert_eq!(
        load(&models.other(), &listed),
        "gone",
        "the slice's own suffix"
    );
    let file = models.cold("model.bin");
    assert_eq!(load(&file, &listed), "stays", "not on the slice's list");
    let larger = format!("{drop},\"model_files\":{{\"smallest\":268435457}}");
    assert_eq!(
        load(&models.cold("model.bin"), &larger),
        "stays",
        "smaller than the slice's smallest"
    );
    let link = folder.path().join(format!("sha256-{}", "0f".repeat(32)));
    std::os::unix::fs::symlink(models.other(), &link).unwrap();
    assert_eq!(load(&link, drop), "gone", "a file named by its checksum");
}
