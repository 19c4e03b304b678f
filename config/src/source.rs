//! The paths and environment variables from which a slice is loaded.
//! Touches: its arguments; the caller reads the environment and the file system, once.

/// The slice that the hook has mounted: it wins over any environment, which images can set.
pub const MOUNTED_SLICE: &core::ffi::CStr = c"/.gpuslice/slice.json";

/// The same, where nobody can make a folder in the container's root: in the runtime's `/dev`. Such a
/// file names its ledger and all else that it needs by their paths.
pub const MOUNTED_IN_DEV: &core::ffi::CStr = c"/dev/gpuslice/slice.json";

/// The file in the folder of a mounted slice, or in its place, that says why programs of the container
/// run without the slice.
pub const NO_SLICE: &str = "no-slice";

/// The host's live meminfo that the hook has mounted, even where `/proc/meminfo` is a copy.
pub const MOUNTED_MEMINFO: &core::ffi::CStr = c"/.gpuslice/meminfo";

/// The ledger of a mounted slice whose file names none.
pub const MOUNTED_LEDGER: &core::ffi::CStr = c"/.gpuslice/ledger/ledger";

/// The promises of every slice of the machine, of a mounted slice whose file names none.
pub const MOUNTED_PROMISES: &core::ffi::CStr = c"/.gpuslice/promises";

/// What a mounted slice has spent, where its file names no other place.
pub const MOUNTED_PROMISE: &core::ffi::CStr = c"/.gpuslice/promise";

/// The memory cgroup of a container, as it sees it itself.
pub const OWN_CGROUP: &str = "/sys/fs/cgroup";

/// How much the whole machine waits for memory.
pub const PRESSURE: &core::ffi::CStr = c"/proc/pressure/memory";

/// The meminfo of a machine that nobody has prepared.
pub const PROC_MEMINFO: &core::ffi::CStr = c"/proc/meminfo";

/// Environment (`gpuslice run` only): the path of a slice file.
pub const CONFIG: &core::ffi::CStr = c"GPUSLICE_CONFIG";

/// Environment (`gpuslice run` only): the slice itself, for where its file cannot be read: by a
/// server that has given up root, under a /tmp of its own, after somebody tidied /tmp.
pub const SLICE: &core::ffi::CStr = c"GPUSLICE_SLICE";

/// Environment: how much the shim says, `warn`, `info` or `debug`. Unset: nothing.
pub const LOG: &core::ffi::CStr = c"GPUSLICE_LOG";

/// Environment: the file to which the shim's log is appended. Unset: standard error.
pub const LOG_FILE: &core::ffi::CStr = c"GPUSLICE_LOG_FILE";

/// How much the shim says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Nothing.
    #[default]
    Off,
    /// What a person should look at.
    Warn,
    /// What was decided.
    Info,
    /// Every resolution and every answer.
    Debug,
}

impl LogLevel {
    /// The level that the value of [`LOG`] asks for. A word that is not understood means
    /// `warn`: somebody wanted to see something.
    #[must_use]
    pub fn parse(value: Option<&[u8]>) -> LogLevel {
        match value {
            None | Some(b"" | b"off" | b"0") => LogLevel::Off,
            Some(b"info") => LogLevel::Info,
            Some(b"debug" | b"trace") => LogLevel::Debug,
            Some(_) => LogLevel::Warn,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_off_unless_asked_for_and_a_typo_still_warns() {
        assert_eq!(LogLevel::parse(None), LogLevel::Off);
        assert_eq!(LogLevel::parse(Some(b"")), LogLevel::Off);
        assert_eq!(LogLevel::parse(Some(b"inof")), LogLevel::Warn);
        assert_eq!(LogLevel::parse(Some(b"debug")), LogLevel::Debug);
    }
}
