//! The paths and environment variables from which a slice is loaded.
//! Touches: its arguments; the caller reads the environment and the file system, once.

/// The slice that the hook has mounted. It overrides the environment, which images can set.
pub const MOUNTED_SLICE: &core::ffi::CStr = c"/.gpuslice/slice.json";

/// The mounted slice of a container with a read-only root: it is in the runtime's `/dev`. Such a
/// file names the paths of its ledger and of everything else that it needs.
pub const MOUNTED_IN_DEV: &core::ffi::CStr = c"/dev/gpuslice/slice.json";

/// The file with the reason why the container's programs run without the slice. It is in the folder
/// of a mounted slice, or in that folder's place.
pub const NO_SLICE: &str = "no-slice";

/// The host's live meminfo that the hook has mounted, even where `/proc/meminfo` is a copy.
pub const MOUNTED_MEMINFO: &core::ffi::CStr = c"/.gpuslice/meminfo";

/// The ledger of a mounted slice whose file does not name one.
pub const MOUNTED_LEDGER: &core::ffi::CStr = c"/.gpuslice/ledger/ledger";

/// The folder of the machine's promises, for a mounted slice whose file does not name one.
pub const MOUNTED_PROMISES: &core::ffi::CStr = c"/.gpuslice/promises";

/// The promise of a mounted slice whose file does not name one.
pub const MOUNTED_PROMISE: &core::ffi::CStr = c"/.gpuslice/promise";

/// The memory cgroup of a container, as seen from inside it.
pub const OWN_CGROUP: &str = "/sys/fs/cgroup";

/// The memory pressure of the whole machine.
pub const PRESSURE: &core::ffi::CStr = c"/proc/pressure/memory";

/// The meminfo of a machine without the hook's mount.
pub const PROC_MEMINFO: &core::ffi::CStr = c"/proc/meminfo";

/// Environment (`gpuslice run` only): the path of a slice file.
pub const CONFIG: &core::ffi::CStr = c"GPUSLICE_CONFIG";

/// Environment (`gpuslice run` only): the slice itself, for processes that cannot read its file:
/// they have given up root, have a private /tmp, or the file was removed from /tmp.
pub const SLICE: &core::ffi::CStr = c"GPUSLICE_SLICE";

/// Environment: the shim's log level, `warn`, `info` or `debug`. Unset: no log.
pub const LOG: &core::ffi::CStr = c"GPUSLICE_LOG";

/// Environment: the file to which the shim's log is appended. Unset: standard error.
pub const LOG_FILE: &core::ffi::CStr = c"GPUSLICE_LOG_FILE";

/// The shim's log level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Nothing.
    #[default]
    Off,
    /// Events that need attention.
    Warn,
    /// Decisions.
    Info,
    /// Every symbol resolution and every answer.
    Debug,
}

impl LogLevel {
    /// The log level for a value of [`LOG`]. An unknown word means `warn`, because its author
    /// wanted some output.
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
