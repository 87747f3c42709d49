//! How fast rows go into blocks and out of them: nanoseconds a row, the best of many rounds.
//!
//! `cargo run --release -p esker-format --example block_speed [filter]`

use esker_format::{
    Column, ColumnKind, ColumnMask, Compression, Layout, RowBlock, RowBlockBuilder, RowFormat, RowId, VersionTag,
};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

/// Raw bytes at which a block is closed.
const BLOCK_BYTES: usize = 64 << 10;
/// Rounds of each measurement.
const ROUNDS: usize = 300;

/// A table of `kinds`, behind one head byte.
fn layout_of(kinds: &[ColumnKind]) -> Layout {
    let mut offset = 1;
    let mut columns = Vec::new();
    for &kind in kinds {
        columns.push(Column { kind, offset, null: None });
        offset += kind.slot_bytes();
    }
    Layout { image_bytes: offset, head_bytes: 1, columns }
}

/// Images with texts of random lengths.
fn images_of(layout: &Layout, rows: usize) -> Vec<u8> {
    let width = layout.image_bytes as usize;
    let mut images = vec![0; rows * width];
    let mut state = 42u64;
    let mut next = |n: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % n
    };
    for image in images.chunks_exact_mut(width) {
        image[0] = 0xfe;
        for column in &layout.columns {
            let max = column.kind.max_bytes().min(20);
            let len = (1 + next(u64::from(max))) as usize;
            let slot = &mut image[column.offset as usize..][..column.kind.slot_bytes() as usize];
            let at = match column.kind {
                ColumnKind::Padded { pad, .. } => {
                    slot.fill(pad);
                    0
                }
                ColumnKind::Var { len_bytes, .. } => {
                    slot[0] = len as u8;
                    usize::from(len_bytes)
                }
                _ => 0,
            };
            let len = if matches!(column.kind, ColumnKind::Fixed { .. }) { slot.len() } else { len };
            slot[at..at + len].iter_mut().for_each(|b| *b = b'a' + next(16) as u8);
        }
    }
    images
}

/// The best round, in nanoseconds a row.
fn best(rows: usize, mut round: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        round();
        best = best.min(start.elapsed().as_nanos() as f64 / rows as f64);
    }
    best
}

/// Pushes images until the block is full and returns how many went in.
fn fill(builder: &mut RowBlockBuilder, images: &[u8], width: usize) -> usize {
    let mut rows = 0;
    for image in images.chunks_exact(width) {
        // SAFETY: images are of the builder's layout.
        unsafe { builder.push_image(RowId(rows as u64 + 1), rows as u64, image.as_ptr()) };
        rows += 1;
        if builder.raw_bytes() >= BLOCK_BYTES {
            break;
        }
    }
    rows
}

/// Measures one table.
fn measure(name: &str, kinds: &[ColumnKind], format: RowFormat) {
    let layout = Arc::new(layout_of(kinds));
    let width = layout.image_bytes as usize;
    let images = images_of(&layout, 4000);
    let mut builder = RowBlockBuilder::new(Arc::clone(&layout), format);
    let rows = fill(&mut builder, &images, width);
    builder.clear();
    let push = best(rows, || {
        builder.clear();
        black_box(fill(&mut builder, &images, width));
    });
    println!("{name}: {rows} rows a block, images of {width} bytes");
    println!("  push_image            {push:7.1} ns/row");
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let mut out = Vec::new();
        let mut finish = f64::MAX;
        for _ in 0..ROUNDS {
            builder.clear();
            fill(&mut builder, &images, width);
            out.clear();
            let start = Instant::now();
            assert!(builder.finish(compression, 1, 7, &mut out).is_ok());
            finish = finish.min(start.elapsed().as_nanos() as f64 / rows as f64);
        }
        let label = format!("{compression:?}").to_lowercase();
        let stored = out.len() as f64 / rows as f64;
        println!("  finish {label:<8}       {finish:7.1} ns/row, {stored:.1} bytes/row");
        let open = best(rows, || {
            black_box(RowBlock::open(&out[..], &layout, format, 7).is_ok());
        });
        println!("    open                {open:7.1} ns/row");
        let Ok(block) = RowBlock::open(&out[..], &layout, format, 7) else {
            continue;
        };
        let mut target = vec![0u8; rows * width];
        let mut decode = |label: &str, mask: &ColumnMask, batch: u32| {
            let time = best(rows, || {
                let mut at = 0;
                while at < block.rows() {
                    let end = (at + batch).min(block.rows());
                    // SAFETY: the target has room for all rows.
                    let done = unsafe { block.decode_images(at..end, mask, target.as_mut_ptr(), width as isize) };
                    black_box(done.is_ok());
                    at = end;
                }
            });
            println!("    {label:<20}{time:7.1} ns/row");
        };
        let one = |i: usize| {
            let mut mask = ColumnMask::none(kinds.len());
            mask.set(i);
            mask
        };
        decode("head only", &ColumnMask::none(kinds.len()), u32::MAX / 2);
        decode("first column", &one(0), u32::MAX / 2);
        decode("third column", &one(2), u32::MAX / 2);
        decode("last column", &one(kinds.len() - 1), u32::MAX / 2);
        decode("all", &ColumnMask::all(kinds.len()), u32::MAX / 2);
        decode("all, 64 at a time", &ColumnMask::all(kinds.len()), 64);
        let fresh = best(rows, || {
            let Ok(block) = RowBlock::open(&out[..], &layout, format, 7) else {
                return;
            };
            // SAFETY: the target has room for all rows.
            let done = unsafe { block.decode_images(0..block.rows(), &one(2), target.as_mut_ptr(), width as isize) };
            black_box(done.is_ok());
        });
        println!("    open + third column {fresh:7.1} ns/row");
        if compression == Compression::None {
            let mut packed = Vec::new();
            let time = best(rows, || {
                packed.clear();
                for i in 0..block.rows() {
                    black_box(block.packed(i, &mut packed).is_ok());
                }
            });
            println!("    packed              {time:7.1} ns/row");
            let mut starts = vec![0];
            packed.clear();
            for i in 0..block.rows() {
                black_box(block.packed(i, &mut packed).is_ok());
                starts.push(packed.len());
            }
            let time = best(rows, || {
                builder.clear();
                for (i, span) in starts.windows(2).enumerate() {
                    let tag = VersionTag { ordinal: i as u64, ..VersionTag::default() };
                    black_box(builder.push_packed(RowId(i as u64), tag, &packed[span[0]..span[1]]).is_ok());
                }
            });
            println!("    push_packed         {time:7.1} ns/row");
        }
    }
}

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let widths = [8, 10, 12, 16, 16, 20, 20];
    let chars: Vec<_> = widths.iter().map(|&width| ColumnKind::Padded { width, pad: b' ' }).collect();
    let vars: Vec<_> = widths.iter().map(|&max| ColumnKind::Var { len_bytes: 1, max }).collect();
    let wide: Vec<_> = widths.iter().map(|_| ColumnKind::Var { len_bytes: 1, max: 255 }).collect();
    let ints: Vec<_> = [4, 8, 4, 3, 5, 8, 1].iter().map(|&width| ColumnKind::Fixed { width }).collect();
    let cases = [
        ("char", &chars, RowFormat::Dynamic),
        ("varchar", &vars, RowFormat::Dynamic),
        ("varchar(255)", &wide, RowFormat::Dynamic),
        ("int", &ints, RowFormat::Dynamic),
        ("char fixed", &chars, RowFormat::Fixed),
    ];
    for (name, kinds, format) in cases {
        if name.contains(&filter) {
            measure(name, kinds, format);
        }
    }
}
