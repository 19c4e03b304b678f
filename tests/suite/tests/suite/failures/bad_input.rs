//! Unusable slice files, and calls that no program should make, inside running programs. No device
//! memory is given, no program ends or hangs, and the log reports the cause once.
//! Touches: files of every bad kind, in a folder of their own.

use gpuslice_suite::compile::{compile, linked, linked_cuda, linked_nvml};
use gpuslice_suite::place;
use gpuslice_suite::run::{Answer, Machine, Run};
use gpuslice_suite::slice::{GIB, of_all_devices, of_machine, write};
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The driver's answers for an RTX 3090 to a program linked with `-lcuda`.
const CUDA: &str = "\
cuda 3090aaaa-1111-4222-8333-444455550000 device total=25438126080
cuda 3090aaaa-1111-4222-8333-444455550000 context total=25438126080 free=25171787776
cuda 3090aaaa-1111-4222-8333-444455550000 holding total=25438126080 free=24903352320
cuda 3090aaaa-1111-4222-8333-444455550000 freed total=25438126080 free=25171787776
";

/// NVML's answers where GPU memory is refused.
const NVML_REFUSED: &str = "\
nvml GPU-3090aaaa-1111-4222-8333-444455550000 v1 total=25438126080 free=0 used=25438126080
nvml GPU-3090aaaa-1111-4222-8333-444455550000 v2 total=25438126080 reserved=0 free=0 used=25438126080
";

/// The messages of the log, without the prefix of each line and without the path of this test's
/// folder. Most slices of these tests have no ledger, and the line that says so is left out.
fn log_of(file: &Path) -> Vec<String> {
    let mut lines = whole_log_of(file);
    lines.retain(|line| !line.contains(NO_LEDGER));
    lines
}

/// A program linked with `-lcuda`, with this slice file, and the file of its log.
fn logged(machine: &Machine, text: &str) -> (Run, PathBuf) {
    let (file, log) = (
        machine.folder().join("slice.json"),
        machine.folder().join("log"),
    );
    write(&file, text.as_bytes());
    let run = machine.place(Run::new(linked_cuda())).with_shim();
    let run = run.slice(&file).env("GPUSLICE_LOG", "warn");
    (run.env("GPUSLICE_LOG_FILE", &log), log)
}

const NO_LEDGER: &str = "names no ledger: its limit is shown, but nothing is counted or refused";

fn whole_log_of(file: &Path) -> Vec<String> {
    let folder = format!("{}/", file.parent().unwrap().display());
    let text = fs::read_to_string(file)
        .unwrap_or_default()
        .replace(&folder, "");
    let said = |line: &str| {
        let level = line.find(" WARN ").expect("a level");
        line[level..].trim_start().to_owned()
    };
    text.lines().map(said).collect()
}

/// Asserts that a program linked with `-lcuda` is refused GPU memory: no context, code 2.
fn is_given_nothing(answer: &Answer, name: &str) {
    let total = CUDA.lines().next().unwrap();
    assert_eq!(answer.stdout.trim_end(), total, "{name}: {answer:?}");
    let refused = answer
        .stderr
        .contains("cuDevicePrimaryCtxRetain(&context, device): 2");
    assert!(refused && answer.end == "exit 1", "{name}: {answer:?}");
}

/// Runs both programs with a slice file that `make` creates. Neither is given memory, both end by
/// themselves, and the log says exactly once why this file is not used.
fn is_refused(name: &str, make: impl Fn(&Path)) {
    let mut said = Vec::new();
    for program in [linked_cuda(), linked_nvml()] {
        let machine = Machine::new("rtx3090");
        let (file, log) = (
            machine.folder().join("slice.json"),
            machine.folder().join("log"),
        );
        make(&file);
        let run = machine.place(Run::new(&program)).with_shim().slice(&file);
        let run = run
            .env("GPUSLICE_LOG", "warn")
            .env("GPUSLICE_LOG_FILE", &log);
        let answer = run.answer();
        match program == linked_cuda() {
            true => is_given_nothing(&answer, name),
            false => assert_eq!(answer.clean(), NVML_REFUSED, "{name}"),
        }
        said.push(log_of(&log));
    }
    assert_eq!(
        said[0], said[1],
        "{name}: the log differs between CUDA and NVML"
    );
    let log = said.swap_remove(0);
    assert!(
        log.len() == 1
            && log[0].starts_with("WARN slice file slice.json: ")
            && log[0].contains("GPU memory is refused (repair the file, or unset GPUSLICE_CONFIG)"),
        "{name}: one warning that names the file was expected: {log:?}"
    );
}

