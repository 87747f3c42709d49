//! What it costs to ask the kernel first for what it has in memory (`preadv2` with RWF_NOWAIT), and to read as usual where it has
//! not: nanoseconds of a read, the median of 31 rounds, beside plain `pread`. The rounds of both take turns, and which comes first.
//!
//! `cargo run --release -p esker-io --example read_source_cost -- FOLDER [KIB]`: the file is made in FOLDER, which should be of the
//! file system and the device that is asked about.

use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

const ROUNDS: usize = 31;
const FILE_BYTES: u64 = 512 << 20;
const HOT_BYTES: u64 = 16 << 20;
const HOT_READS: usize = 20_000;
const COLD_READS: usize = 400;

fn at_once(file: &File, buf: &mut [u8], offset: u64) -> isize {
    let part = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    // SAFETY: one writable buffer of this length.
    unsafe { libc::preadv2(file.as_raw_fd(), &part, 1, offset as libc::off_t, libc::RWF_NOWAIT) }
}

fn plain(file: &File, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
    file.read_exact_at(buf, offset)
}

/// How many were answered at once.
fn both(file: &File, buf: &mut [u8], offset: u64, answered: &mut usize) -> std::io::Result<()> {
    if at_once(file, buf, offset) == buf.len() as isize {
        *answered += 1;
        return Ok(());
    }
    plain(file, buf, offset)
}

struct Random(u64);

impl Random {
    fn offset(&mut self, below: u64, bytes: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 20) % (below / bytes) * bytes
    }
}

fn ns_each(times: usize, mut work: impl FnMut() -> std::io::Result<()>) -> std::io::Result<f64> {
    let start = Instant::now();
    for _ in 0..times {
        work()?;
    }
    Ok(start.elapsed().as_nanos() as f64 / times as f64)
}

fn show(what: &str, mut of: Vec<f64>) {
    of.sort_by(f64::total_cmp);
    println!("{what:<44} {:>9.0} {:>9.0} {:>9.0}", of[of.len() / 2], of[of.len() / 4], of[3 * of.len() / 4]);
}

fn make(path: &Path) -> std::io::Result<File> {
    let mut file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
    let piece: Vec<u8> = (0..1 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for _ in 0..FILE_BYTES / piece.len() as u64 {
        file.write_all(&piece)?;
    }
    file.sync_all()?;
    Ok(file)
}

fn forget(file: &File) {
    // SAFETY: the descriptor is open.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

fn hot(file: &File, buf: &mut [u8]) -> std::io::Result<()> {
    let bytes = buf.len() as u64;
    for offset in (0..HOT_BYTES).step_by(buf.len()) {
        plain(file, buf, offset)?;
    }
    let (mut of, mut answered, mut random) = ([Vec::new(), Vec::new()], 0, Random(1));
    for round in 0..2 * ROUNDS {
        let asks = (round / 2 + round) % 2;
        of[asks].push(ns_each(HOT_READS, || {
            let offset = random.offset(HOT_BYTES, bytes);
            match asks {
                0 => plain(file, black_box(buf), offset),
                _ => both(file, black_box(buf), offset, &mut answered),
            }
        })?);
    }
    let [plain, asked] = of;
    show("page cache: plain", plain);
    show("page cache: asked for at once", asked);
    println!("  of {} asked for at once, answered: {answered}", ROUNDS * HOT_READS);
    Ok(())
}

fn cold(file: &File, buf: &mut [u8]) -> std::io::Result<()> {
    let bytes = buf.len() as u64;
    let (mut of, mut failed, mut answered, mut random) = ([Vec::new(), Vec::new()], Vec::new(), 0, Random(7));
    for round in 0..2 * ROUNDS {
        let asks = (round / 2 + round) % 2;
        forget(file);
        of[asks].push(ns_each(COLD_READS, || {
            let offset = random.offset(FILE_BYTES, bytes);
            match asks {
                0 => plain(file, black_box(buf), offset),
                _ => both(file, black_box(buf), offset, &mut answered),
            }
        })?);
    }
    // The call that fails by itself: it may begin the read, which the next one then waits for.
    for _ in 0..ROUNDS {
        forget(file);
        let mut in_failed = 0.0;
        for _ in 0..COLD_READS {
            let offset = random.offset(FILE_BYTES, bytes);
            in_failed += ns_each(1, || {
                black_box(at_once(file, buf, offset));
                Ok(())
            })?;
            plain(file, black_box(buf), offset)?;
        }
        failed.push(in_failed / COLD_READS as f64);
    }
    let [plain, asked] = of;
    show("device: plain", plain);
    show("device: asked for at once, then plain", asked);
    show("  of that the call that is not answered", failed);
    println!("  of {} asked for at once, answered: {answered}", ROUNDS * COLD_READS);
    Ok(())
}

fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().unwrap_or_else(|| ".".into());
    let kib: usize = args.next().and_then(|kib| kib.parse().ok()).unwrap_or(16);
    let path = Path::new(&folder).join(format!("read-source-cost-{}", std::process::id()));
    let file = make(&path)?;
    std::fs::remove_file(&path)?;
    println!("{:<44} {:>9} {:>9} {:>9}", format!("{kib} KiB"), "median ns", "quarter", "three q.");
    let mut buf = vec![0; kib << 10];
    hot(&file, &mut buf)?;
    cold(&file, &mut buf)
}
