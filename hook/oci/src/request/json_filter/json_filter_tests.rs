//! Tests that unlisted members are left out, listed members are kept as written, and limits hold.
//! Touches: its arguments.

use super::scan::DEPTH;
use super::*;
use serde_json::{Value, json};

const TREE: Keep = Keep::Members(&[
    ("all", Keep::All),
    ("first", Keep::First),
    ("env", Keep::Starting(&["N="])),
    ("named", Keep::Named(&["ours/"])),
    ("each", Keep::Each(&Keep::Members(&[("in", Keep::All)]))),
    (
        "list",
        Keep::Elements(&Keep::Members(&[("path", Keep::All)])),
    ),
]);

fn reduced(text: &str) -> String {
    let kept = reduce(text.as_bytes(), &TREE, 1 << 16).unwrap();
    String::from_utf8(kept).unwrap()
}

fn refused(text: &[u8]) -> String {
    reduce(text, &TREE, 1 << 16).unwrap_err().to_string()
}

#[test]
fn unlisted_members_are_left_out_and_the_others_kept_as_written() {
    let text = r#" { "no" : [ {"all": 1}, "]}" ], "all" : [1e400, "a\"]}", {"x":[ ]}],
        "first":[ "a" , {"b":[]}, 3], "env":["M=1","N=2",7,"N=3"], "each":{"x":{"in":1,"out":2},"y":{}},
        "named":{"ours\/a":"1","other/":"2","\u006furs/b":"3"}, "list":[{"path":"p","env":["x"]},null],
        "more": "..." } "#;
    assert_eq!(
        reduced(text),
        r#"{"all":[1e400, "a\"]}", {"x":[ ]}],"first":["a"],"env":["N=2","N=3"],"each":{"x":{"in":1},"y":{}},"named":{"ours\/a":"1","\u006furs/b":"3"},"list":[{"path":"p"},null]}"#
    );
    assert_eq!(reduced("{}"), "{}");
    assert_eq!(
        reduced(r#"{"first":[],"env":[],"named":{}}"#),
        r#"{"first":[],"env":[],"named":{}}"#
    );
    // The parser refuses a value of another type.
    assert_eq!(
        reduced(r#"{"first":{"a":[1]},"env":null}"#),
        r#"{"first":{"a":[1]},"env":null}"#
    );
}

#[test]
fn a_text_that_ends_early_or_is_not_json_is_refused() {
    for text in [
        "",
        "{",
        "{\"",
        "{\"a",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,",
        "{\"a\":[1}",
        "{\"a\":}",
        "{\"all\":\"",
        "{\"all\":\"\\",
        "{,}",
        "{}}",
        "{} x",
        "{\"a\":[}",
        "{\"a\":{]}",
        "\0{}",
        "{\0",
        "{\"a\":\0}",
        "{\"env\":[",
        "{\"env\":[\"N",
        "{\"a\" 1}",
        "{1:2}",
        "[",
        "{\"a\":1 \"b\":2}",
    ] {
        refused(text.as_bytes());
    }
}

#[test]
fn what_is_skipped_has_any_length_and_what_is_kept_a_bound() {
    let long = "\\u003c".repeat(1 << 20);
    let text = format!(r#"{{"no":"{long}","env":["{long}","N={long}"],"all":1}}"#);
    assert_eq!(reduced(&text), r#"{"env":["N=?"],"all":1}"#);
    let text = format!(r#"{{"{long}":1,"all":2}}"#);
    assert_eq!(reduced(&text), r#"{"all":2}"#);
    let text = format!(r#"{{"all":"{long}"}}"#);
    assert_eq!(
        refused(text.as_bytes()),
        "the members that gpuslice needs exceed 65536 bytes"
    );
    let text = format!(r#"{{"named":{{"ours/{long}":1}}}}"#);
    assert_eq!(refused(text.as_bytes()), "the name of a member is too long");
}

#[test]
fn nesting_is_followed_as_deep_as_go_follows_it_and_no_deeper() {
    let nested = |depth: usize| {
        format!(
            r#"{{"no":{}{},"all":1}}"#,
            "[".repeat(depth),
            "]".repeat(depth)
        )
    };
    assert_eq!(reduced(&nested(DEPTH)), r#"{"all":1}"#);
    assert_eq!(
        refused(nested(DEPTH + 1).as_bytes()),
        "it is nested too deep"
    );
    assert_eq!(
        refused("[".repeat(1 << 20).as_bytes()),
        "it is nested too deep"
    );
}

/// Returns one byte at a time, so that every token is split somewhere.
struct Slow<'a>(&'a [u8]);

impl Read for Slow<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some((first, rest)) = self.0.split_first() else {
            return Ok(0);
        };
        self.0 = rest;
        into[0] = *first;
        Ok(1)
    }
}

fn value() -> impl proptest::strategy::Strategy<Value = Value> {
    use proptest::prelude::*;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z\"\\\\\n<\u{e4}]{0,6}".prop_map(Value::from),
    ];
    let key = prop_oneof![
        Just("all".to_owned()),
        Just("list".to_owned()),
        Just("path".to_owned()),
        Just("ours/x".to_owned()),
        "[a-z\"\\\\]{0,3}",
    ];
    leaf.prop_recursive(4, 40, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::vec((key.clone(), inner), 0..5)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest::proptest! {
    #[test]
    fn any_json_is_reduced_to_json_in_which_what_is_kept_is_the_same(
        all in value(), other in value(), elements in proptest::collection::vec(value(), 0..4), pretty: bool,
    ) {
        let object = json!({"all": all, "other": other, "first": elements, "named": {"ours/": all, "x": other}});
        let text = if pretty { serde_json::to_vec_pretty(&object) } else { serde_json::to_vec(&object) };
        let kept = reduce(Slow(&text.unwrap()), &TREE, 1 << 20).unwrap();
        let kept: Value = serde_json::from_slice(&kept).unwrap();
        let first: Vec<Value> = elements.into_iter().take(1).collect();
        proptest::prop_assert_eq!(kept, json!({"all": all, "first": first, "named": {"ours/": all}}));
    }

    #[test]
    fn any_bytes_are_reduced_or_refused_without_a_panic(
        text in proptest::collection::vec(proptest::num::u8::ANY, 0..300),
    ) {
        if let Ok(kept) = reduce(&text[..], &TREE, 100) {
            proptest::prop_assert!(kept.len() <= 100);
        }
    }
}