#[test]
fn a_slice_file_of_a_program_preloaded_by_hand_that_names_no_ledger_says_what_it_does_not_do() {
    for (keys, lines) in [("", 1), (",\"enforce\":false", 0)] {
        let machine = Machine::new("rtx3090");
        let text = format!("{{\"version\":1,\"memory\":8589934592{keys}}}");
        let (run, log) = logged(&machine, &text);
        assert_eq!(run.answer().end, "exit 0");
        let said = whole_log_of(&log);
        assert_eq!(said.len(), lines, "{said:?}");
        assert!(said.iter().all(|line| line.contains(NO_LEDGER)), "{said:?}");
    }
}

#[test]
fn malformed_slice_files_are_refused() {
    for text in [
        "",
        "not a slice",
        "{",
        "{}",
        "[]",
        "null",
        "{\"version\":1,\"memory\":8589934592",
        "{\"version\":1,\"memory\":8589934592}}",
        "{\"version\":1,\"memory\":\"8GiB\"}",
        "{\"version\":1,\"memory\":\"4Gi\"}",
        "{\"version\":1,\"memory\":-1}",
        "{\"version\":1,\"memory\":\"12Q\"}",
        "{\"version\":1,\"memory\":0}",
        "{\"version\":1,\"memory\":1e99}",
        "{\"version\":1,\"memory\":99999999999999999999999}",
        "{\"version\":1,\"memroy\":8589934592}",
        "{\"version\":1,\"memory\":1,\"memory\":2}",
        "{\"version\":1,\"memory\":8589934592,\"headroom\":8589934592}",
        "{\"version\":1,\"devices\":[{\"uuid\":\"GPU-0\",\"memory\":1}]}",
        "{\"version\":1,\"devices\":[{\"memory\":1}]}",
        "{\"version\":\"1\",\"memory\":8589934592}",
        "{\"version\":1,\"memory\":8589934592,\"ledger\":\"ledger\"}",
    ] {
        is_refused(text, |file| write(file, text.as_bytes()));
    }
    is_refused("not text", |file| write(file, &[0xff; 4096]));
    is_refused("nul bytes", |file| write(file, &[0; 4096]));
}

#[test]
fn a_newer_slice_file_is_refused() {
    is_refused("version 2", |file| {
        write(
            file,
            b"{\"version\":2,\"memory\":8589934592,\"fairness\":3}",
        )
    });
}

#[test]
fn an_oversized_slice_file_is_refused() {
    is_refused("1 GiB", |file| {
        File::create(file).and_then(|it| it.set_len(GIB)).unwrap();
    });
    is_refused("1 GiB of a slice", |file| {
        write(file, b"{\"version\":1,\"memory\":8589934592}");
        File::options()
            .append(true)
            .open(file)
            .and_then(|it| it.set_len(GIB))
            .unwrap();
    });
}

#[test]
fn what_is_not_a_file_is_refused_and_nothing_hangs() {
    is_refused("a folder", |file| fs::create_dir(file).unwrap());
    is_refused("a FIFO that nobody writes to", |file| {
        assert!(Command::new("mkfifo").arg(file).status().unwrap().success());
    });
    is_refused("a link to itself", |file| symlink(file, file).unwrap());
    is_refused("a device that never ends", |file| {
        symlink("/dev/zero", file).unwrap()
    });
    is_refused("a path that is not there", |_| {});
}

