//! `gpuslice run`: which GPUs the program sees, and which of them are limited.
//! Touches: children on simulated machines.

use super::slice_file::slice_file;
use super::start::HERE;
use crate::support::told;

#[test]
fn a_limit_on_a_gpu_that_the_program_does_not_see_is_refused() {
    let refused = |machine: &str, options: &[&str], visible: Option<&str>, message: &str| {
        let mut command = HERE.run(&[&[machine], options].concat(), "echo started");
        if let Some(visible) = visible {
            command.env("CUDA_VISIBLE_DEVICES", visible);
        }
        let message = format!("gpuslice: the program would not be limited: {message}\n");
        assert_eq!(told(&mut command), (String::new(), message, 125));
    };
    let only_the_other = "it sees GPU 1 (CUDA_VISIBLE_DEVICES=1), and the slice limits GPU 0; set \
                          CUDA_VISIBLE_DEVICES=0";
    refused(
        "--sim=2xh200",
        &["--device=0=8GiB"],
        Some("1"),
        only_the_other,
    );
    let card = "\"uuid\":\"GPU-200aaaaa-2222-4333-8444-555566660000\"";
    let file = slice_file(&format!("\"devices\":[{{{card},\"memory\":8589934592}}]"));
    let options = ["--config", file.path().to_str().unwrap()];
    refused("--sim=2xh200", &options, Some("1"), only_the_other);
    refused(
        "--sim=2xh200",
        &["--device=0=8GiB"],
        Some("GPU-200aaaaa-2222-4333-8444-555566660001"),
        "it sees GPU 1 (CUDA_VISIBLE_DEVICES=GPU-200aaaaa-2222-4333-8444-555566660001), and the slice \
         limits GPU 0; set CUDA_VISIBLE_DEVICES=0",
    );
    let [first, second] = ["MIG-a1111111", "MIG-b2222222"]
        .map(|start| format!("{start}-3333-5444-8555-666677770000"));
    refused(
        "--sim=h200-mig",
        &[&format!("--device={second}=8GiB")],
        None,
        &format!(
            "it sees {first} (CUDA_VISIBLE_DEVICES is not set), and the slice limits {second}; set \
         CUDA_VISIBLE_DEVICES={second}"
        ),
    );
    // The limit is for all GPUs, and the only visible GPU has less memory than that.
    refused(
        "--sim=2xh200+rtx3090",
        &["--memory=80GiB"],
        Some("2"),
        "it sees GPU 2 (CUDA_VISIBLE_DEVICES=2), and the slice limits GPU 0 and GPU 1; set \
         CUDA_VISIBLE_DEVICES=0,1",
    );
}

#[test]
fn a_gpu_that_the_program_sees_without_a_limit_is_named() {
    let run = |options: &[&str], visible: Option<&str>| {
        let mut command = HERE.run(&[&["--sim=2xh200"], options].concat(), "echo started");
        if let Some(visible) = visible {
            command.env("CUDA_VISIBLE_DEVICES", visible);
        }
        told(&mut command)
    };
    let started = |err: &str| ("started\n".to_owned(), err.to_owned(), 0);
    let gap = "the program sees GPU 0 and GPU 1, and the slice does not limit GPU 1; \
               CUDA_VISIBLE_DEVICES=0 hides it";
    for visible in [None, Some("1,0")] {
        let warning = format!("gpuslice: warning: {gap} (--strict refuses to start it)\n");
        assert_eq!(run(&["--device=0=8GiB"], visible), started(&warning));
        let refusal = format!("gpuslice: {gap}; --strict refuses to start it\n");
        let refused = (String::new(), refusal, 125);
        assert_eq!(run(&["--device=0=8GiB", "--strict"], visible), refused);
    }
    for (options, visible) in [
        (&["--strict", "--device=0=8GiB"][..], Some("0")),
        (&["--strict", "--device=0=8GiB", "--device=1=4GiB"], None),
        (&["--strict", "--memory=8GiB"], None),
        (&["--strict", "--device=0=8GiB"], Some("")),
    ] {
        assert_eq!(
            run(options, visible),
            started(""),
            "{options:?} {visible:?}"
        );
    }
}

#[test]
fn a_limit_of_all_gpus_limits_every_gpu_that_the_program_sees() {
    let ask = "import ctypes; c = ctypes.CDLL('libcuda.so.1'); c.cuInit(0); \
        count = ctypes.c_int(); c.cuDeviceGetCount(ctypes.byref(count)); \
        total = ctypes.c_size_t(); \
        print(*[c.cuDeviceTotalMem_v2(ctypes.byref(total), n) or total.value >> 30 for n in range(count.value)])";
    let options = ["--sim=2xh200+rtx3090", "--memory=8GiB"];
    let script = format!("python3 -c \"{ask}\"");
    for (visible, totals) in [
        (None, "8 8 8\n"),
        (Some("1"), "8\n"),
        (Some("2,0"), "8 8\n"),
    ] {
        let mut command = HERE.run(&options, &script);
        if let Some(visible) = visible {
            command.env("CUDA_VISIBLE_DEVICES", visible);
        }
        let seen = told(&mut command);
        assert_eq!(seen, (totals.to_owned(), String::new(), 0), "{visible:?}");
    }
}

#[test]
fn a_machine_that_does_not_exist_is_named_and_not_the_driver() {
    for options in [&["--sim=rtx309", "--memory=8GiB"][..], &["--sim=rtx309"]] {
        let (out, err, status) = told(&mut HERE.run(options, "echo started"));
        assert_eq!((out.as_str(), status), ("", 125));
        let start = "gpuslice: cannot start the simulated machine: ";
        assert!(err.starts_with(start) && err.contains("rtx309"), "{err}");
        assert!(!err.contains("cuInit"), "{err}");
    }
}

#[test]
fn options_for_unified_memory_are_told_to_have_no_effect_on_a_card() {
    let options = [
        "--reserve=1GiB",
        "--pressure=release",
        "--present-as=discrete",
    ];
    let run = |machine: &str, options: &[&str]| {
        told(&mut HERE.run(
            &[&[machine, "--memory=8GiB"], options].concat(),
            "echo started",
        ))
    };
    let warning = "gpuslice: warning: --reserve, --pressure, --present-as have no effect: no GPU of \
                   this slice shares the host's memory\n";
    let started = |err: &str| ("started\n".to_owned(), err.to_owned(), 0);
    assert_eq!(run("--sim=rtx3090", &options), started(warning));
    assert_eq!(run("--sim=rtx3090", &[]), started(""));
    assert_eq!(run("--sim=gb10", &options), started(""));
}
