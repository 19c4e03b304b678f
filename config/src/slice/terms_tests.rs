//! The keys and words of slice files that a library states.
//! Touches: its arguments.

use super::*;

#[test]
fn the_version_precedes_keys_that_an_older_reader_may_not_know() {
    let written = Slice::default().to_json_line();
    assert!(written.starts_with(r#"{"version":1,"#), "{written}");
    let newer = written.replace(r#""version":1,"#, r#""version":2,"new":[],"#);
    assert_eq!(fault(&newer), SliceFault::NewerVersion(2));
}

/// The lists are those of the reader, so a term that is listed is understood.
#[test]
fn every_listed_term_is_understood() {
    let mut count = 0;
    for term in TERMS.iter().flat_map(|list| list.lines()) {
        let text = match (term.split_once('='), term.split_once('.')) {
            (Some((key, word)), Some((list, _))) => {
                let key = key.trim_start_matches("devices.");
                format!(r#""{list}":[{{"{key}":"{word}"}}]}}"#)
            }
            (Some((key, word)), None) => format!(r#""{key}":"{word}"}}"#),
            (None, Some(("devices", key))) => format!(r#""devices":[{{"{key}":"#),
            (None, Some((object, key))) => format!(r#""{object}":{{"{key}":"#),
            (None, None) => format!(r#""{term}":"#),
        };
        let text = match term {
            "version" => "{\"version\":1}".to_string(),
            _ => format!(r#"{{"version":1,{text}"#),
        };
        let fault = parse(text.as_bytes()).err().map(|error| error.fault);
        assert!(
            !matches!(
                fault,
                Some(SliceFault::UnknownKey(_) | SliceFault::NotOneOf(..))
            ),
            "{term}: {fault:?}"
        );
        count += 1;
    }
    assert_eq!(
        count,
        TERMS
            .concat()
            .lines()
            .collect::<std::collections::BTreeSet<_>>()
            .len()
    );
}

#[test]
fn the_terms_of_a_file_are_its_keys_and_words() {
    let text = r#"{"version":1,"name":"total=x","total":"device","model_files":{"suffixes":["a"]},
        "devices":[{"uuid":"u","memory":1},{"uuid":"v"}],"later":{"key":["word"]}}"#;
    let mut terms = terms_of(text);
    terms.sort();
    terms.dedup();
    assert_eq!(
        terms,
        [
            "devices",
            "devices.memory",
            "devices.uuid",
            "later",
            "later.key",
            "model_files",
            "model_files.suffixes",
            "name",
            "total",
            "total=device",
            "version",
        ]
    );
    assert!(terms_of("{").is_empty());
}

proptest! {
    #[test]
    fn what_the_host_writes_consists_of_listed_terms(slice in any_slice()) {
        let listed = TERMS.concat();
        for term in terms_of(&slice.to_json()) {
            prop_assert!(listed.lines().any(|line| line == term), "{}", term);
        }
    }

    #[test]
    fn what_the_host_writes_the_shim_reads(slice in any_slice()) {
        prop_assert_eq!(parse(slice.to_json().as_bytes()), Ok(slice));
        prop_assert_eq!(parse(slice.to_json_line().as_bytes()), Ok(slice));
    }

    #[test]
    fn whatever_is_accepted_is_json(text in almost_json()) {
        if parse(text.as_bytes()).is_ok() {
            prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{}", text);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "minutes in an interpreter")]
    fn any_damage_to_a_file_is_an_error_or_another_slice_but_never_a_panic(
        slice in any_slice(), place in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>(),
    ) {
        let mut text: Vec<u8> = slice.to_json().into_bytes();
        let place = place.index(text.len());
        if cut { text.truncate(place) } else { text[place] = byte }
        if parse(&text).is_ok() {
            prop_assert!(serde_json::from_slice::<serde_json::Value>(&text).is_ok());
        }
    }
}
