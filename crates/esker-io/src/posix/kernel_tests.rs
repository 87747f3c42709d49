//! A kernel that does half of what it is asked, is interrupted, and fails: what a file makes of it.

use super::file::PosixFile;
use super::linked::LinkedWriter;
use super::uring::RingPool;
use super::*;
use crate::calls::Calls;
use crate::ring::scripted::{Answer, Scripted, Wait};
use crate::{IoKind, SyncMethod};
use esker_base::counters::{bind, Counter, SessionCounters};
use esker_base::trace::Source;
use esker_memory::{Account, Region};
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

const PAGE: usize = 4096;

/// What happens to a call; `Done` when the script has ended.
#[derive(Clone, Copy)]
enum Step {
    Done,
    Short(usize),
    Error(i32),
}
use Step::{Done, Error, Short};

/// A kernel that does as it is told.
#[derive(Default)]
struct Script {
    steps: Mutex<VecDeque<Step>>,
    /// Handle, offset and length of each call.
    calls: Mutex<Vec<(RawFd, u64, usize)>>,
    /// How many of them were durable.
    durable: AtomicUsize,
    /// How many of them were for what is in memory.
    at_once: AtomicUsize,
}

impl Script {
    fn next(&self, file: &fs::File, offset: u64, bytes: usize) -> io::Result<usize> {
        self.calls.lock().unwrap().push((file.as_raw_fd(), offset, bytes));
        match self.steps.lock().unwrap().pop_front().unwrap_or(Done) {
            Done => Ok(bytes),
            Short(most) => Ok(bytes.min(most)),
            Error(code) => Err(io::Error::from_raw_os_error(code)),
        }
    }

    fn set(&self, steps: &[Step]) {
        *self.steps.lock().unwrap() = steps.iter().copied().collect();
        self.calls.lock().unwrap().clear();
    }
}

impl Calls for Script {
    fn write_at(&self, file: &fs::File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let most = self.next(file, offset, bytes.len())?;
        file.write_at(&bytes[..most], offset)
    }
    fn write_durably_at(&self, file: &fs::File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.durable.fetch_add(1, Ordering::Relaxed);
        self.write_at(file, bytes, offset)
    }
    fn read_at(&self, file: &fs::File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let most = self.next(file, offset, buf.len())?;
        file.read_at(&mut buf[..most], offset)
    }
    fn read_at_once(&self, file: &fs::File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.at_once.fetch_add(1, Ordering::Relaxed);
        self.read_at(file, buf, offset)
    }
    fn write_back(&self, file: &fs::File, offset: u64, bytes: u64, _wait: bool) -> io::Result<()> {
        self.next(file, offset, bytes as usize).map(drop)
    }
    fn reserve(&self, file: &fs::File, offset: libc::off_t, bytes: libc::off_t) -> io::Result<()> {
        self.next(file, offset as u64, bytes as usize).map(drop)
    }
}

/// A bulk file on a scripted kernel. The direct handle is an ordinary one, so that every file system will do.
struct Made {
    path: PathBuf,
    file: PosixFile,
    script: &'static Script,
    plain: RawFd,
    direct: RawFd,
}

fn made(name: &str, ring: Option<&Scripted>) -> Made {
    made_with(name, ring, Arc::default())
}

fn made_with(name: &str, ring: Option<&Scripted>, linked: Arc<LinkedWriter>) -> Made {
    let path = std::env::temp_dir().join(format!("esker-kernel-{name}-{}", std::process::id()));
    let open = |new| fs::OpenOptions::new().read(true).write(true).create(new).truncate(new).open(&path).unwrap();
    let (plain, direct) = (open(true), open(false));
    let script: &'static Script = Box::leak(Box::default());
    let pool = ring.map(|ring| Arc::new(RingPool::with(2, Box::new(ring.clone()))));
    let (plain_fd, direct_fd) = (plain.as_raw_fd(), direct.as_raw_fd());
    let file =
        PosixFile::new(&path, plain, Some(direct), AccessHint::Bulk, pool, linked, Arc::default()).with_calls(script);
    Made { path, file, script, plain: plain_fd, direct: direct_fd }
}

