//! Units of the stream.

/// What is written and acknowledged as one unit, in bytes: no device's sector is larger, and the page cache writes
/// whole pages of this size.
pub const SECTOR_BYTES: u64 = 4096;

/// Frames begin at multiples of this, so that a search for them need not look at every byte.
pub const FRAME_ALIGN: usize = 8;

/// What a frame with a payload of so many bytes takes in the stream.
pub(crate) const fn frame_space(payload: usize) -> usize {
    esker_format::frame::frame_bytes(payload).next_multiple_of(FRAME_ALIGN)
}

/// Next multiple of [`SECTOR_BYTES`].
pub(crate) const fn sector_up(position: u64) -> u64 {
    position.div_ceil(SECTOR_BYTES) * SECTOR_BYTES
}
