//! Programs that cannot load the library.

use super::bench::{Bench, built, folder, is_root, mode, program};
use std::os::unix::fs::chown;

const SLICED: [&str; 2] = ["--memory=8GiB", "--name=llama"];

fn is_named(compiler: &str, options: &[&str], code: &str, what: &str) {
    let (bench, folder) = (Bench::new(), folder());
    let program = program(folder.path(), compiler, options);
    let running = bench.words(&SLICED, &[program.to_str().unwrap()]);
    let said = bench.about(&running);
    said.is_broken_by(code);
    let verdict = format!(
        "slice llama is NOT in force for process {} (program): ",
        running.pid
    );
    assert!(said.verdict.starts_with(&verdict), "{}", said.text);
    assert!(said.verdict.ends_with(what), "{}", said.text);
    assert_eq!(said.codes().len(), 1, "{}", said.text);
    // The slice by its name: its command is outside of it.
    bench.doctor(&["llama"]).is_broken_by(code);
}

#[test]
fn a_static_program_is_the_cause() {
    let code = "static-program";
    for options in [&["-static"][..], &["-static-pie"]] {
        is_named("cc", options, code, "its program is statically linked");
    }
}

#[test]
fn a_program_of_musl_is_the_cause() {
    is_named("musl-gcc", &[], "other-libc", "another libc than glibc");
}

#[test]
fn a_32_bit_program_is_the_cause() {
    // getpid, as five decimal digits, a write, and a long sleep: without any library.
    let source = "
        static int call(int number, long a, long b, long c) {
            int done;
            __asm__ volatile(\"int $0x80\" : \"=a\"(done) : \"a\"(number), \"b\"(a), \"c\"(b), \"d\"(c) : \"memory\");
            return done;
        }
        void _start(void) {
            char text[12];
            int at = 12, pid = call(20, 0, 0, 0);
            text[--at] = '\\n';
            while (pid) { text[--at] = '0' + pid % 10; pid /= 10; }
            call(4, 1, (long) (text + at), 12 - at);
            for (;;) call(29, 0, 0, 0);
        }";
    let (bench, folder) = (Bench::new(), folder());
    let options = [
        "-m32",
        "-static",
        "-nostdlib",
        "-fno-stack-protector",
        "-fno-pie",
        "-no-pie",
    ];
    let program = built(folder.path(), "cc", &options, source);
    let running = bench.words(&SLICED, &[program.to_str().unwrap()]);
    let said = bench.about(&running);
    said.is_broken_by("32-bit-program");
    assert!(said.text.contains("is a 32-bit program"), "{}", said.text);
}

#[test]
fn a_program_with_privileges_of_its_own_is_the_cause() {
    if !is_root() {
        return;
    }
    for bits in [0o4755, 0o2755] {
        let (bench, folder) = (Bench::new(), folder());
        let program = program(folder.path(), "cc", &[]);
        chown(&program, Some(65534), Some(65534)).unwrap();
        mode(&program, bits);
        let running = bench.words(&SLICED, &[program.to_str().unwrap()]);
        let said = bench.about(&running);
        said.is_broken_by("privileged-program");
        assert!(
            said.text.contains("ld.so ignored LD_PRELOAD"),
            "{}",
            said.text
        );
    }
}

#[test]
fn a_helper_that_does_not_use_the_gpu_does_not_break_the_slice() {
    let (bench, folder) = (Bench::new(), folder());
    let program = program(folder.path(), "cc", &["-static"]);
    let script = format!("{} & wait", program.display());
    let running = bench.script(&[], &script, "program");
    let said = bench.doctor(&["llama"]);
    said.is_warned_of("static-program");
    assert!(
        said.text.contains("it does not use a GPU now"),
        "{}",
        said.text
    );
    // The question about that process has another answer.
    bench.about(&running).is_broken_by("static-program");
}
