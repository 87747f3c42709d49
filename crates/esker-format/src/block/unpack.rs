//! Owns the form that a row block in use takes in memory: what has been decompressed of it stands in the place of what was
//! stored, so that it is not kept twice. Invariant: that form is a block like any other, which every reader reads alike.

use super::bytes::BlockBytes;
use super::head::Encoder;
use super::reader::RowBlock;
use super::{segment_at, BLOCK_HEADER_BYTES, BLOCK_MAGIC, SEGMENT_ENTRY_BYTES};
use crate::codec::{get_u32, grow};
use crate::compress::Compression;
use crate::error::FormatError;

/// The context of blocks that are written nowhere.
const IN_MEMORY: u64 = 0;

impl<B: BlockBytes> RowBlock<B> {
    /// Appends the block as it is, with the content of the segments that have been decompressed so far instead of their stored
    /// bytes; false, and nothing, if there are none, or no memory for them. For [`open_unpacked`](Self::open_unpacked).
    pub fn unpack(&self, out: &mut Vec<u8>) -> bool {
        if self.opened_contents().all(|content| content.is_none()) {
            return false;
        }
        if grow(out, self.entry().raw_bytes as usize).is_err() {
            return false;
        }
        let block = self.block();
        let directory = block[BLOCK_HEADER_BYTES..].chunks_exact(SEGMENT_ENTRY_BYTES).take(self.segments());
        // Ids and tags come first and are never compressed.
        let others = self.segments() - self.opened_contents().count();
        let contents = std::iter::repeat_n(None, others).chain(self.opened_contents());
        let mut made = Encoder::new(out, self.segments());
        for (entry, content) in directory.zip(contents) {
            let at = made.out.len();
            let field = |at| get_u32(entry, at);
            let (from, raw) = (field(segment_at::OFFSET) as usize, field(segment_at::RAW_BYTES) as usize);
            let how = match content {
                Some(content) => {
                    made.out.extend_from_slice(&content[..raw]);
                    Compression::None
                }
                None => {
                    made.out.extend_from_slice(&block[from..from + field(segment_at::STORED_BYTES) as usize]);
                    Compression::from_u8(entry[segment_at::COMPRESSION]).unwrap_or_default()
                }
            };
            let kind = (entry[segment_at::KIND], field(segment_at::COLUMN));
            made.note(kind, (entry[segment_at::ENCODING], field(segment_at::UNIT)), how, raw, at);
        }
        made.finish(BLOCK_MAGIC, self.format() as u8, *self.entry(), IN_MEMORY);
        true
    }

    /// Opens what [`unpack`](Self::unpack) made of this block.
    pub fn open_unpacked(&self, bytes: B) -> Result<Self, FormatError> {
        RowBlock::open(bytes, self.layout(), self.format(), IN_MEMORY)
    }
}
