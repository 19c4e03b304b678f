//! The sections of the report, in its order.

mod calls;
mod containers;
mod guard;
mod metrics;
mod node;
mod page_cache;
mod processes;
mod start;
mod status;
mod throttle;
mod unified;

use crate::base::workshop::Workshop;
use crate::measure::effort::Effort;
use crate::measure::figure::Measured;
use crate::measure::variants::Peer;
use anyhow::Result;

/// What a section is measured with.
pub(crate) struct Setting {
    pub(crate) workshop: Workshop,
    pub(crate) effort: Effort,
    pub(crate) peer: Option<Peer>,
}

/// A section that can be measured.
pub(crate) struct Definition {
    /// Its name in `REPORT_SECTIONS`.
    pub(crate) key: &'static str,
    pub(crate) title: &'static str,
    pub(crate) about: &'static str,
    pub(crate) count_of: Option<&'static str>,
    pub(crate) run: fn(&Setting) -> Result<Measured>,
}

/// All sections.
pub(crate) const ALL: &[Definition] = &[
    Definition {
        key: "query",
        title: "Queries of memory",
        about: "One call, in a process that holds 64 MiB. A linked program's call is bound by the loader; \
                the others look the function up with dlsym, as CUDA's runtime does.",
        count_of: None,
        run: calls::query,
    },
    Definition {
        key: "look-ups",
        title: "Look-ups of functions",
        about: "dlsym and cuGetProcAddress_v2, for a function that gpuslice replaces and for others.",
        count_of: None,
        run: calls::look_ups,
    },
    Definition {
        key: "alloc",
        title: "Allocation and free, by kind",
        about: "One allocation and its free, with nothing else alive, in CUDA, Vulkan and OpenCL. The \
                queries of OpenCL are here too.",
        count_of: None,
        run: calls::kinds,
    },
    Definition {
        key: "alive",
        title: "Allocation and free, by number alive",
        about: "cuMemAlloc_v2 of 2 MiB and cuMemFree_v2 while so many allocations stay alive, in three \
                orders of freeing.",
        count_of: Some("allocations alive"),
        run: calls::alive,
    },
    Definition {
        key: "processes",
        title: "By processes in the slice",
        about: "Calls of one process while the others hold memory, all with the same preload.",
        count_of: Some("processes"),
        run: processes::crowds,
    },
    Definition {
        key: "threads",
        title: "By threads",
        about: "Threads of one process allocate and free at once: the time by the clock, divided by the \
                pairs of all threads.",
        count_of: Some("threads"),
        run: calls::threads,
    },
    Definition {
        key: "start",
        title: "Start of a process",
        about: "/bin/true, which uses no GPU, and a program that starts the driver, creates a context and \
                queries its memory once. From fork to the end of the process.",
        count_of: None,
        run: start::each,
    },
    Definition {
        key: "at-once",
        title: "200 starts at once",
        about: "200 programs that start at the same moment; each starts the driver, creates a context, \
                allocates and queries. The time until the last has ended.",
        count_of: None,
        run: start::together,
    },
    Definition {
        key: "contexts",
        title: "Storms of contexts",
        about: "Contexts that one process creates and destroys, and 64 processes that start at once and \
                create and destroy 50 contexts each.",
        count_of: None,
        run: start::contexts,
    },
    Definition {
        key: "unified",
        title: "Queries on unified memory",
        about: "cuMemGetInfo_v2 on a simulated GB10. An answer in a slice needs a reading of the host's \
                memory, which stays valid for almost a millisecond.",
        count_of: None,
        run: unified::queries,
    },
    Definition {
        key: "files",
        title: "Calls for files and memory",
        about: "Calls of libc for what is not a model file, which the library intercepts to find model \
                files.",
        count_of: None,
        run: calls::files,
    },
    Definition {
        key: "page-cache",
        title: "Modes of the page cache, by loader",
        about: "A model is loaded in tensors of 32 MiB from a disk that is throttled, so that it is not \
                the disk that is measured; and the most of it that is in the page cache meanwhile.",
        count_of: None,
        run: page_cache::loaders,
    },
    Definition {
        key: "containers",
        title: "Hook, and start of a container",
        about: "Containers of runc and crun, until their program runs, and their removal. The hook's own \
                time is from fork to exit, as a runtime waits for it.",
        count_of: None,
        run: containers::starts,
    },
    Definition {
        key: "status",
        title: "Commands",
        about: "gpuslice status on a node with many slices, and the start of a program by gpuslice run.",
        count_of: None,
        run: status::commands,
    },
    Definition {
        key: "metrics",
        title: "Metrics",
        about: "A scrape of gpusliced on a node with many slices, and the processor time that it takes.",
        count_of: None,
        run: metrics::scrapes,
    },
    Definition {
        key: "guard",
        title: "The guard",
        about: "The part of a core that the guard uses on a node with many slices.",
        count_of: None,
        run: guard::share,
    },
];
