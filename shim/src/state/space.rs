//! The spaces of the table of handles: the kinds of things that this process remembers.
//! Touches: nothing.

/// The kind of a key: equal numbers in different spaces are different keys.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Space {
    /// Device memory for which `allocations` has no word.
    Memory = 1,
    /// The primary context of an ordinal.
    Primary,
    /// A context that was created.
    Context,
    /// An array or a mipmapped array.
    Array,
    /// Physical memory: `cuMemCreate`.
    Physical,
    /// An address where physical memory is mapped.
    Mapping,
    /// Pinned host memory.
    Pinned,
    /// A green context, and its device.
    Green,
    /// The context that `cuCtxFromGreenCtx` made of a green context.
    GreenContext,
    /// The number of attachments to a context.
    Attached,
    /// An executable graph, with the number of a device, and the memory that it needs there.
    Exec,
    /// The stream on which an executable graph with memory was last launched or uploaded.
    Launched,
    /// A pool that was destroyed while memory from it was in use.
    Doomed,
    /// The amount of memory still in use from such a pool.
    DoomedUse,
    /// Linear memory that was exported: see `sharing`.
    Exported,
    /// An address where another process's memory is open.
    Imported,
    /// Another process's memory, by its key.
    Object,
    /// Memory of Vulkan, with the number of its device.
    Vulkan,
    /// A memory object or shared virtual memory of OpenCL, and the number of its device.
    OpenCl,
    /// A memory object of OpenCL whose memory was imported.
    OpenClImport,
    /// Physical memory that was mapped into a sparse array.
    Tile,
    /// Another process's memory that Vulkan or OpenCL has imported: see `objects`.
    ImportedObject,
}

impl Space {
    /// All spaces.
    pub(crate) const ALL: [Space; 22] = [
        Space::Memory,
        Space::Primary,
        Space::Context,
        Space::Array,
        Space::Physical,
        Space::Mapping,
        Space::Pinned,
        Space::Green,
        Space::GreenContext,
        Space::Attached,
        Space::Exec,
        Space::Launched,
        Space::Doomed,
        Space::DoomedUse,
        Space::Exported,
        Space::Imported,
        Space::Object,
        Space::Vulkan,
        Space::OpenCl,
        Space::OpenClImport,
        Space::Tile,
        Space::ImportedObject,
    ];
}