#[test]
fn a_slice_file_that_may_not_be_read_is_refused() {
    // Root may read everything, so the programs run as the user nobody. That user may not enter the
    // folder of the build output, so the files that the programs load are copied to a folder that
    // every user may read.
    let machine = Machine::new("rtx3090");
    let folder = machine.folder().to_path_buf();
    for path in [folder.clone(), machine.state()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let (shim, program) = (folder.join("libgpuslice.so"), folder.join("linked-cuda"));
    fs::copy(place::shim(), &shim).unwrap();
    gpuslice_test_programs::copy_program(&linked_cuda(), &program);
    fs::copy(
        place::sim().join("libcuda.so.1"),
        folder.join("libcuda.so.1"),
    )
    .unwrap();
    let file = of_all_devices(&folder, 8 * GIB, &machine.state());
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();

    let is_root =
        fs::metadata("/proc/self").is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == 0);
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    let run = if is_root {
        Run::new("setpriv").args(nobody).arg(&program)
    } else {
        Run::new(&program)
    };
    let log = folder.join("log");
    let run = machine
        .place(run)
        .preload(&shim)
        .slice(&file)
        .env("LD_LIBRARY_PATH", &folder);
    let run = run
        .env("GPUSLICE_LOG", "warn")
        .env("GPUSLICE_LOG_FILE", &log);
    is_given_nothing(&run.answer(), "no right to read it");
    let said = log_of(&log);
    let why = "WARN slice file slice.json: this user may not open it; GPU memory is refused";
    assert!(said.len() == 1 && said[0].starts_with(why), "{said:?}");
}

#[test]
fn a_slice_larger_than_the_card_shows_the_card() {
    let log = the_driver_stands_for_cuda("{\"version\":1,\"memory\":1099511627776}");
    assert_eq!(log, Vec::<String>::new());
}

#[test]
fn a_slice_of_another_card_leaves_this_one_alone() {
    let log = the_driver_stands_for_cuda(
        "{\"version\":1,\"devices\":[{\"uuid\":\"GPU-ffffffff-1111-4222-8333-444455550000\",\"memory\":8589934592}]}",
    );
    assert_eq!(log, Vec::<String>::new());
}

fn the_driver_stands_for_cuda(text: &str) -> Vec<String> {
    let machine = Machine::new("rtx3090");
    let (run, log) = logged(&machine, text);
    assert_eq!(run.answer().clean(), CUDA);
    log_of(&log)
}

/// Only device memory is refused: the program still sees the host's memory as it is.
#[test]
fn a_bad_slice_file_gives_no_unified_memory_and_leaves_the_host_alone() {
    let machine = Machine::new("gb10");
    let file = machine.folder().join("slice.json");
    write(&file, b"{\"version\":1,\"memroy\":8589934592}");
    let run = |program: &Path| {
        let run = machine.place(Run::new(program)).with_shim();
        run.slice(&file)
    };
    let cuda = run(&linked_cuda()).answer();
    assert!(cuda.end == "exit 1", "{cuda:?}");
    let nvml = run(&linked_nvml()).answer().clean();
    let free: Vec<u64> = numbers(&nvml).into_iter().skip(1).step_by(3).collect();
    assert!(free.iter().all(|free| *free == 0), "{nvml}");
    let total = |run: Run| {
        let said = run.args(["-m1", "MemTotal", "/proc/meminfo"]).answer();
        said.clean()
    };
    let bare = Machine::new("gb10");
    assert_eq!(
        total(run(Path::new("grep"))),
        total(bare.place(Run::new("grep")))
    );
}

/// The numbers of an output, in its order.
fn numbers(output: &str) -> Vec<u64> {
    let words = output.split([' ', '\n']);
    let values = words.filter_map(|word| word.split_once('=')?.1.parse().ok());
    values.collect()
}

