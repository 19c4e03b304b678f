//! The readers of gpuslice and gpuslice-dra that no library exports, from their files, at their
//! paths. The two programs have many other dependencies, which take minutes to build.
//! Touches: see each module.
#![allow(
    dead_code,
    unused_imports,
    reason = "not every part of a module has a fuzzer"
)]

pub mod command_line;

/// The NRI plugin's name, which gpuslice-dra has in `nri`.
pub const NAME: &str = "gpuslice";

#[path = "."]
pub mod base {
    #[path = "../../../hook/cli/src/base/hook_entry.rs"]
    pub mod hook_entry;
    #[path = "../../../hook/cli/src/base/local_time.rs"]
    pub mod local_time;
    #[path = "../../../hook/kubernetes/src/base/log.rs"]
    pub mod log;
    #[path = "../../../hook/kubernetes/src/base/names.rs"]
    pub mod names;
    #[path = "../../../hook/kubernetes/src/base/quantity.rs"]
    pub mod quantity;
    #[path = "../../../hook/kubernetes/src/base/settings.rs"]
    pub mod settings;
    #[path = "../../../hook/cli/src/base/text.rs"]
    pub mod text;
}

#[path = "."]
pub mod slice {
    #[path = "../../../hook/cli/src/slice/choices.rs"]
    pub mod choices;
    #[path = "../../../hook/cli/src/slice/options.rs"]
    pub mod options;
    #[path = "../../../hook/cli/src/slice/sizes.rs"]
    pub mod sizes;
    #[path = "../../../hook/cli/src/slice/slices_file/mod.rs"]
    pub mod slices_file;
}

#[path = "."]
pub mod runs {
    #[path = "."]
    pub mod recording {
        #[path = "../../../hook/cli/src/runs/recording/history_file.rs"]
        pub mod history_file;
        #[path = "../../../hook/cli/src/runs/recording/limit_changes.rs"]
        pub mod limit_changes;
        #[path = "../../../hook/cli/src/runs/recording/run_start.rs"]
        mod run_start;
        #[path = "../../../hook/cli/src/runs/recording/series.rs"]
        pub mod series;

        use gpuslice_host::events::store::Store;
        pub(crate) use run_start::RunStart;
        use std::path::{Path, PathBuf};

        /// No fuzzer reads this user's own events.
        pub fn store() -> Option<Store> {
            None
        }

        /// The folder of the events of a user, whom no fuzzer has.
        pub fn in_home(home: &Path) -> PathBuf {
            home.to_owned()
        }
    }
}

#[path = "."]
pub mod commands {
    #[path = "."]
    pub mod cache {
        #[path = "../../../hook/cli/src/commands/cache/holders.rs"]
        mod holders;

        pub mod mappings;
    }
    #[path = "."]
    pub mod daemon {
        #[path = "../../../hook/cli/src/commands/daemon/http/request.rs"]
        mod request;

        pub mod requests;
    }
    #[path = "."]
    pub mod engines {
        #[path = "../../../hook/cli/src/commands/engines/containerd.rs"]
        mod containerd;
        #[path = "../../../hook/cli/src/commands/engines/docker.rs"]
        mod docker;
        #[path = "../../../hook/cli/src/commands/engines/nvidia.rs"]
        mod nvidia;
        #[path = "../../../hook/cli/src/commands/engines/toml_file.rs"]
        mod toml_file;

        pub mod edits;

        /// The name of gpuslice's runtime in every engine.
        const NAME: &str = "gpuslice";
    }
    #[path = "."]
    pub mod events {
        #[path = "../../../hook/cli/src/commands/events/read.rs"]
        mod read;
        #[path = "../../../hook/cli/src/commands/events/since.rs"]
        mod since;
        #[path = "../../../hook/cli/src/commands/events/tail.rs"]
        mod tail;

        pub mod lines;

        pub(crate) use since::{age, since};
    }
    #[path = "."]
    pub mod status {
        #[path = "."]
        pub mod process {
            #[path = "../../../hook/cli/src/commands/status/process/facts.rs"]
            mod facts;
            #[path = "../../../hook/cli/src/commands/status/process/maps.rs"]
            mod maps;
            #[path = "../../../hook/cli/src/commands/status/process/read.rs"]
            mod read;

            pub mod files;
        }
    }
}

#[path = "."]
pub mod inject {
    #[path = "../../../hook/oci/src/inject/mount_table.rs"]
    mod mount_table;

    /// The topmost mount points below a place, relative to it.
    pub fn topmost_mounts(table: &[u8], place: &std::path::Path) -> Vec<std::path::PathBuf> {
        mount_table::topmost(table, place)
    }
}

#[path = "."]
pub mod claims {
    #[path = "../../../hook/kubernetes/src/claims/allocation.rs"]
    pub mod allocation;
    #[path = "../../../hook/kubernetes/src/claims/cdi.rs"]
    pub mod cdi;
    #[path = "../../../hook/kubernetes/src/claims/gpu.rs"]
    pub mod gpu;
    #[path = "../../../hook/kubernetes/src/claims/options.rs"]
    pub mod options;
    #[path = "../../../hook/kubernetes/src/claims/prepared.rs"]
    pub mod prepared;
}

#[path = "../../../hook/kubernetes/src/kubelet/messages.rs"]
pub mod messages;

#[path = "."]
pub mod nri {
    #[path = "../../../hook/kubernetes/src/nri/adjust.rs"]
    pub mod adjust;
    #[path = "../../../hook/kubernetes/src/nri/api.rs"]
    pub mod api;
    #[path = "../../../hook/kubernetes/src/nri/escapes.rs"]
    mod escapes;
    #[path = "../../../hook/kubernetes/src/nri/mux.rs"]
    pub mod mux;
    #[path = "../../../hook/kubernetes/src/nri/plugin.rs"]
    pub mod plugin;
    #[path = "../../../hook/kubernetes/src/nri/session.rs"]
    pub mod session;
    #[path = "../../../hook/kubernetes/src/nri/ttrpc.rs"]
    pub mod ttrpc;

    use crate::NAME;
}

#[path = "../../../hook/kubernetes/src/report/tail.rs"]
pub mod tail;
