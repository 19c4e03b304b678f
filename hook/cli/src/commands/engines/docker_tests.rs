//! Tests that Docker's file keeps its order, its style and all its other contents.

use super::*;

const PLAIN: Wanted<'static> = Wanted {
    runtime: "/usr/bin/gpuslice-runtime",
    sizes: Vec::new(),
    default: false,
};

#[test]
fn a_file_that_is_not_there_is_made() {
    let wanted = Wanted {
        sizes: vec![("8gib".to_owned(), "8GiB".to_owned())],
        default: true,
        ..PLAIN
    };
    let expected = r#"{
    "runtimes": {
        "gpuslice": {
            "path": "/usr/bin/gpuslice-runtime"
        },
        "gpuslice-8gib": {
            "path": "/usr/bin/gpuslice-runtime",
            "runtimeArgs": [
                "--gpuslice-memory=8GiB"
            ]
        }
    },
    "default-runtime": "gpuslice"
}
"#;
    for text in [None, Some(""), Some("\n"), Some("{}")] {
        assert_eq!(add(text, &wanted).unwrap(), expected);
    }
    assert_eq!(add(Some(expected), &wanted).unwrap(), expected);
    assert_eq!(remove(expected).unwrap(), "{}\n");
}

#[test]
fn what_others_have_written_stays_as_they_wrote_it() {
    let theirs = r#"{
  "default-runtime": "nvidia",
  "runtimes": {
    "nvidia": { "path": "nvidia-container-runtime", "args": [] }
  },
  "max-concurrent-downloads": 1e1
}"#;
    let ours = add(Some(theirs), &PLAIN).unwrap();
    assert_eq!(
        ours,
        r#"{
  "default-runtime": "nvidia",
  "runtimes": {
    "nvidia": { "path": "nvidia-container-runtime", "args": [] },
    "gpuslice": {
      "path": "/usr/bin/gpuslice-runtime"
    }
  },
  "max-concurrent-downloads": 1e1
}"#
    );
    assert_eq!(add(Some(&ours), &PLAIN).unwrap(), ours);
    assert_eq!(remove(&ours).unwrap(), theirs);
}

#[test]
fn a_file_without_runtimes_or_with_none_in_it_gets_them() {
    let dense = r#"{"debug":true}"#;
    let ours = add(Some(dense), &PLAIN).unwrap();
    assert_eq!(
        ours,
        r#"{"debug":true,"runtimes":{"gpuslice":{"path":"/usr/bin/gpuslice-runtime"}}}"#
    );
    assert_eq!(remove(&ours).unwrap(), dense);
    let tabs = "{\n\t\"debug\": true,\n\t\"runtimes\": {}\n}\n";
    assert_eq!(
        add(Some(tabs), &PLAIN).unwrap(),
        "{\n\t\"debug\": true,\n\t\"runtimes\": {\n\t\t\"gpuslice\": {\n\t\t\t\"path\": \
         \"/usr/bin/gpuslice-runtime\"\n\t\t}\n\t}\n}\n"
    );
}

#[test]
fn a_file_that_the_daemon_would_not_take_is_left_alone() {
    for text in [
        "[]",
        "{",
        "{\"runtimes\":[]}",
        "// a comment\n{}",
        "{\"runtimes\":{},\"runtimes\":{}}",
    ] {
        assert!(add(Some(text), &PLAIN).is_err(), "{text}");
    }
}

#[test]
fn a_runtime_of_others_that_is_called_like_ours_stays() {
    let theirs = r#"{
  "default-runtime": "gpuslice-team",
  "runtimes": {
    "gpuslice-team": {"path": "/mine"},
    "gpuslice-args": {"path": "/usr/bin/gpuslice-runtime", "runtimeArgs": ["--debug"]}
  }
}"#;
    assert!(!has(theirs));
    assert_eq!(remove(theirs).unwrap(), theirs);
    let ours = add(Some(theirs), &PLAIN).unwrap();
    assert!(has(&ours));
    assert_eq!(remove(&ours).unwrap(), theirs);
    assert_eq!(
        default_runtime(Some(theirs)).as_deref(),
        Some("gpuslice-team")
    );
    assert_eq!(
        program(Some(theirs), "gpuslice-team").as_deref(),
        Some("/mine")
    );
    let empty = "{\"runtimes\": {}}";
    assert_eq!(remove(empty).unwrap(), empty);
}