impl Made {
    fn contents(&self) -> Vec<u8> {
        fs::read(&self.path).unwrap()
    }

    fn calls(&self) -> Vec<(RawFd, u64, usize)> {
        self.script.calls.lock().unwrap().clone()
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn region(pages: usize, first: u8) -> Region {
    let mut region = Region::zeroed(Account::Other, pages * PAGE).unwrap();
    for (page, bytes) in (first..).zip(region.chunks_mut(PAGE)) {
        bytes.fill(page);
    }
    region
}

#[test]
fn short_and_interrupted_writes_are_finished() {
    let made = made("write", None);
    let (plain, direct) = (made.plain, made.direct);
    let data = region(3, 1);
    // Aligned so far: the rest goes directly too. Then not any more.
    made.script.set(&[Short(PAGE), Error(libc::EINTR), Short(100), Error(libc::EINTR), Short(7)]);
    made.file.write_at(&data, 0).unwrap();
    assert_eq!(made.contents(), data[..]);
    let at = |handle, offset: usize| (handle, offset as u64, 3 * PAGE - offset);
    let expected =
        [(direct, 0), (direct, PAGE), (direct, PAGE), (plain, PAGE + 100), (plain, PAGE + 100), (plain, PAGE + 107)];
    assert_eq!(made.calls(), expected.map(|(handle, offset)| at(handle, offset)));
    // The ordinary way from the beginning.
    made.script.set(&[Short(1), Error(libc::EINTR), Short(1)]);
    made.file.write_at(b"odd", 5).unwrap();
    assert_eq!(made.contents()[4..9], [1, b'o', b'd', b'd', 1]);
    assert!(made.calls().iter().all(|call| call.0 == plain));
}

#[test]
fn direct_writes_that_are_refused_go_the_ordinary_way_from_then_on() {
    let made = made("refused", None);
    made.script.set(&[Error(libc::EINVAL)]);
    made.file.write_at(&region(1, 1), 0).unwrap();
    made.file.write_at(&region(1, 2), PAGE as u64).unwrap();
    let handles: Vec<_> = made.calls().iter().map(|call| call.0).collect();
    assert_eq!(handles, [made.direct, made.plain, made.plain]);
    assert_eq!(made.contents(), region(2, 1)[..]);
}

#[test]
fn failed_calls_are_errors_by_kind() {
    let made = made("kinds", None);
    let (data, mut buf) = (region(1, 1), vec![0; 10]);
    made.file.write_at(&data, 0).unwrap();
    for (code, kind) in [
        (libc::ENOSPC, IoKind::DiskFull),
        (libc::EDQUOT, IoKind::DiskFull),
        (libc::EFBIG, IoKind::DiskFull),
        (libc::EROFS, IoKind::ReadOnly),
        (libc::EACCES, IoKind::ReadOnly),
        (libc::ENOMEM, IoKind::Resources),
        (libc::EMFILE, IoKind::Resources),
        (libc::ENFILE, IoKind::Resources),
        (libc::EAGAIN, IoKind::Resources),
        (libc::EIO, IoKind::Failed),
        (libc::ENODEV, IoKind::Failed),
    ] {
        // After a part was done, too.
        for steps in [&[Error(code)][..], &[Short(8), Error(code)]] {
            made.script.set(steps);
            assert_eq!(made.file.write_at(&data, 0).unwrap_err().kind, kind);
            made.script.set(steps);
            assert_eq!(made.file.read_at(&mut buf, 0).unwrap_err().kind, kind);
        }
        made.script.set(&[Error(libc::EINTR), Error(code)]);
        assert_eq!(made.file.reserve(0, 1 << 20).unwrap_err().kind, kind);
    }
    made.script.set(&[Short(0)]);
    assert_eq!(made.file.write_at(&data, 0).unwrap_err().kind, IoKind::Failed);
    made.script.set(&[Error(libc::EOPNOTSUPP)]);
    made.file.reserve(0, 1 << 20).unwrap();
}

#[test]
fn short_and_interrupted_reads_are_finished() {
    let made = made("read", None);
    made.file.write_at(&region(2, 1), 0).unwrap();
    let mut buf = vec![0; 5000];
    made.script.set(&[Short(10), Error(libc::EINTR), Short(4000)]);
    made.file.read_at(&mut buf, 100).unwrap();
    assert_eq!(buf, region(2, 1)[100..5100]);
    let offsets: Vec<_> = made.calls().iter().map(|call| call.1).collect();
    assert_eq!(offsets, [100, 110, 110, 4110]);
    made.script.set(&[Short(10)]);
    let error = made.file.read_at(&mut buf, 2 * PAGE as u64 - 20).unwrap_err();
    assert_eq!((error.kind, error.offset), (IoKind::ShortRead, Some(2 * PAGE as u64 - 20)));
}

#[test]
fn a_read_says_who_answered_it() {
    let made = made("source", None);
    let counters = SessionCounters::new();
    let _bound = bind(&counters);
    made.file.write_at(&region(2, 1), 0).unwrap();
    let mut buf = vec![0; 5000];
    // What is asked for at once, what is read as usual, and what is known then.
    for (steps, source, offsets) in [
        (&[][..], Some(Source::PageCache), &[100][..]),
        (&[Error(libc::EAGAIN)], Some(Source::Device), &[100, 100]),
        (&[Short(10)], Some(Source::Device), &[100, 110]),
        (&[Short(10), Short(20), Error(libc::EINTR)], Some(Source::Device), &[100, 110, 130, 130]),
        (&[Error(libc::EIO)], None, &[100, 100]),
        (&[], Some(Source::PageCache), &[100]),
    ] {
        made.script.set(steps);
        made.script.at_once.store(0, Ordering::Relaxed);
        buf.fill(0);
        assert_eq!(made.file.read_at_from(&mut buf, 100).unwrap(), source, "{offsets:?}");
        assert_eq!(buf, region(2, 1)[100..5100]);
        assert_eq!(made.calls().iter().map(|call| call.1).collect::<Vec<_>>(), offsets);
        assert_eq!(made.script.at_once.load(Ordering::Relaxed), 1);
    }
    // However many calls it took, a read is one.
    assert_eq!((counters.get(Counter::ReadsRun), counters.get(Counter::BytesReadRun)), (6, 6 * 5000));
    // The file's end, and what fails.
    made.script.set(&[Short(10)]);
    assert_eq!(made.file.read_at_from(&mut buf, 2 * PAGE as u64 - 10).unwrap_err().kind, IoKind::ShortRead);
    made.script.set(&[Error(libc::EAGAIN), Error(libc::EIO)]);
    assert_eq!(made.file.read_at_from(&mut buf, 0).unwrap_err().kind, IoKind::Failed);
    // Who does not want to know does not ask.
    made.script.at_once.store(0, Ordering::Relaxed);
    made.script.set(&[]);
    made.file.read_at(&mut buf, 100).unwrap();
    assert_eq!(made.script.at_once.load(Ordering::Relaxed), 0);
}

#[test]
fn a_file_system_that_does_not_tell_who_answers_is_asked_once() {
    for code in [libc::EOPNOTSUPP, libc::ENOSYS, libc::EINVAL] {
        let made = made(&format!("does-not-tell-{code}"), None);
        made.file.write_at(&region(1, 1), 0).unwrap();
        made.script.set(&[Error(code)]);
        for _ in 0..3 {
            let mut buf = vec![0; 100];
            assert_eq!(made.file.read_at_from(&mut buf, 7).unwrap(), None);
            assert_eq!(buf, region(1, 1)[7..107]);
        }
        assert_eq!((made.script.at_once.load(Ordering::Relaxed), made.calls().len()), (1, 4));
    }
}

#[test]
fn queued_writes_that_the_kernel_leaves_undone_are_done() {
    let answers = [
        Answer::Short(PAGE as u32),
        Answer::Short(100),
        Answer::Error(libc::EINTR),
        Answer::Error(libc::EAGAIN),
        Answer::Error(libc::EBUSY),
        Answer::Error(libc::ECANCELED),
        Answer::Error(libc::EINVAL),
        Answer::Short(0),
    ];
    let ring = Scripted::new(&answers);
    ring.script.lock().unwrap().waits.extend([libc::EINTR, libc::EAGAIN, libc::EBUSY].map(Wait::Error));
    let made = made("queued", Some(&ring));
    // What the ordinary way leaves undone is done, too.
    made.script.set(&[Short(10), Error(libc::EINTR)]);
    for n in 0..9 {
        made.file.submit_write(region(2, 2 * n), 2 * PAGE, u64::from(n) * 2 * PAGE as u64).unwrap();
    }
    made.file.drain().unwrap();
    assert_eq!(ring.script.lock().unwrap().pushed, 9);
    assert_eq!(made.contents(), region(18, 0)[..]);
    let calls: Vec<_> = made.calls().iter().map(|call| call.1).collect();
    let page = PAGE as u64;
    let expected =
        [page, page + 10, page + 10, 2 * page + 100, 4 * page, 6 * page, 8 * page, 10 * page, 12 * page, 14 * page];
    assert_eq!(calls, expected);
    made.file.sync_data().unwrap();
}

/// What is not past the page cache is sent to the device; its error is told, since the sync that follows may know nothing of it.
#[test]
fn what_the_page_cache_has_is_written_back() {
    let made = made("back", None);
    made.file.write_back(0, 4096, true).unwrap();
    assert_eq!(made.calls(), [], "nothing of this file is in the page cache");
    let plain = fs::OpenOptions::new().read(true).write(true).open(&made.path).unwrap();
    let fd = plain.as_raw_fd();
    let kept = PosixFile::new(&made.path, plain, None, AccessHint::Kept, None, Arc::default(), Arc::default());
    let kept = kept.with_calls(made.script);
    let answers = [
        (&[Error(libc::EINTR), Done][..], 2, Ok(())),
        (&[Error(libc::ENOSYS)], 1, Ok(())),
        (&[Error(libc::EINVAL)], 1, Ok(())),
        (&[Error(libc::EIO)], 1, Err(IoKind::Failed)),
        (&[Error(libc::ENOSPC)], 1, Err(IoKind::DiskFull)),
    ];
    for (steps, calls, answer) in answers {
        made.script.set(steps);
        assert_eq!(
            kept.write_back(8192, 4096, false).map_err(|e| (e.kind, e.offset)),
            answer.map_err(|k| (k, Some(8192)))
        );
        assert_eq!(made.calls(), vec![(fd, 8192, 4096); calls]);
    }
}

#[test]
fn a_full_queue_falls_back_to_the_ordinary_way() {
    let ring = Scripted::new(&[]);
    ring.script.lock().unwrap().full = true;
    let made = made("full", Some(&ring));
    let back = made.file.submit_write(region(2, 1), 2 * PAGE, 0).unwrap();
    assert!(back.is_some());
    assert_eq!(made.contents(), region(2, 1)[..]);
}

/// However a queued write fails, it is told, and told again by whatever would make believe that all is well.
#[test]
fn a_queued_write_that_failed_stays_failed() {
    type Plan = fn(&Scripted, &Script);
    let plans: [(Plan, IoKind); 5] = [
        (|ring, _| ring.script.lock().unwrap().answers.push_back(Answer::Error(libc::EIO)), IoKind::Failed),
        (|ring, _| ring.script.lock().unwrap().answers.push_back(Answer::Error(libc::ENOSPC)), IoKind::DiskFull),
        // The rest of a short one.
        (
            |ring, script| {
                ring.script.lock().unwrap().answers.push_back(Answer::Short(100));
                script.set(&[Error(libc::ENOSPC)]);
            },
            IoKind::DiskFull,
        ),
        // The ordinary way, when there is no room.
        (
            |ring, script| {
                ring.script.lock().unwrap().full = true;
                script.set(&[Error(libc::EIO)]);
            },
            IoKind::Failed,
        ),
        // A wait for room: the third write is never handed over.
        (|ring, _| ring.script.lock().unwrap().waits.push_back(Wait::Error(libc::ENOMEM)), IoKind::Resources),
    ];
    for (i, (plan, kind)) in plans.into_iter().enumerate() {
        let ring = Scripted::new(&[]);
        let made = made(&format!("failed-{i}"), Some(&ring));
        plan(&ring, made.script);
        let submit = |n: u8| made.file.submit_write(region(1, n), PAGE, u64::from(n) * PAGE as u64).map(drop);
        let told = (0..3).map(submit).find_map(std::result::Result::err);
        let error = told.unwrap_or_else(|| made.file.drain().unwrap_err());
        assert_eq!(error.kind, kind, "plan {i}");
        ring.script.lock().unwrap().full = false;
        let kinds = [submit(4), made.file.drain(), made.file.sync_data(), made.file.sync_all(), made.file.drain()]
            .map(|result| result.unwrap_err().kind);
        assert_eq!(kinds, [kind; 5], "plan {i}");
        assert!(made.file.set_size(0).is_err(), "plan {i}");
    }
}

/// What is short is not durable yet: the rest is, and by calls that are.
#[test]
fn a_durable_write_is_durable_to_its_end() {
    let made = made("dsync", None);
    let data = region(2, 1);
    made.script.set(&[Short(100), Error(libc::EINTR), Short(PAGE)]);
    made.file.write_durably(&data, 0, SyncMethod::Dsync).unwrap();
    assert_eq!(made.contents(), data[..]);
    let offsets: Vec<_> = made.calls().iter().map(|call| call.1).collect();
    assert_eq!(offsets, [0, 100, 100, PAGE as u64 + 100]);
    assert_eq!(made.script.durable.load(Ordering::Relaxed), offsets.len());
    for code in [libc::EOPNOTSUPP, libc::EIO] {
        made.script.set(&[Error(code)]);
        let error = made.file.write_durably(&data, 0, SyncMethod::Dsync).unwrap_err();
        assert_eq!((error.kind, error.offset), (IoKind::Failed, Some(0)));
    }
}

/// A ring with this plan, and how many calls a durable write then makes in the ordinary way.
fn linked(name: &str, plan: impl Fn(&Scripted)) -> (std::result::Result<(), IoKind>, usize, Scripted) {
    let ring = Scripted::new(&[]);
    plan(&ring);
    let made = made_with(name, None, Arc::new(LinkedWriter::on(Box::new(ring.clone())).unwrap()));
    let data = region(2, 1);
    let done = made.file.write_durably(&data, PAGE as u64, SyncMethod::Uring).map_err(|error| error.kind);
    if done.is_ok() {
        assert_eq!(made.contents()[PAGE..], data[..], "{name}");
    }
    (done, made.calls().len(), ring)
}

/// What the kernel did not begin is done in the ordinary way; what it began and failed at is an error, and not tried again.
#[test]
fn a_linked_write_is_whole_and_synced_or_told() {
    let answer =
        |answers: &'static [Answer]| move |ring: &Scripted| ring.script.lock().unwrap().answers.extend(answers);
    let (done, calls, ring) = linked("linked", answer(&[]));
    assert_eq!((done, calls, ring.script.lock().unwrap().pushed), (Ok(()), 0, 2));
    assert_eq!(linked("linked-short", answer(&[Answer::Short(100)])).1, 1);
    for code in [libc::EINTR, libc::EAGAIN, libc::EBUSY, libc::ECANCELED] {
        let name = format!("linked-left-{code}");
        let write = linked(&name, |ring| ring.script.lock().unwrap().answers.push_back(Answer::Error(code)));
        assert_eq!((write.0, write.1), (Ok(()), 1));
        let sync =
            linked(&name, |ring| ring.script.lock().unwrap().answers.extend([Answer::Done, Answer::Error(code)]));
        assert_eq!((sync.0, sync.1), (Ok(()), 1));
        let wait = linked(&name, |ring| ring.script.lock().unwrap().waits.push_back(Wait::Error(code)));
        assert_eq!((wait.0, wait.1), (Ok(()), 0));
    }
    let full = linked("linked-full", |ring| ring.script.lock().unwrap().full = true);
    assert_eq!((full.0, full.1), (Ok(()), 1));
    for (name, answers) in
        [("write", &[Answer::Error(libc::EIO)][..]), ("sync", &[Answer::Done, Answer::Error(libc::EIO)])]
    {
        let (done, calls, _) = linked(&format!("linked-{name}"), answer(answers));
        assert_eq!((done, calls), (Err(IoKind::Failed), 0), "{name}");
    }
}

/// Where the kernel does not tell what became of it, the buffer is kept and the ordinary way is taken from then on.
#[test]
fn a_linked_write_that_nobody_tells_of_is_an_error_once() {
    let ring = Scripted::new(&[]);
    ring.script.lock().unwrap().waits.push_back(Wait::Error(libc::EBADF));
    let made = made_with("linked-lost", None, Arc::new(LinkedWriter::on(Box::new(ring)).unwrap()));
    made.file.write_durably(&region(1, 1), 0, SyncMethod::Uring).unwrap_err();
    assert_eq!(made.calls().len(), 0);
    made.file.write_durably(&region(1, 2), 0, SyncMethod::Uring).unwrap();
    assert_eq!((made.calls().len(), &made.contents()[..PAGE]), (1, &region(1, 2)[..]));
}

/// Buffers that the kernel may still read are kept when it does not tell that it is done.
#[test]
fn a_dropped_file_waits_or_gives_up() {
    for waits in [&[][..], &[Wait::Error(libc::EINTR)], &[Wait::Error(libc::EIO)]] {
        let ring = Scripted::new(&[]);
        ring.script.lock().unwrap().waits.extend(waits);
        let made = made("dropped", Some(&ring));
        for n in 0..2 {
            made.file.submit_write(region(1, n), PAGE, u64::from(n) * PAGE as u64).unwrap();
        }
        drop(made);
        assert_eq!(ring.script.lock().unwrap().pushed, 2);
    }
}

const CHILD: &str = "ESKER_IO_TEST_FEW_HANDLES";

/// In a process of its own, since the limit is the process's.
#[test]
fn running_out_of_handles_is_a_kind_of_its_own() {
    if std::env::var_os(CHILD).is_none() {
        let test = "posix::kernel_tests::running_out_of_handles_is_a_kind_of_its_own";
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--test-threads", "1"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let made = made("handles", None);
    let limit = libc::rlimit { rlim_cur: 32, rlim_max: 32 };
    // SAFETY: a plain call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    let disk = PosixDisk::new();
    let mut open = Vec::new();
    let error = loop {
        match disk.open(&made.path, OpenMode::Read, AccessHint::Blocks) {
            Ok(file) => open.push(file),
            Err(error) => break error,
        }
        assert!(open.len() < 32);
    };
    assert_eq!((error.kind, error.operation), (IoKind::Resources, "open"));
    let folder = made.path.parent().unwrap();
    assert_eq!(disk.sync_dir(folder).unwrap_err().kind, IoKind::Resources);
    assert_eq!(disk.list(folder).unwrap_err().kind, IoKind::Resources);
    let new = made.path.with_extension("new");
    let create = disk.open(&new, OpenMode::Create, AccessHint::Bulk).err().unwrap();
    assert_eq!((create.kind, new.exists()), (IoKind::Resources, false));
    assert_eq!(disk.lock(&new).err().unwrap().kind, IoKind::Resources);
    open.clear();
    drop(disk.open(&made.path, OpenMode::Read, AccessHint::Blocks).unwrap());
}
