//! The codes of findings: what each means for the slice, in a few words.
//! Touches: nothing.
//! Law: a code is never renamed. The page on troubleshooting lists every code, and a test compares
//! them. Codes stand in the order in which findings are shown: a cause before its consequences.

use serde::{Serialize, Serializer};

/// Whether a finding breaks the slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// The slice is not in force, or refuses all GPU memory.
    Error,
    /// The slice is in force; this may become a problem, or explain a number.
    Warning,
}

macro_rules! codes {
    ($($code:ident = $name:literal, $severity:ident, $cause:literal, $fix:literal;)+) => {
        /// A finding's code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Code {
            $($code,)+
        }

        impl Code {
            /// Returns the name, which is part of the JSON and the handbook.
            pub(super) fn name(self) -> &'static str {
                match self { $(Code::$code => $name,)+ }
            }

            /// Returns the usual severity.
            pub(super) fn severity(self) -> Severity {
                match self { $(Code::$code => Severity::$severity,)+ }
            }

            /// Returns the cause in a few words, for the verdict.
            pub(super) fn cause(self) -> &'static str {
                match self { $(Code::$code => $cause,)+ }
            }

            /// Returns the usual remedy.
            pub(super) fn fix(self) -> &'static str {
                match self { $(Code::$code => $fix,)+ }
            }
        }
    };
}

