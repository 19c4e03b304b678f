//! `gpuslice plan`: which slices of a file fit, and the sizes of caches.

use super::Place;
use crate::support::{start, told};
use serde_json::{Value, json};
use std::process::Stdio;

const GIB: u64 = 1 << 30;

/// Two vLLMs on a card of 24 GiB, with the sizes that everybody tries first.
fn two_engines(first: &str, second: &str) -> String {
    format!(
        r#"
[chat]
memory = "{first}"
command = ["vllm", "serve", "Qwen/Qwen3-8B-AWQ"]
weights = "6GiB"

[coder]
memory = "{second}"
command = ["vllm", "serve", "MODEL", "--gpu-memory-utilization", "0.9"]
"#
    )
}

#[test]
fn two_engines_of_half_a_card_each_do_not_fit_and_the_size_that_does_is_named() {
    let place = Place::new("rtx3090", &two_engines("12GiB", "12GiB"));
    let (out, err, status) = place.plan(&[]);
    assert_eq!((err.as_str(), status), ("", 1));
    assert_eq!(
        out,
        "\
GPU 0 (NVIDIA GeForce RTX 3090, 23.69 GiB)
  chat      12.00 GiB
  coder     12.00 GiB  no room
  together  24.00 GiB  including 12.00 GiB without room
  left      11.69 GiB

chat: vLLM reserves 11.04 GiB, which is 0.92 (its default) of TOTAL 12.00 GiB
  cache: at most 5.04 GiB, with weights of 6.00 GiB
  context and libraries: at most 983.04 MiB, or vLLM does not start

coder: GPU 0 (NVIDIA GeForce RTX 3090, 23.69 GiB) has 11.69 GiB left, 12.00 GiB requested; held by chat 12.00 GiB
coder fits with memory = \"11971MiB\"
coder: vLLM reserves 10.80 GiB, which is 0.9 of TOTAL 12.00 GiB
  weights and cache together: at most 10.80 GiB
  context and libraries: at most 1.20 GiB, or vLLM does not start

These are upper bounds, by the arithmetic of vLLM 0.33 and SGLang 0.5: activations, CUDA graphs and
what else an engine allocates before it sizes its cache make the cache smaller.

does not fit: coder
"
    );
    // With the size that was named, they fit, and both run.
    let place = Place::new("rtx3090", &two_engines("12GiB", "11971MiB"));
    let (out, _, status) = place.plan(&[]);
    assert!(
        out.ends_with("\nall 2 slices fit\n") && status == 0,
        "{out}"
    );
    let script = ["--", "sh", "-c", "echo started; read line"];
    for engine in ["chat", "coder"].map(|name| {
        let (child, line) = start(place.run(name, &script).stdin(Stdio::piped()));
        assert_eq!(line, "started");
        child
    }) {
        let mut engine = engine;
        drop(engine.stdin.take());
        engine.wait().unwrap();
    }
}

#[test]
fn json_has_the_schema_first_and_the_numbers_in_bytes() {
    let place = Place::new("rtx3090", &two_engines("12GiB", "12GiB"));
    let (out, _, status) = place.plan(&["--json"]);
    assert!(out.starts_with("{\n  \"schema\": 1,\n"), "{out}");
    let plan: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&plan["fits"], status), (&json!(false), 1));
    assert_eq!(plan["files"], json!([place.file()]));
    assert_eq!(plan["host"], Value::Null);
    let card = &plan["devices"][0];
    assert_eq!(card["device"], "GPU-3090aaaa-1111-4222-8333-444455550000");
    assert_eq!(
        (&card["index"], &card["unified"]),
        (&json!(0), &json!(false))
    );
    assert_eq!(card["limits"], 24 * GIB);
    let left = card["total"].as_u64().unwrap() - 12 * GIB;
    assert_eq!(card["left"], left);
    assert_eq!(
        card["slices"],
        json!([{"name": "chat", "limit": 12 * GIB}, {"name": "coder", "limit": 12 * GIB}])
    );
    let [chat, coder] = [0, 1].map(|place| &plan["slices"][place]);
    assert_eq!((&chat["fits"], &chat["line"]), (&json!(true), &json!(2)));
    assert_eq!(chat["refusal"], Value::Null);
    // vLLM's ceil(utilisation * TOTAL).
    let taken = (12 * GIB * 92).div_ceil(100);
    assert_eq!(
        chat["engine"],
        json!({"engine": "vLLM", "fraction": 0.92, "of": 12 * GIB, "taken": taken,
               "weights": 6 * GIB, "cache_at_most": taken - 6 * GIB, "fault": null})
    );
    assert_eq!(coder["fits_with"], left);
    assert_eq!(coder["engine"]["cache_at_most"], Value::Null);
}

