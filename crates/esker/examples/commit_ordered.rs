//! What one call of `commit_ordered` costs whoever makes it, while other sessions prepare: wall and processor time, system calls,
//! switches to other threads. One thread makes all the calls, as a coordinator that leads a group does.
//!
//! `cargo run --release -p esker --example commit_ordered -- [CALLS] [SESSIONS] [DIR]`: 1,000,000 of 64 sessions, in a folder under
//! the system's temporary folder that is removed at the end, unless told otherwise. System calls are counted by the kernel's
//! tracepoint, where the caller may use it.

use esker::{BeginOptions, Engine, Isolation, Notify, Options, PosixDisk, Schema, Session, Table, Type};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::time::Instant;

type Failed = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failed> {
    let mut args = std::env::args().skip(1);
    let calls: u64 = args.next().map_or(Ok(1_000_000), |n| n.parse())?;
    let sessions: u64 = args.next().map_or(Ok(64), |n| n.parse())?;
    let wanted = args.next().map(PathBuf::from);
    let dir = match &wanted {
        Some(dir) => dir.clone(),
        None => std::env::temp_dir().join(format!("esker-commit-ordered-{}", std::process::id())),
    };
    let result = work(&dir, calls, sessions.max(1));
    if wanted.is_none() {
        std::fs::remove_dir_all(&dir)?;
    }
    result
}

/// Who has prepared, and where its session goes back to.
type Prepared = (Session, Sender<Session>);

fn work(dir: &Path, calls: u64, sessions: u64) -> Result<(), Failed> {
    let log: Notify = Arc::new(|message, level| eprintln!("{level:?}: {message}"));
    let engine = Engine::open(Arc::new(PosixDisk::with_uring(8)), dir, Options::default(), log)?;
    let schema = Schema::new().column("id", Type::U64).column("text", Type::Text(100));
    let table = engine.create("rows", &schema)?;
    let (to_coordinator, queue) = channel();
    let each = calls.div_ceil(sessions);
    let begin = Instant::now();
    let seen = std::thread::scope(|scope| -> Result<Seen, Failed> {
        let writers: Vec<_> = (0..sessions)
            .map(|writer| {
                let (session, table, coordinator) = (engine.session(), &table, to_coordinator.clone());
                scope.spawn(move || write(session, table, writer * each..(writer + 1) * each, &coordinator))
            })
            .collect();
        drop(to_coordinator);
        let seen = coordinate(&queue);
        for writer in writers {
            writer.join().map_err(|_| "a writer panicked")??;
        }
        seen
    })?;
    let took = begin.elapsed().as_secs_f64();
    engine.close()?;
    println!("{} calls of {sessions} sessions in {took:.1} s", seen.wall_ns.len());
    seen.tell();
    let contended = |site: &esker_base::lock::SiteReport| site.contended > 0;
    let of_each = esker_base::lock::report().into_iter().filter(contended);
    let told: Vec<String> = of_each.map(|site| format!("{} {}", site.name, site.contended)).collect();
    println!("locks that were found taken, by anybody: {}", told.join(", "));
    Ok(())
}

/// Commits a row in a transaction of its own, again and again, as a server with a coordinator does.
fn write(
    mut session: Session,
    table: &Arc<Table>,
    rows: std::ops::Range<u64>,
    coordinator: &Sender<Prepared>,
) -> Result<(), Failed> {
    let (give_back, come_back) = channel();
    for row in rows {
        session.begin(Isolation::RepeatableRead, BeginOptions::default());
        session.insert(table, &[row.into(), "a text of a usual length, or somewhat more".into()])?;
        session.prepare(format!("transaction {row}").as_bytes())?;
        coordinator.send((session, give_back.clone())).map_err(|_| "the coordinator is gone")?;
        session = come_back.recv()?;
        session.commit()?;
    }
    Ok(())
}

/// What calls took.
#[derive(Default)]
struct Seen {
    wall_ns: Vec<u64>,
    processor_ns: Vec<u64>,
    /// What the clock of processor time takes by itself, so that it can be thought off.
    clock_ns: u64,
    system_calls: Option<u64>,
    voluntary_switches: i64,
    involuntary_switches: i64,
}

