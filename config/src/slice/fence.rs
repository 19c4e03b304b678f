//! The mechanisms that can hold a slice's limit: the driver, or the preload library.
//! Touches: nothing.

/// The mechanism that a user or an operator asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "std", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "std", serde(rename_all = "lowercase"))]
pub enum Fence {
    /// The driver where it can limit a cgroup, otherwise the preload library.
    #[default]
    Auto,
    /// The driver. A slice that the driver cannot hold is refused.
    Driver,
    /// The preload library alone.
    Preload,
}

impl Fence {
    /// The words, for error messages.
    pub const WORDS: &str = "auto, driver, preload";

    /// Reads a word: `auto`, `driver`, `preload`.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Fence> {
        match word {
            "auto" => Some(Fence::Auto),
            "driver" => Some(Fence::Driver),
            "preload" => Some(Fence::Preload),
            _ => None,
        }
    }

    /// The word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Fence::Auto => "auto",
            Fence::Driver => "driver",
            Fence::Preload => "preload",
        }
    }
}

/// The way in which a driver limits a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "std", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "std", serde(rename_all = "lowercase"))]
pub enum DriverLimit {
    /// The kernel's dmem controller: the limits of all ancestors hold, too.
    Dmem,
    /// The driver's own table: only the nearest limit holds.
    Misc,
}

impl DriverLimit {
    /// The word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            DriverLimit::Dmem => "dmem",
            DriverLimit::Misc => "misc",
        }
    }
}

/// Whether the cgroup `own` of a process is the cgroup `limited`, or below it. Both are paths as in
/// `/proc/PID/cgroup`. `is_namespaced`: the process has a cgroup
/// namespace whose root is `limited`. It then sees that cgroup as `/`, and those outside as `/../...`.
#[must_use]
pub fn is_within(own: &[u8], limited: &[u8], is_namespaced: bool) -> bool {
    let below = own.strip_prefix(limited);
    let is_below = below.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"));
    let is_outside = own.starts_with(b"/..");
    is_below || is_namespaced && own.starts_with(b"/") && !is_outside
}

/// The path in cgroup version 2, from the text of `/proc/PID/cgroup`. The text also lists the
/// controllers of version 1, if there are any.
#[must_use]
pub fn version_2(text: &[u8]) -> Option<&[u8]> {
    let mut lines = text.split(|byte| *byte == b'\n');
    lines.find_map(|line| line.strip_prefix(b"0::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_read_as_it_is_written() {
        for fence in [Fence::Auto, Fence::Driver, Fence::Preload] {
            assert_eq!(Fence::from_word(fence.word()), Some(fence));
            assert!(Fence::WORDS.contains(fence.word()));
        }
        assert_eq!(Fence::from_word("kernel"), None);
        for limit in [DriverLimit::Dmem, DriverLimit::Misc] {
            assert_eq!(DriverLimit::from_word(limit.word()), Some(limit));
        }
    }

    #[test]
    fn a_process_is_within_the_cgroup_itself_and_everything_below() {
        let within = |own: &str, limited: &str, namespaced| {
            is_within(own.as_bytes(), limited.as_bytes(), namespaced)
        };
        assert!(within("/a/b", "/a/b", false) && within("/a/b/c", "/a/b", false));
        for outside in ["/a", "/a/bc", "/", "/c/a/b", "", "/../b"] {
            assert!(!within(outside, "/a/b", false), "{outside}");
        }
        assert!(within("/", "/a/b", true) && within("/sub", "/a/b", true));
        for outside in ["/..", "/../x", ""] {
            assert!(!within(outside, "/a/b", true), "{outside}");
        }
    }

    #[test]
    fn the_path_of_version_2_is_found_beside_those_of_version_1() {
        let hybrid = b"9:name=systemd:/docker/ab\n4:memory:/docker/ab\n0::/docker/ab\n";
        assert_eq!(version_2(hybrid), Some(&b"/docker/ab"[..]));
        assert_eq!(version_2(b"4:memory:/docker/ab\n"), None);
        assert_eq!(version_2(b"0::/a::b\n"), Some(&b"/a::b"[..]));
    }
}
