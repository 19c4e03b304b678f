//! An edit changes the requested member and no other text.

use super::*;
use proptest::prelude::*;
use serde_json::Value;

fn whole(text: &str) -> Range<usize> {
    root(text).unwrap()
}

#[test]
fn a_member_is_added_in_the_style_of_the_others() {
    let pretty = "{\n\t\"a\": 1e400,\n\t\"b\": [ ]\n}\n";
    assert_eq!(
        set(pretty, &whole(pretty), "c", "{}").unwrap(),
        "{\n\t\"a\": 1e400,\n\t\"b\": [ ],\n\t\"c\": {}\n}\n"
    );
    let dense = r#"{"a":1,"b":"\u00e9"}"#;
    assert_eq!(
        set(dense, &whole(dense), "c", "[]").unwrap(),
        r#"{"a":1,"b":"\u00e9","c":[]}"#
    );
    assert_eq!(set(" { } ", &(1..4), "c", "1").unwrap(), " {\"c\":1} ");
}

#[test]
fn a_member_is_replaced_where_it_is() {
    let text = r#"{"a":{"x":[1,2]} , "b":2}"#;
    assert_eq!(
        set(text, &whole(text), "a", "0").unwrap(),
        r#"{"a":0 , "b":2}"#
    );
}

#[test]
fn a_member_is_removed_with_its_comma() {
    let removed = |text: &str| remove(text, &whole(text), "a").unwrap();
    assert_eq!(removed(r#"{ "a": 1, "b": 2 }"#), r#"{ "b": 2 }"#);
    assert_eq!(removed(r#"{ "b": 2, "a": 1 }"#), r#"{ "b": 2 }"#);
    assert_eq!(removed("{\n  \"a\": 1\n}\n"), "{}\n");
    assert_eq!(removed(r#"{"b":1}"#), r#"{"b":1}"#);
}

#[test]
fn what_is_not_json_or_can_be_read_two_ways_is_refused() {
    for text in [
        "",
        "{",
        "{} {}",
        "{\"a\":01}",
        "{\"a\":1,}",
        "[1 2]",
        "\"\t\"",
        "\"\\x\"",
        "\"\\u12g4\"",
        "nul",
        "-",
        "1.",
        "1e",
        "{a:1}",
        "'a'",
        "\u{feff}{}",
    ] {
        assert!(matches!(root(text), Err(JsonError::NotJson(_))), "{text}");
    }
    let twice = r#"{"a":1,"a":2}"#;
    assert_eq!(set(twice, &whole(twice), "a", "3"), Err(JsonError::Twice));
    let deep = "[".repeat(1_000_000);
    assert_eq!(root(&deep), Err(JsonError::TooDeep));
    assert_eq!(push("{}", &(0..2), "1"), Err(JsonError::OtherType(0)));
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map("[a-c]|.*", inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn serde_json_reads_the_same_with_the_change(
        members in prop::collection::btree_map("[a-c]|.*", json(), 0..5),
        key in "[a-c]|.*",
        value in json(),
        pretty: bool,
    ) {
        let object = Value::Object(members.into_iter().collect());
        let text = match pretty {
            true => serde_json::to_string_pretty(&object).unwrap(),
            false => object.to_string(),
        };
        // If serde_json escapes the key in another way, it is a different key.
        prop_assume!(serde_json::to_string(&key).unwrap() == quoted(&key));
        let read = |text: String| serde_json::from_str::<Value>(&text).unwrap();
        let mut with = object.clone();
        with[&key] = value.clone();
        prop_assert_eq!(read(set(&text, &whole(&text), &key, &value.to_string()).unwrap()), with);
        let mut without = object.clone();
        without.as_object_mut().unwrap().remove(&key);
        prop_assert_eq!(read(remove(&text, &whole(&text), &key).unwrap()), without);
    }

    #[test]
    fn json_is_what_serde_json_takes_for_it(text in "[\\[\\]{}:,\"a0-9.e+\\\\u \\-]{0,24}|true|null") {
        let theirs = serde_json::from_str::<serde::de::IgnoredAny>(&text);
        prop_assert_eq!(root(&text).is_ok(), theirs.is_ok(), "{}", text);
    }
}
