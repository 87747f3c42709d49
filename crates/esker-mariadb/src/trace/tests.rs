// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;
use esker_base::trace::MOST_NOTED;
use esker_base::wait::{timed, WaitEvent};
use std::ffi::CString;
use std::sync::Mutex;

/// The greatest size is the process's.
static TURN: Mutex<()> = Mutex::new(());

fn open(folder: &Path) -> Result<EsTrace, Failure> {
    open_named(folder, "t")
}

fn open_named(folder: &Path, name: &str) -> Result<EsTrace, Failure> {
    open_of(folder, name, "u@h")
}

fn open_of(folder: &Path, name: &str, user: &str) -> Result<EsTrace, Failure> {
    let folder = CString::new(folder.to_string_lossy().into_owned()).unwrap();
    let (name, user) = (CString::new(name).unwrap(), CString::new(user).unwrap());
    EsTrace::open(&EsTraceFile {
        folder: folder.as_ptr(),
        name: name.as_ptr(),
        user: user.as_ptr(),
        server: user.as_ptr(),
        began: user.as_ptr(),
        level: c"FULL".as_ptr(),
        connection: 7,
        process: 1,
        table_for_people: None,
    })
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("esker-trace-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

#[test]
fn a_trace_whose_first_line_cannot_be_written_leaves_no_file() {
    let _turn = TURN.lock().unwrap();
    let folder = folder("first");
    MOST_BYTES.store(LEAST_BYTES, Ordering::Relaxed);
    let failure = open_of(&folder, "t", &"u".repeat(4096)).err().unwrap();
    MOST_BYTES.store(u64::MAX, Ordering::Relaxed);
    assert!(failure.text.contains("longer than esker_trace_max_size"), "{}", failure.text);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    drop(open(&folder).unwrap());
    let text = std::fs::read_to_string(folder.join("t.trc")).unwrap();
    assert!(text.starts_with("TRACE version=1") && text.lines().count() == 1, "{text}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_panic_ends_the_trace_with_a_note_and_is_told_once() {
    let _turn = TURN.lock().unwrap();
    let folder = folder("panic");
    let mut trace = open(&folder).unwrap();
    trace.guarded_untold(|trace| {
        trace.line(&"CALL half a line");
        panic!("in tracing")
    });
    let told = trace.guarded(EsTrace::write_out).err().unwrap();
    assert!(told.text.contains("t.trc' ends: a bug in Esker: in tracing"), "{}", told.text);
    assert!(trace.guarded(EsTrace::write_out).is_ok() && trace.file.is_none());
    let text = std::fs::read_to_string(folder.join("t.trc")).unwrap();
    let last = text.lines().last().unwrap();
    assert!(last.starts_with("LOST tim=") && last.contains("in tracing") && !text.contains("CALL"), "{text}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn many_files_have_an_end_that_is_told_once_and_looked_for_once_a_second() {
    let _turn = TURN.lock().unwrap();
    let folder = folder("many");
    let most = 20 * LEAST_BYTES;
    MOST_BYTES.store(most, Ordering::Relaxed);
    let mut traces: Vec<_> = (0..20).map(|n| open_named(&folder, &format!("{n}")).unwrap()).collect();
    assert!(!NO_ROOM_TOLD.load(Ordering::Relaxed) && ALL_BYTES.load(Ordering::Relaxed) == most);
    // Within what it counts for already a file may grow.
    traces[0].line(&"CALL fn=a");
    traces[0].write_out().unwrap();
    let told = |failure: Failure| told_once(failure).text;
    let full = |name| told(open_named(&folder, name).err().unwrap());
    assert_eq!([full("a"), full("b")], [NO_ROOM, ""]);
    // One that ends for it is told no more; its file says why.
    traces[1].line(&"x".repeat(LEAST_BYTES as usize));
    assert_eq!(traces[1].write_out().err().unwrap().text, "");
    assert!(std::fs::read_to_string(folder.join("1.trc")).unwrap().contains("LOST tim="));
    // There is room again once the folder is looked over.
    drop(traces);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(full("c"), "");
    *LOOKED.lock().unwrap() = Instant::now().checked_sub(LOOK_AGAIN).map(|then| (folder.clone(), then));
    drop(open_named(&folder, "d").unwrap());
    assert!(!NO_ROOM_TOLD.load(Ordering::Relaxed) && ALL_BYTES.load(Ordering::Relaxed) == LEAST_BYTES);
    MOST_BYTES.store(u64::MAX, Ordering::Relaxed);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_is_appended_while_the_folder_is_looked_over_counts() {
    let _turn = TURN.lock().unwrap();
    let folder = folder("meanwhile");
    let mut trace = open(&folder).unwrap();
    look_over(|| {
        let there = AppendFile::bytes_in(&folder, EXTENSION, LEAST_BYTES);
        trace.line(&"x".repeat(10_000));
        trace.write_out().unwrap();
        there
    });
    assert_eq!(ALL_BYTES.load(Ordering::Relaxed), trace.file_bytes);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn many_traces_that_have_nothing_to_note_take_little_memory() {
    let _turn = TURN.lock().unwrap();
    let folder = folder("memory");
    let many: Vec<_> = (0..200).map(|n| open_named(&folder, &format!("{n}")).unwrap()).collect();
    let held = |trace: &EsTrace| trace.recorder.as_ref().unwrap().held_bytes() + trace.memory.bytes();
    let all: u64 = many.iter().map(held).sum();
    assert!((100..4096).contains(&(all / 200)), "{all}");
    drop(many);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_statement_with_many_waits_has_memory_for_them_until_it_ends() {
    let _turn = TURN.lock().unwrap();
    let folder = folder("waits");
    let mut trace = open(&folder).unwrap();
    let idle = trace.recorder.as_ref().unwrap().held_bytes();
    trace::begin_statement(trace.recorder.take().unwrap());
    for _ in 0..MOST_NOTED + 5 {
        timed(WaitEvent::WalSync, || ());
    }
    let room = (MOST_NOTED * size_of::<Noted>()) as u64;
    // Others in this process may be on the account, too.
    assert!(esker_memory::charged(Account::Other) >= idle + room);
    let (mut recorder, _) = trace::end_statement_of(trace.recorder_id).unwrap();
    let (noted, summed) = (recorder.take_noted(), recorder.take_summed());
    trace.tell((&noted, &[]), &[], HashMap::new);
    trace.tell((&summed, &[]), &[], HashMap::new);
    assert_eq!(recorder.held_bytes(), idle + room);
    recorder.give_back(noted, true);
    assert_eq!(recorder.held_bytes(), idle);
    trace.recorder = Some(recorder);
    trace.write_out().unwrap();
    assert_eq!((trace.events, trace.dropped), (MOST_NOTED as u64 + 1, 4));
    assert!(trace.memory.bytes() <= KEPT_BYTES as u64);
    let text = std::fs::read_to_string(folder.join("t.trc")).unwrap();
    assert_eq!(text.lines().filter(|line| line.starts_with("WAIT ")).count(), MOST_NOTED + 1);
    drop(trace);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_table_is_called_as_the_server_says_and_else_as_the_engine_does() {
    unsafe extern "C" fn told(name: *const c_char, to: *mut u8, room: usize) -> usize {
        // SAFETY: a text of C, and room for so much.
        unsafe {
            let name = std::ffi::CStr::from_ptr(name).to_bytes();
            // More than there is room for is as good as nothing.
            if name == b"long" {
                return room + 1;
            }
            to.copy_from_nonoverlapping(name.as_ptr(), name.len() - 1);
            name.len() - 1
        }
    }
    assert_eq!(
        (readable(None, "shop/orders"), readable(Some(told), "shop/orders")),
        ("shop.orders".into(), "shop/order".into())
    );
    assert_eq!((readable(Some(told), "long"), readable(Some(told), "x")), ("long".into(), "x".into()));
}