codes! {
    // Why there is no slice.
    NoSlice = "no-slice", Error, "it was started without one",
        "start it with gpuslice run, or give its container the annotation gpuslice.io/memory";
    StartedWithoutSlice = "started-without-slice", Error,
        "the host failed when the container started",
        "repair the cause, and start the container again; [on-error] annotated = \"refuse\" refuses such containers";
    NotInjectable = "image-not-injectable", Error, "its image cannot load the library",
        "use an image with glibc; when-not-injectable = \"refuse\" refuses such containers";
    AnnotationMissing = "annotation-missing", Error, "its container has no annotation",
        "add the annotation gpuslice.io/memory; on containerd a pod also needs runtimeClassName: gpuslice";
    HookNotRun = "hook-not-run", Error, "its container's runtime did not run the hook",
        "run gpuslice runtime configure for the engine, and start the container again";

    // Why the library is not loaded.
    StaticProgram = "static-program", Error, "its program is statically linked",
        "use a dynamically linked build of the program, or a driver limit (gpuslice driver-limit)";
    NarrowProgram = "32-bit-program", Error, "its program is a 32-bit program",
        "use a 64-bit build of the program";
    OtherProcessor = "other-processor", Error, "its program is built for another processor",
        "use a build of the program for this machine";
    OtherLibc = "other-libc", Error, "its program uses another libc than glibc",
        "use a build of the program for glibc";
    Privileged = "privileged-program", Error, "its program has privileges of its own",
        "let the program that changes the user start gpuslice run, or remove the set-user-ID bit or capabilities";
    EnvironmentEmptied = "environment-emptied", Error, "its environment was emptied",
        "put gpuslice run after the command that empties the environment: sudo gpuslice run ... -- CMD";
    PreloadLost = "preload-lost", Error, "LD_PRELOAD does not name the library",
        "remove what unsets LD_PRELOAD between gpuslice run and the program";
    SliceVariableLost = "slice-variable-lost", Error, "GPUSLICE_CONFIG is not set",
        "remove what unsets GPUSLICE_CONFIG between gpuslice run and the program";
    PreloadFileEdited = "ld-so-preload-edited", Error, "/etc/ld.so.preload does not name the library",
        "start the container again, and remove what replaces /etc/ld.so.preload in it";
    MountNamespace = "mount-namespace", Error, "its files do not exist in its mount namespace",
        "start gpuslice run inside the namespace, or make the paths visible there";
    OtherUser = "other-user", Error, "its user cannot read the slice's files",
        "install gpuslice where every user can read it, and start the run without umask 077";
    LibraryMissing = "library-missing", Error, "the library was removed",
        "install gpuslice again, and start the program again";
    LibraryNotLoaded = "library-not-loaded", Error, "ld.so did not load the library",
        "start the program with LD_DEBUG=files to see ld.so's reason";

    // Why the slice file does not hold.
    SliceFileMissing = "slice-file-missing", Error, "its slice file does not exist",
        "start the slice again";
    SliceFileUnreadable = "slice-file-unreadable", Error, "its slice file cannot be read",
        "make the file readable for the program's user, or start the slice again";
    SliceFileInvalid = "slice-file-invalid", Error, "its slice file is not valid",
        "repair the file, and start the program again";

    // Why the ledger does not hold.
    NoLedger = "no-ledger", Error, "it has no ledger",
        "let XDG_RUNTIME_DIR, TMPDIR or /dev/shm be a tmpfs, and start the slice again (--strict refuses such a start)";
    LedgerMissing = "ledger-missing", Error, "its ledger does not exist",
        "start the slice again; for a slice file of your own, start it with gpuslice run --config";
    LedgerUnreadable = "ledger-unreadable", Error, "its ledger cannot be opened",
        "give the program's user access to the ledger, or start the slice again";
    LedgerTruncated = "ledger-truncated", Error, "its ledger has a wrong length",
        "stop the slice's programs, and start the slice again";
    LedgerOverwritten = "ledger-overwritten", Error, "its ledger was overwritten",
        "stop the slice's programs, and start the slice again";
    LedgerReplaced = "ledger-replaced", Error, "its ledger was replaced by another",
        "stop the slice's programs, and start the slice again";
    LedgerVersion = "ledger-version", Error, "its ledger has another version",
        "start the slice again with the installed gpuslice";
    LedgerFull = "ledger-full", Warning, "its ledger had no free slot",
        "run fewer processes in the slice: a ledger has 512 slots for each device";

    // Why a process cannot use files that are in order.
    Seccomp = "seccomp-filter", Error, "its seccomp filter stops the library",
        "let the filter allow getpid, gettid, fstat, fstatfs, fcntl, clock_gettime, madvise and get_robust_list (on unified memory also pwrite64 and getdents64)";
    OpenFiles = "too-many-open-files", Error, "it has no free file descriptor",
        "raise the limit of open files (ulimit -n, LimitNOFILE=), and start the program again";
    AddressSpace = "address-space-limit", Error, "its address space is limited",
        "raise the limit of the address space (ulimit -v, LimitAS=), and start the program again";
    GpuNotLimited = "gpu-not-limited", Error, "it sees a GPU that the slice does not limit",
        "give that GPU a limit (--device), or hide it with CUDA_VISIBLE_DEVICES";
    MigDivided = "mig-divided", Error, "its GPU is divided by MIG",
        "name the MIG instances in the slice (gpuslice devices lists them)";

    // Why a node gives no slices.
    NoLibrary = "no-library", Error, "no library can be preloaded",
        "install gpuslice again";
    NoTmpfs = "no-tmpfs", Error, "no folder for ledgers is a tmpfs",
        "mount a tmpfs at /dev/shm, or set XDG_RUNTIME_DIR to a folder on one";
    TmpfsFull = "tmpfs-full", Error, "the file system for slices is full",
        "remove files from it, or mount it with a larger size";
    PolicyInvalid = "policy-invalid", Error, "the policy is not valid",
        "repair the file; until then annotated containers are refused";
    RecordsDamaged = "records-damaged", Error, "a record of a container cannot be read",
        "run gpuslice gc --force once that container is gone";
    HookMissing = "hook-missing", Error, "an engine names a hook that does not exist",
        "install gpuslice again, or run gpuslice runtime configure for the engine";
    BaseSpecMissing = "base-spec-missing", Error, "containerd names a file that does not exist",
        "run gpuslice runtime configure --runtime containerd: containerd does not start without the file";
    HandlerWithoutEffect = "handler-without-effect", Error, "containerd's handler has no effect",
        "run gpuslice runtime configure --runtime containerd, and do what its result says";
    HandlerDropsAnnotations = "handler-drops-annotations", Error,
        "a handler of containerd passes no annotations on",
        "add pod_annotations and container_annotations = [\"gpuslice.io/*\"] to the handler";
    DevicesInvalid = "devices-invalid", Error, "the list of GPUs cannot be read",
        "run gpuslice devices --write";

    // What does not break a slice.
    NotEnforced = "not-enforced", Warning, "it does not refuse memory",
        "start the slice without --no-enforce";
    LibraryReplaced = "library-replaced", Warning, "the library's file was replaced or removed",
        "start the program again to load the installed library";
    LibraryOtherBuild = "library-other-build", Warning, "another build of the library is loaded",
        "start the program with the gpuslice command of the same installation";
    LibraryTwice = "library-twice", Warning, "two copies of the library are loaded",
        "let LD_PRELOAD or /etc/ld.so.preload name one copy";
    DlsymInFront = "dlsym-in-front", Warning, "another library's dlsym is in front of this library's",
        "let LD_PRELOAD name libgpuslice.so first";
    SliceFileEdited = "slice-file-edited", Warning, "its slice file was edited after the start",
        "start the program again, so that the new limit holds for it";
    WatcherGone = "watcher-gone", Warning, "the run's watcher has ended",
        "start the slice again before its folder is removed";
    DriverTwice = "driver-twice", Warning, "there are two driver libraries",
        "remove one folder from LD_LIBRARY_PATH";
    DriverStub = "driver-stub", Warning, "the driver library is the toolkit's stub",
        "remove the folder stubs from LD_LIBRARY_PATH: it is for linking only";
    NoVisibleGpu = "no-visible-gpu", Warning, "it sees no GPU",
        "set CUDA_VISIBLE_DEVICES to a GPU of the slice, or unset it";
    Mps = "mps", Warning, "it is a client of MPS",
        "compare the limit with CUDA_MPS_PINNED_DEVICE_MEM_LIMIT: the lower one holds";
    DriverLimitLower = "driver-limit-lower", Warning, "the driver's limit is lower than the slice",
        "give the slice the size of the driver's limit, or remove the driver's limit";
    MeminfoMissing = "meminfo-missing", Warning, "the host's meminfo is not visible to it",
        "start the container again, or set meminfo in the slice file to a file that the program can read";
    MeminfoOld = "meminfo-old", Warning, "the meminfo mounted for it is not written any more",
        "start gpusliced with [meminfo] for containers; start a run again";
    LogNotWritable = "log-not-writable", Warning, "its log file cannot be written",
        "name a file that the program's user can write, in a folder that exists";
    NoDriver = "no-driver", Warning, "the NVIDIA driver does not answer",
        "see whether nvidia-smi answers";
    DevicesStale = "devices-stale", Warning, "the list of GPUs is out of date",
        "run gpuslice devices --write";
    DevicesMissing = "devices-missing", Warning, "there is no list of GPUs",
        "run gpuslice devices --write, or enable gpuslice-devices.service";
    OnErrorStart = "on-error-start", Warning, "the policy starts annotated containers without their slice if the hook fails",
        "set [on-error] annotated = \"refuse\" in the policy";
    HookNotConfigured = "hook-not-configured", Warning, "an engine does not run the hook",
        "run gpuslice runtime configure --runtime ENGINE";
    CdiDisabled = "cdi-disabled", Warning, "containerd ignores CDI devices",
        "set enable_cdi = true in containerd's CRI plugin, or use an annotation";
    ToolkitLegacy = "toolkit-legacy-mode", Warning, "the NVIDIA toolkit is in legacy mode",
        "name the GPU in the annotation (gpuslice.io/memory.0), or set the toolkit's mode to cdi";
    ToolkitWithoutCdi = "toolkit-without-cdi", Warning,
        "the NVIDIA toolkit is in cdi mode without a specification",
        "run nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml";
    MpsDaemon = "mps-daemon", Warning, "the MPS daemon runs",
        "remember that a client's memory is also limited by MPS, and that NVML reports the server's process";
    DaemonInvalid = "gpusliced-invalid", Warning, "the configuration of gpusliced is not valid",
        "repair the file, and run systemctl restart gpusliced";
    DaemonNotRunning = "gpusliced-not-running", Warning, "gpusliced, or its guard, does not run",
        "run systemctl enable --now gpusliced, or remove its configuration";
    GuardHangs = "guard-hangs", Warning, "gpusliced --guard has stopped working",
        "run systemctl restart gpuslice-guard, and report what its log says";
    KernelTooOld = "kernel-too-old", Warning, "the kernel is too old for containers",
        "use Linux 5.12 or newer for slices of containers";
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(self.name())
    }
}
