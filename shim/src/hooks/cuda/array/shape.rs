//! The size of an array: its dimensions, and the bits of a texel in each of CUDA's formats.
//! Touches: nothing. Source: `CUarray_format` and `CUDA_ARRAY3D_*` in CUDA 13's cuda.h.

use crate::hooks::out::Amount;

/// The dimensions and format of an array.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    extent: [u64; 3],
    format: u32,
    channels: u32,
    flags: u32,
    pub(super) levels: u32,
}

/// `CUDA_ARRAY_DESCRIPTOR`, and its predecessor with 32-bit extents.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Flat<S> {
    extent: [S; 2],
    format: u32,
    channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`, and its predecessor with 32-bit extents.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Deep<S> {
    extent: [S; 3],
    format: u32,
    channels: u32,
    flags: u32,
}

impl<S: Amount> From<Flat<S>> for Shape {
    fn from(flat: Flat<S>) -> Shape {
        let [width, height] = flat.extent.map(Amount::into_u64);
        Shape {
            extent: [width, height, 0],
            format: flat.format,
            channels: flat.channels,
            flags: 0,
            levels: 1,
        }
    }
}

impl<S: Amount> From<Deep<S>> for Shape {
    fn from(deep: Deep<S>) -> Shape {
        Shape {
            extent: deep.extent.map(Amount::into_u64),
            format: deep.format,
            channels: deep.channels,
            flags: deep.flags,
            levels: 1,
        }
    }
}

/// The bits of one texel.
enum Bits {
    /// Of each of its channels.
    Channel(u64),
    /// Of all of it.
    Texel(u64),
    /// Of a block of four texels by four.
    Block(u64),
}

/// The bits of a format's texels. None: a format of a later CUDA.
fn bits(format: u32) -> Option<Bits> {
    use Bits::{Block, Channel, Texel};
    Some(match format {
        0x01 | 0x08 => Channel(8),
        0x02 | 0x09 | 0x10 => Channel(16),
        0x03 | 0x0a | 0x20 => Channel(32),
        // BC1 and BC4, then BC2, BC3, BC5, BC6H and BC7.
        0x91 | 0x92 | 0x97 | 0x98 => Block(64),
        0x93..=0x96 | 0x99..=0x9e => Block(128),
        // UNORM and SNORM of one, two and four channels.
        0xc0 | 0xc6 => Texel(8),
        0xc1 | 0xc3 | 0xc7 | 0xc9 => Texel(16),
        0xc2 | 0xc4 | 0xc8 | 0xca => Texel(32),
        0xc5 | 0xcb => Texel(64),
        // 4:2:0 sampling of 8 bits, then of 16: NV12, P010, P016, and planes.
        0xb0 | 0x53 | 0x59 => Texel(12),
        0x9f | 0xa1 | 0x54 | 0x5a => Texel(24),
        // 4:2:2 sampling: NV16, YUY2, P210, P216, Y210, Y216, and planes.
        0xa2 | 0xa5 | 0x55 | 0x5b => Texel(16),
        0xa3 | 0xa4 | 0xa6 | 0xa7 | 0x56 | 0x5c => Texel(32),
        // 4:4:4 sampling in planes.
        0xb2 | 0xb4 | 0x57 | 0x5d => Texel(24),
        0xb3 | 0xb5 | 0x58 | 0x5e => Texel(48),
        // AYUV, Y410, packed formats of four 8-bit channels, and R10G10B10A2; then Y416.
        0xa8 | 0xa9 | 0x50..=0x52 => Texel(32),
        0xb1 => Texel(64),
        _ => return None,
    })
}

impl Shape {
    /// The size of its texels, in bytes. The driver may align them, which no call reports.
    pub(super) fn bytes(&self) -> u64 {
        /// `CUDA_ARRAY3D_LAYERED` and `CUDA_ARRAY3D_CUBEMAP`: the depth is a number of layers.
        const LAYERS: u32 = 0x05;
        let channels = u64::from(self.channels.max(1));
        // A channel of an unknown format is taken to have the 32 bits of the largest one.
        let bits = bits(self.format).unwrap_or(Bits::Channel(32));
        let (side, bits) = match bits {
            Bits::Channel(bits) => (1, bits.saturating_mul(channels)),
            Bits::Texel(bits) => (1, bits),
            Bits::Block(bits) => (4, bits),
        };
        let level = |level: u32| {
            let [width, height, depth] = self.extent;
            let at = |extent: u64| extent.checked_shr(level).unwrap_or(0).max(1);
            let deep = match self.flags & LAYERS {
                0 => at(depth),
                _ => depth.max(1),
            };
            let [width, height] = [width, height].map(|extent| at(extent).div_ceil(side));
            let blocks = [height, deep].into_iter().fold(width, u64::saturating_mul);
            blocks.saturating_mul(bits).div_ceil(8)
        };
        (0..self.levels.clamp(1, 32))
            .map(level)
            .fold(0, u64::saturating_add)
    }

    /// Whether the driver would accept the shape.
    pub(super) fn is_valid(&self) -> bool {
        let channels = match bits(self.format) {
            Some(Bits::Channel(_)) => matches!(self.channels, 1 | 2 | 4),
            Some(Bits::Texel(_) | Bits::Block(_)) => true,
            None => false,
        };
        self.extent.first() != Some(&0) && channels
    }

    /// Whether its memory is allocated on creation.
    pub(super) fn holds(&self) -> bool {
        /// `CUDA_ARRAY3D_SPARSE` and `CUDA_ARRAY3D_DEFERRED_MAPPING`.
        const MAPPED_LATER: u32 = 0xc0;
        self.flags & MAPPED_LATER == 0
    }
}
