//! `gpuslice history`: runs with their peak and refusals, and the picture of their use.

use super::{HERE, Program, awaited, events, said};
use crate::support::member::GPU;
use crate::support::{Home, eventually, told};
use serde_json::Value;
use std::fs;

fn history(home: &Home, options: &[&str]) -> Value {
    let text = said(home, &[&["history", "--json"], options].concat());
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_run_is_in_the_history_while_it_lasts_and_afterwards() {
    let home = Home::new();
    let mut program = Program::start(&home, &["--memory=4GiB", "--name=llama"]);
    assert_eq!(program.allocates(3072), 0);
    assert_eq!(program.allocates(2048), 2);
    awaited(&home, "refusal");
    let running = history(&home, &["llama"]);
    assert_eq!(running["schema"], 1);
    let row = &running["runs"][0];
    assert_eq!(
        (&row["running"], &row["ended"]),
        (&Value::Bool(true), &Value::Null)
    );
    let device = &row["devices"][0];
    assert_eq!(
        (&device["device"], &device["count"]),
        (&GPU.into(), &1.into())
    );
    let pid = program.pid;
    program.ends();
    awaited(&home, "end");
    let ended = history(&home, &["llama"]);
    let row = &ended["runs"][0];
    assert_eq!(
        (&row["running"], &row["pid"]),
        (&Value::Bool(false), &pid.into())
    );
    let device = &row["devices"][0];
    let peak = device["peak"].as_u64().unwrap();
    assert!((3 << 30..4 << 30).contains(&peak), "{row}");
    assert_eq!(
        (&device["limit"], &device["count"]),
        (&(4u64 << 30).into(), &1.into())
    );
    let points = row["points"].as_array().unwrap();
    assert!(points.iter().any(|point| point[1] == peak), "{row}");
    assert_eq!(
        points.last().unwrap()[1],
        0,
        "at the end nobody holds anything: {row}"
    );
    let table = said(&home, &["history"]);
    let heads: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(
        heads,
        [
            "STARTED", "SLICE", "PID", "USER", "TIME", "PEAK", "LIMIT", "REFUSED", "STATE"
        ]
    );
    assert!(
        table
            .lines()
            .nth(1)
            .unwrap()
            .ends_with("GiB  4.00 GiB  1        ended, simulated"),
        "{table}"
    );
    assert_eq!(said(&home, &["history", "--since=1h"]), table);
    // Without a name the points are left out: they are many.
    assert!(history(&home, &[])["runs"][0]["points"].is_null());
}

#[test]
fn the_history_of_a_resized_run_has_its_limits_over_time() {
    let home = Home::new();
    let mut program = Program::start(&home, &["--memory=4GiB", "--name=llama"]);
    assert_eq!(program.allocates(1024), 0);
    let limits = || {
        let said = history(&home, &["llama"]);
        let row = &said["runs"][0];
        let limits = row["limits"].as_array().unwrap().iter();
        let limits: Vec<u64> = limits
            .map(|limit| limit[1].as_u64().unwrap() >> 30)
            .collect();
        (limits, row["devices"][0]["limit"].as_u64().unwrap() >> 30)
    };
    eventually("the first point is recorded", || {
        let said = history(&home, &["llama"]);
        said["runs"][0]["points"]
            .as_array()
            .is_some_and(|points| !points.is_empty())
    });
    assert_eq!(limits(), (vec![], 4));
    for (size, expected) in [("8GiB", &[4, 8][..]), ("2GiB", &[4, 8, 2])] {
        said(&home, &["resize", "llama", size]);
        eventually("the change is recorded", || limits().0 == expected);
    }
    assert_eq!(limits(), (vec![4, 8, 2], 2));
    let file = home.state.path().join("llama.svg");
    let picture = || {
        said(
            &home,
            &["history", "llama", "--plot", file.to_str().unwrap()],
        );
        let text = fs::read_to_string(&file).unwrap();
        let line = text.lines().find(|line| line.contains("stroke-dasharray"));
        line.unwrap().matches('V').count()
    };
    assert_eq!(picture(), 2, "the line of the limit has two steps");
    program.ends();
    awaited(&home, "end");
    assert_eq!(limits(), (vec![4, 8, 2], 2));
    assert_eq!(picture(), 2);
}

#[test]
fn the_picture_has_the_limit_and_the_refusals_and_a_panel_for_each_slice() {
    let home = Home::new();
    for name in ["llama", "qwen"] {
        let mut program = Program::start(&home, &["--memory=4GiB", &format!("--name={name}")]);
        assert_eq!(program.allocates(2048), 0);
        assert_eq!(program.allocates(4096), 2);
        let refused = || {
            events(&home, &[name])
                .iter()
                .any(|event| event["event"] == "refusal")
        };
        eventually("it is refused", refused);
        program.ends();
        let ended = || {
            events(&home, &[name])
                .iter()
                .any(|event| event["event"] == "end")
        };
        eventually("it ends", ended);
    }
    let file = home.state.path().join("plot.svg");
    let path = file.to_str().unwrap();
    assert_eq!(said(&home, &["history", "--plot", path]), "");
    let drawn = fs::read_to_string(&file).unwrap();
    for text in [
        ">GPU memory of 2 slices<",
        ">llama on GPU 0 (NVIDIA GeForce RTX 3090)<",
        ">qwen on GPU 0 ",
        ">limit 4 GiB<",
        ">refused (1)<",
    ] {
        assert!(drawn.contains(text), "{text}: {drawn}");
    }
    assert_eq!(said(&home, &["history", "qwen", "--plot", path]), "");
    let drawn = fs::read_to_string(&file).unwrap();
    assert!(
        drawn.contains(">GPU memory of qwen<") && !drawn.contains("llama"),
        "{drawn}"
    );
}

#[test]
fn nothing_to_draw_is_an_error_and_leaves_no_file() {
    let home = Home::new();
    let file = home.state.path().join("plot.svg");
    let mut command = HERE.gpuslice();
    home.of(&mut command)
        .args(["history", "llama", "--plot"])
        .arg(&file);
    let (_, err, status) = told(&mut command);
    assert_eq!(status, 125);
    assert!(
        err.starts_with("gpuslice: there is nothing to draw: no run of \"llama\" was recorded"),
        "{err}"
    );
    let mut command = HERE.gpuslice();
    home.of(&mut command)
        .args(["report", "--for=0", "--plot"])
        .arg(&file);
    let (_, err, status) = told(&mut command);
    assert_eq!(
        (err.as_str(), status),
        (
            "gpuslice: there is nothing to draw: no slice was running\n",
            125
        )
    );
    assert!(!file.exists());
    let mut command = HERE.gpuslice();
    let (out, err, status) = told(home.of(&mut command).args(["history", "llama"]));
    assert_eq!(
        (out.as_str(), err.as_str(), status),
        ("", "gpuslice: no run of \"llama\" is known\n", 0)
    );
}