#[test]
fn an_unusable_meminfo_never_raises_a_number_above_the_drivers() {
    let bare = Machine::new("gb10");
    let drivers = bare.place(Run::new(linked_cuda())).answer().clean();
    type Make = fn(&Path);
    let kinds: [(&str, Make); 5] = [
        ("missing", |_| {}),
        ("garbled", |file| write(file, b"MemTotal: much\n")),
        ("a folder", |file| fs::create_dir(file).unwrap()),
        ("endless", |file| symlink("/dev/zero", file).unwrap()),
        ("a FIFO", |file| {
            assert!(Command::new("mkfifo").arg(file).status().unwrap().success());
        }),
    ];
    for (kind, make) in kinds {
        let machine = Machine::new("gb10");
        let (meminfo, log) = (
            machine.folder().join("meminfo"),
            machine.folder().join("log"),
        );
        make(&meminfo);
        let uuid = "GPU-b10aaaaa-4444-4555-8666-777788880000";
        // The slice file names the `meminfo` of the folder that is passed as the machine's state.
        let file = of_machine(machine.folder(), 40 * GIB, Some(uuid), machine.folder());
        let run = machine
            .place(Run::new(linked_cuda()))
            .with_shim()
            .slice(&file);
        let run = run
            .env("GPUSLICE_LOG", "warn")
            .env("GPUSLICE_LOG_FILE", &log);
        let said = run.answer().clean();
        let pairs = numbers(&said).into_iter().zip(numbers(&drivers));
        assert_eq!(pairs.clone().count(), 7, "{kind}: {said}");
        assert!(
            pairs.clone().all(|(ours, drivers)| ours <= drivers),
            "{kind}: {said}"
        );
        let log = log_of(&log);
        assert!(
            log.len() == 1 && log[0].contains("meminfo"),
            "{kind}: {log:?}"
        );
    }
}

#[test]
fn calls_with_nowhere_to_write_get_the_drivers_own_codes() {
    let words = ["-L{sim}", "-l:libcuda.so.1", "-l:libnvidia-ml.so.1"];
    let program = compile("cc", "c/bad_arguments.c", "bad-arguments", &words);
    for scenario in ["rtx3090", "h200", "gb10", "thor", "n1x", "orin"] {
        let bare = Machine::new(scenario);
        let bare = bare.place(Run::new(&program)).answer();
        for in_a_slice in [false, true] {
            let machine = Machine::new(scenario);
            let run = machine.place(Run::new(&program)).with_shim();
            let file = of_all_devices(machine.folder(), 8 * GIB, &machine.state());
            let answer = if in_a_slice { run.slice(&file) } else { run }.answer();
            assert_eq!(answer, bare, "{scenario}, in a slice: {in_a_slice}");
        }
    }
}

/// Without a slice, a program that has no free descriptor at its first query gets the same answers
/// as without the library. In a slice, the limit holds once the slice file can be read.
#[test]
fn a_program_without_free_descriptors_is_not_refused_for_life() {
    let program = linked("few_descriptors", "libcuda.so.1");
    let said = |slice: Option<&str>| {
        let machine = Machine::new("rtx3090");
        let file = machine.folder().join("slice.json");
        let run = machine.place(Run::new(&program)).with_shim();
        let run = match slice {
            Some(text) => {
                write(&file, text.as_bytes());
                run.slice(&file)
            }
            None => run,
        };
        run.answer().clean()
    };
    let machine = Machine::new("rtx3090");
    let bare = machine.place(Run::new(&program)).answer().clean();
    assert_eq!(said(None), bare);
    let text = format!("{{\"version\":1,\"memory\":{}}}", 8 * GIB);
    let sliced = said(Some(&text));
    let lines: Vec<&str> = sliced.lines().collect();
    assert_eq!(lines[1], "full: 2 201 201 free=0 total=0", "{sliced}");
    assert!(
        lines[2].starts_with("free: 0 0 0 ") && lines[2].ends_with("total=8192"),
        "{sliced}"
    );
}

/// A limit that is not loaded yet refuses every allocation. The program leaves the library no
/// memory to load the slice a second time.
#[test]
fn no_allocation_passes_while_the_slice_is_being_loaded() {
    let program = linked("starved", "libcuda.so.1");
    let machine = Machine::new("rtx3090");
    let file = of_all_devices(machine.folder(), 8 * GIB, &machine.state());
    let run = machine.place(Run::new(&program)).with_shim();
    let said = run.slice(&file).answer().clean();
    assert_eq!(said, "while loading: 2, after it: 0\n");
}