/// Decides for all who have prepared, one after the other, group by group.
fn coordinate(queue: &Receiver<Prepared>) -> Result<Seen, Failed> {
    let mut seen = Seen::default();
    let counter = SystemCalls::open();
    let mut clock: Vec<u64> = (0..1001).map(|_| thread_ns().abs_diff(thread_ns())).collect();
    clock.sort_unstable();
    seen.clock_ns = clock[clock.len() / 2];
    while let Ok(first) = queue.recv() {
        let group: Vec<Prepared> = std::iter::once(first).chain(queue.try_iter()).collect();
        for (mut session, give_back) in group {
            let switches = switches();
            counter.as_ref().map_or(Ok(()), |c| c.count(true))?;
            let (processor, wall) = (thread_ns(), Instant::now());
            session.commit_ordered();
            let (wall, processor) = (wall.elapsed(), thread_ns() - processor);
            counter.as_ref().map_or(Ok(()), |c| c.count(false))?;
            let after = self::switches();
            seen.wall_ns.push(wall.as_nanos() as u64);
            seen.processor_ns.push(processor);
            seen.voluntary_switches += after.0 - switches.0;
            seen.involuntary_switches += after.1 - switches.1;
            give_back.send(session).map_err(|_| "a writer is gone")?;
        }
    }
    // Of each call two are the clock's, and one ends the counting.
    let own = 3 * seen.wall_ns.len() as u64;
    seen.system_calls = counter.map(|c| c.read()).transpose()?.map(|all| all - own);
    Ok(seen)
}

impl Seen {
    fn tell(mut self) {
        self.wall_ns.sort_unstable();
        self.processor_ns.sort_unstable();
        let us = |of: &[u64], share: f64| {
            of.get(((of.len() as f64 * share) as usize).min(of.len().saturating_sub(1)))
                .map_or(0.0, |ns| *ns as f64 / 1e3)
        };
        for (what, of) in [("wall", &self.wall_ns), ("processor", &self.processor_ns)] {
            let at = [0.5, 0.99, 0.999, 1.0].map(|share| us(of, share));
            println!("{what} time, us: p50 {:.2}, p99 {:.2}, p99.9 {:.2}, most {:.2}", at[0], at[1], at[2], at[3]);
        }
        println!("of the processor time the clock itself takes {:.2} us", self.clock_ns as f64 / 1e3);
        match self.system_calls {
            Some(calls) => println!("system calls: {calls}"),
            None => println!("system calls: not counted, the kernel's tracepoint cannot be used here"),
        }
        println!("switches: {} voluntary, {} involuntary", self.voluntary_switches, self.involuntary_switches);
    }
}

/// Processor time of this thread.
fn thread_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills what it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Voluntary and involuntary context switches of this thread.
fn switches() -> (i64, i64) {
    // SAFETY: all zeros are such a struct, and it is filled.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage
    };
    (usage.ru_nvcsw, usage.ru_nivcsw)
}

/// The kernel's count of this thread's system calls.
struct SystemCalls(i32);

/// The first version of perf_event_attr, see perf_event_open(2).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample: [u64; 3],
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    config1: u64,
}

const PERF_TYPE_TRACEPOINT: u32 = 2;
const DISABLED: u64 = 1;
const ENABLE: libc::c_ulong = 0x2400;
const DISABLE: libc::c_ulong = 0x2401;

impl SystemCalls {
    fn open() -> Option<Self> {
        let id = std::fs::read_to_string("/sys/kernel/tracing/events/raw_syscalls/sys_enter/id").ok()?;
        let (kind, size) = (PERF_TYPE_TRACEPOINT, size_of::<Attributes>() as u32);
        let of = Attributes { kind, size, config: id.trim().parse().ok()?, flags: DISABLED, ..Attributes::default() };
        // SAFETY: the struct is as the call wants it; this thread, on any processor.
        let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &of, 0, -1, -1, 0) };
        (fd >= 0).then_some(SystemCalls(fd as i32))
    }

    fn count(&self, on: bool) -> std::io::Result<()> {
        // SAFETY: a call without memory.
        match unsafe { libc::ioctl(self.0, if on { ENABLE } else { DISABLE }, 0) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    }

    fn read(&self) -> std::io::Result<u64> {
        let mut count = [0; 8];
        // SAFETY: eight bytes, as the call fills.
        match unsafe { libc::read(self.0, count.as_mut_ptr().cast(), count.len()) } {
            8 => Ok(u64::from_ne_bytes(count)),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}
