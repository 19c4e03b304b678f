//! Options of a slice that have a few values.
//! Touches: its arguments.

use clap::ValueEnum;
use gpuslice_config::slice::{Fence, Managed, PageCache, PresentAs, Pressure, Total};

/// `--fence`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FenceChoice {
    /// The driver where it can enforce the limit, otherwise the library.
    Auto,
    /// The driver.
    Driver,
    /// The library alone.
    Preload,
}

impl From<FenceChoice> for Fence {
    fn from(choice: FenceChoice) -> Fence {
        match choice {
            FenceChoice::Auto => Fence::Auto,
            FenceChoice::Driver => Fence::Driver,
            FenceChoice::Preload => Fence::Preload,
        }
    }
}

/// `--total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TotalChoice {
    /// The slice's.
    Slice,
    /// The device's own.
    Device,
}

/// `--managed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ManagedChoice {
    /// Counted at the call.
    Count,
    /// Neither counted nor limited.
    Allow,
}

impl From<ManagedChoice> for Managed {
    fn from(choice: ManagedChoice) -> Managed {
        match choice {
            ManagedChoice::Count => Managed::Count,
            ManagedChoice::Allow => Managed::Allow,
        }
    }
}

impl From<TotalChoice> for Total {
    fn from(choice: TotalChoice) -> Total {
        match choice {
            TotalChoice::Slice => Total::Slice,
            TotalChoice::Device => Total::Device,
        }
    }
}

/// `--present-as`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PresentAsChoice {
    /// An integrated device.
    Uma,
    /// A discrete one.
    Discrete,
}

impl From<PresentAsChoice> for PresentAs {
    fn from(choice: PresentAsChoice) -> PresentAs {
        match choice {
            PresentAsChoice::Uma => PresentAs::Uma,
            PresentAsChoice::Discrete => PresentAs::Discrete,
        }
    }
}

/// `--meminfo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum MeminfoChoice {
    /// Shown by the preloaded library.
    #[default]
    Preload,
    /// Mounted, too.
    Mount,
}

/// `--page-cache`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PageCacheChoice {
    /// They stay.
    Keep,
    /// They go at the end.
    Drop,
    /// They go while the file is loaded.
    DropBehind,
}

impl From<PageCacheChoice> for PageCache {
    fn from(choice: PageCacheChoice) -> PageCache {
        match choice {
            PageCacheChoice::Keep => PageCache::Keep,
            PageCacheChoice::Drop => PageCache::Drop,
            PageCacheChoice::DropBehind => PageCache::DropBehind,
        }
    }
}

/// `--pressure`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PressureChoice {
    /// Refuses.
    Refuse,
    /// Asks for what is only kept.
    Release,
}

impl From<PressureChoice> for Pressure {
    fn from(choice: PressureChoice) -> Pressure {
        match choice {
            PressureChoice::Refuse => Pressure::Refuse,
            PressureChoice::Release => Pressure::Release,
        }
    }
}
