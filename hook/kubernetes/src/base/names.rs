//! Names that come from the cluster: each is checked before it is part of a path or of an argument.
//! Touches: its arguments.
//! Law: a [`Uid`] and a checked name contain no separator, no dot at their start and no white space.

use gpuslice_host::base::text::shown;
use std::fmt;
use std::str::FromStr;

/// The uid of an object or of a share, as the API server makes them: 8-4-4-4-12 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Uid(String);

/// A text is not such a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} \"{}\" is not {expected}", shown(.text))]
pub struct NameError {
    what: &'static str,
    text: String,
    expected: &'static str,
}

impl Uid {
    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl FromStr for Uid {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Uid, NameError> {
        let lengths = text.split('-').map(str::len);
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_uid =
            lengths.eq([8, 4, 4, 4, 12]) && text.bytes().all(|byte| byte == b'-' || is_hex(byte));
        match is_uid {
            true => Ok(Uid(text.to_owned())),
            false => Err(NameError {
                what: "uid",
                text: text.to_owned(),
                expected: "a uid (8-4-4-4-12 hexadecimal digits in lower case)",
            }),
        }
    }
}

/// Checks that a text is a DNS subdomain, as the names and namespaces of objects are.
///
/// # Errors
/// [`NameError`] names the text.
pub fn subdomain<'a>(what: &'static str, text: &'a str) -> Result<&'a str, NameError> {
    match text.len() <= 253 && text.split('.').all(is_label) {
        true => Ok(text),
        false => Err(NameError {
            what,
            text: text.to_owned(),
            expected: "a DNS subdomain",
        }),
    }
}

/// Whether a text is a DNS label in lower case, such as a device's name. The parts of a subdomain
/// may be longer than a label of DNS, as Kubernetes allows.
fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_is_hexadecimal_digits_and_hyphens_only() {
        let good = "4f8f2b6c-0a1b-4c3d-8e9f-001122334455";
        assert_eq!(good.parse::<Uid>().unwrap().as_str(), good);
        for bad in [
            "",
            "..",
            "../../etc/passwd",
            "4f8f2b6c-0a1b-4c3d-8e9f-00112233445",
            "4F8F2B6C-0A1B-4C3D-8E9F-001122334455",
            "4f8f2b6c-0a1b-4c3d-8e9f-00112233445/",
            "4f8f2b6c-0a1b-4c3d-8e9f-00112233445\n",
            "4f8f2b6c-0a1b-4c3d-8e9f-001122334455-",
            "4f8f2b6c_0a1b-4c3d-8e9f-001122334455",
            "４f8f2b6-0a1b-4c3d-8e9f-001122334455",
        ] {
            assert!(bad.parse::<Uid>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_name_is_a_subdomain_in_lower_case() {
        for good in ["a", "default", "vllm-0.gpu", "a1-b2"] {
            assert_eq!(subdomain("name", good), Ok(good));
        }
        let long = "a".repeat(254);
        for bad in [
            "", ".", "a/b", "..", "-a", "a-", "A", "a b", "a%2fb", "a?b", &long,
        ] {
            assert!(subdomain("name", bad).is_err(), "{bad:?}");
        }
        let error = subdomain("namespace", "a/\u{1b}b").unwrap_err();
        let message = r#"namespace "a/\u{1b}b" is not a DNS subdomain"#;
        assert_eq!(error.to_string(), message);
    }
}
