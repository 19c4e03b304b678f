//! Environments that lost the slice on the way.

use super::bench::{Bench, GPU, Running, Said, uses_gpu};

fn broken(script: &str, program: &str, code: &str) -> (Bench, Running, Said) {
    let bench = Bench::new();
    let running = bench.script(&[], script, program);
    let said = bench.about(&running);
    said.is_broken_by(code);
    (bench, running, said)
}

#[test]
fn an_emptied_environment_of_the_command_is_the_cause() {
    let script = "echo $$; exec env -i /bin/sleep 1000";
    let (bench, running, said) = broken(script, "sleep", "environment-emptied");
    let verdict = format!(
        "slice llama is NOT in force for process {} (sleep): its environment was emptied",
        running.pid
    );
    assert_eq!(said.verdict, verdict);
    bench.doctor(&["llama"]).is_broken_by("environment-emptied");
}

#[test]
fn an_emptied_environment_of_a_child_names_who_still_had_it() {
    let script = "env -i /bin/sleep 1000 & echo $!; wait";
    let (_bench, _running, said) = broken(script, "sleep", "environment-emptied");
    let ancestor = said.text.contains("(sh), its ancestor, still has them");
    assert!(ancestor, "{}", said.text);
}

#[test]
fn a_child_without_ld_preload_names_who_still_had_it() {
    let script = "env -u LD_PRELOAD /bin/sleep 1000 & echo $!; wait";
    let (_bench, _running, said) = broken(script, "sleep", "preload-lost");
    let ancestor = said.text.contains("(sh), its ancestor, still names it");
    assert!(ancestor, "{}", said.text);
    assert_eq!(said.codes().len(), 1, "{}", said.text);
}

#[test]
fn a_child_that_uses_the_gpu_without_ld_preload_breaks_the_slice() {
    let bench = Bench::new();
    let program = uses_gpu();
    let script = format!("env -u LD_PRELOAD python3 -c \"{program}\" & wait");
    let _running = bench.script(&[], &script, "python3");
    let said = bench.doctor(&["llama"]);
    said.is_broken_by("preload-lost");
    assert!(
        said.verdict.starts_with("slice llama is NOT in force: "),
        "{}",
        said.text
    );
    // Without a subject, this slice is among all of the user.
    let all = bench.doctor(&[]);
    assert!(
        all.verdict.starts_with("slice llama is NOT in force: "),
        "{}",
        all.text
    );
    assert_eq!(all.status, 1);
}

#[test]
fn a_child_without_the_name_of_the_slice_file_keeps_the_slice_as_it_was() {
    let bench = Bench::new();
    let script = "env -u GPUSLICE_CONFIG /bin/sleep 1000 & echo $!; wait";
    let running = bench.script(&[], script, "sleep");
    let said = bench.about(&running);
    said.is_warned_of("slice-variable-lost");
    let follows = "the slice as it was at the start stays in force";
    assert!(said.text.contains(follows), "{}", said.text);
}

#[test]
fn a_child_without_the_name_of_the_slice_file_and_without_a_slice_is_refused_all_memory() {
    let script = "env -u GPUSLICE_CONFIG GPUSLICE_SLICE=? /bin/sleep 1000 & echo $!; wait";
    let (_bench, _running, said) = broken(script, "sleep", "slice-variable-lost");
    assert!(
        said.text.contains("all GPU memory is refused"),
        "{}",
        said.text
    );
}

#[test]
fn a_child_without_both_variables_of_the_slice_has_no_limit() {
    let script = "env -u GPUSLICE_CONFIG -u GPUSLICE_SLICE /bin/sleep 1000 & echo $!; wait";
    let (_bench, _running, said) = broken(script, "sleep", "slice-variable-lost");
    let ancestor = said
        .text
        .contains("(sh), its ancestor, still has the variable");
    assert!(ancestor, "{}", said.text);
}

#[test]
fn a_process_outside_of_every_slice_is_in_none() {
    let bench = Bench::new();
    let program = format!("{GPU}wait()\n").replace("cu = ", "# ");
    let mut command = std::process::Command::new("python3");
    let running = super::bench::start(command.args(["-c", &program]));
    let said = bench.about(&running);
    said.is_broken_by("no-slice");
    let verdict = format!(
        "process {} (python3) is in no slice: it was started without one",
        running.pid
    );
    assert_eq!(said.verdict, verdict);
}

#[test]
fn a_program_that_overwrites_its_environment_is_known_by_its_ledger() {
    let bench = Bench::new();
    // As setproctitle does it: the area of the environment is filled with zeros.
    let overwrite = "
fields = open('/proc/self/stat').read().rsplit(')', 1)[1].split()
start, end = int(fields[47]), int(fields[48])
ctypes.memset(start, 0, end - start)
";
    let program = format!("{GPU}use()\n{overwrite}wait()\n");
    let options = ["--memory=8GiB", "--name=llama"];
    let running = bench.python(&options, &program);
    let said = bench.about(&running);
    said.is_healthy();
    let verdict = format!(
        "slice llama is in force for process {} (python3)",
        running.pid
    );
    assert_eq!(said.verdict, verdict);
}

/// Users choose the paths that root's doctor shows.
#[test]
fn a_path_neither_moves_the_cursor_nor_adds_lines() {
    let bench = Bench::new();
    let path = "/nowhere/\u{1b}]0;title\u{7}\nslice llama is in force/log";
    let script = format!("GPUSLICE_LOG_FILE='{path}' /bin/sleep 1000 & echo $!; wait");
    let running = bench.script(&[], &script, "sleep");
    let said = bench.about(&running);
    let mut codes = said.codes().into_iter();
    assert!(
        codes.any(|(code, _)| code == "log-not-writable"),
        "{}",
        said.text
    );
    assert!(!said.text.contains('\u{1b}'), "{}", said.text);
    assert!(
        said.text.contains("\\u{1b}]0;title\\u{7}\\nslice llama"),
        "{}",
        said.text
    );
    assert!(!said.text.contains("\nslice llama is in force/log"));
}