#[test]
fn plan_decides_as_the_runs_are_admitted() {
    for (sim, slices) in [
        (
            "rtx3090",
            &[
                ("a", "10GiB", ""),
                ("b", "8GiB", ""),
                ("c", "6GiB", ""),
                ("d", "5GiB", ""),
            ][..],
        ),
        (
            "rtx3090",
            &[
                ("a", "20GiB", ""),
                ("b", "8GiB", "overcommit = true"),
                ("c", "1GiB", ""),
            ],
        ),
        (
            "2xh200",
            &[
                ("a", "100GiB", "env = { CUDA_VISIBLE_DEVICES = \"0\" }"),
                ("b", "100GiB", "env = { CUDA_VISIBLE_DEVICES = \"1\" }"),
                ("c", "50GiB", ""),
                ("d", "30GiB", ""),
            ],
        ),
        (
            "gb10",
            &[
                ("a", "60GiB", ""),
                ("b", "60GiB", ""),
                ("c", "40GiB", ""),
                ("d", "10GiB", "reserve = \"1GiB\""),
            ],
        ),
    ] {
        let text = slices.iter().map(|(name, memory, more)| {
            let command = r#"command = ["sh", "-c", "echo started; read line"]"#;
            format!("[{name}]\nmemory = \"{memory}\"\n{command}\n{more}\n")
        });
        let place = Place::new(sim, &text.collect::<String>());
        let (out, err, _) = place.plan(&["--json"]);
        let plan: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{err}"));
        let planned = plan["slices"].as_array().unwrap().iter();
        let planned: Vec<bool> = planned.map(|slice| slice["fits"] == true).collect();
        let mut running = Vec::new();
        let mut started = Vec::new();
        for (name, _, _) in slices {
            let mut command = place.run(name, &[]);
            let (child, line) = start(command.stdin(Stdio::piped()).stderr(Stdio::null()));
            started.push(line == "started");
            running.push(child);
        }
        assert_eq!(planned, started, "{sim} {slices:?}");
        // The slices that run now are not counted.
        let (again, _, _) = place.plan(&["--json"]);
        assert_eq!(out, again, "{sim}");
        for mut child in running {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }
}

#[test]
fn a_spark_that_is_full_is_described_in_the_words_of_admission() {
    let place = Place::new(
        "gb10",
        "[a]\nmemory = \"60GiB\"\n\n[b]\nmemory = \"60GiB\"\n",
    );
    let (out, err, status) = place.plan(&[]);
    assert_eq!((err.as_str(), status), ("", 1));
    let refusal = "b: a slice of 60.00 GiB does not fit on this host, which can promise 47.65 GiB: \
                   115.65 GiB is available, 8.00 GiB of it stays the host's, 60.00 GiB is promised to other \
                   slices and not used yet:\n  a  60.00 GiB, 60.00 GiB of it not used\n";
    assert!(out.contains(refusal), "{out}");
    assert!(
        out.contains("host: 115.65 GiB is available without slices, 8.00 GiB of it stays"),
        "{out}"
    );
}

#[test]
fn a_slice_that_overcommits_starts_and_is_not_said_to_fit() {
    let place = Place::new(
        "rtx3090",
        "[a]\nmemory = \"20GiB\"\n\n[b]\nmemory = \"8GiB\"\novercommit = true\n",
    );
    let (out, _, status) = place.plan(&[]);
    let last = "\nstarts only by overcommit: b\n";
    assert!(status == 0 && out.ends_with(last), "{out}");
    let warning = "b: warning: it starts only by overcommit: GPU 0 (NVIDIA GeForce RTX 3090, \
                   23.69 GiB) has 3.69 GiB left, 8.00 GiB requested; held by a 20.00 GiB\n";
    assert!(out.contains(warning), "{out}");
    let (json, _, _) = place.plan(&["--json"]);
    let plan: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(plan["slices"][1]["overcommits"], true);
    assert_eq!(plan["slices"][0]["overcommits"], false);
}

#[test]
fn a_share_of_the_whole_machine_that_the_slice_does_not_have_is_a_fault() {
    let engine = |utilization: &str| {
        format!(
            "[a]\nmemory = \"40GiB\"\ntotal = \"device\"\n\
             command = [\"vllm\", \"serve\", \"M\", \"--gpu-memory-utilization={utilization}\"]\n"
        )
    };
    let place = Place::new("gb10", &engine("0.92"));
    let (out, _, status) = place.plan(&[]);
    assert_eq!(status, 1);
    let fault = "a: vLLM does not start: 0.92 of TOTAL 121.69 GiB is 111.95 GiB, and the slice has 40.00 GiB\n";
    assert!(
        out.contains(fault) && out.ends_with("\nthe engine does not start: a\n"),
        "{out}"
    );
    let place = Place::new("gb10", &engine("0.3"));
    let (out, _, status) = place.plan(&[]);
    assert!(
        status == 0 && out.contains("vLLM reserves 36.51 GiB, which is 0.3 of TOTAL 121.69 GiB"),
        "{out}"
    );
}

#[test]
fn a_slice_that_the_machine_cannot_have_is_named_and_the_others_are_planned() {
    let place = Place::new(
        "rtx3090",
        "[a]\nmemory = \"30GiB\"\n\n[b]\ndevice = { 1 = \"1GiB\" }\n\n[c]\nmemory = \"1GiB\"\npressure = \"release\"\n",
    );
    let (out, _, status) = place.plan(&[]);
    assert_eq!(status, 1);
    for line in [
        "a: memory 30.00 GiB is more than GPU 0",
        "b: there is no GPU 1 here",
        "c: warning: pressure has no effect",
        "  left  22.69 GiB",
        "does not fit: a, b\n",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
}

#[test]
fn plan_leaves_nothing_behind_and_needs_a_machine_that_exists() {
    let place = Place::new("rtx3090", "[a]\nmemory = \"1GiB\"\n");
    assert_eq!(place.plan(&[]).2, 0);
    assert!(place.is_empty());
    assert!(
        std::fs::read_dir(place.state.path())
            .unwrap()
            .next()
            .is_none()
    );
    let file = place.file().display().to_string();
    let (_, err, status) = told(&mut place.gpuslice(&["plan", "--sim", "rtx309", &file]));
    assert!(status == 125 && err.contains("rtx309"), "{err}");
    let empty = Place::new("rtx3090", "# nothing yet\n");
    let (out, _, status) = empty.plan(&[]);
    assert!(status == 0 && out.contains("no slices in "), "{out}");
}

#[test]
fn the_example_that_packages_install_fits_on_the_card_that_it_names() {
    let example = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/examples/slices.toml"
    );
    let place = Place::new("rtx3090", &std::fs::read_to_string(example).unwrap());
    let (out, err, status) = place.plan(&[]);
    assert_eq!((err.as_str(), status), ("", 0));
    assert!(out.contains("GiB, with weights of 2.70 GiB"), "{out}");
    assert!(out.ends_with("all 3 slices fit\n"), "{out}");
}
