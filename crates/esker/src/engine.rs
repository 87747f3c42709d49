//! The engine as its callers see it.

use crate::catalog::ddl::{self, Beside, Renamed};
use crate::catalog::table::{Table, TableDef};
use crate::core::Core;
use crate::options::{Level, Notify, Options};
use crate::session::Session;
use crate::txn::prepared;
use crate::upkeep::check::{self, CheckReport, CheckScope};
use crate::upkeep::{background, flush, merge};
use crate::{recovery, Background, Error, FlushMode, Result, SyncMethod};
use esker_format::Schema;
use esker_io::{Disk, Overlay, PosixDisk};
use std::path::Path;
use std::sync::Arc;

/// An open engine on one folder. Clones are handles to the same engine; its background work goes on as long as there is one, or a
/// [`Session`].
///
/// ```no_run
/// let engine = esker::Engine::open_dir("data")?;
/// println!("{:?}", engine.tables());
/// engine.close()?;
/// # Ok::<(), esker::Error>(())
/// ```
#[derive(Clone)]
pub struct Engine {
    /// Shared by all handles and sessions. Before the core: it still needs one.
    threads: Arc<Threads>,
    pub(crate) core: Arc<Core>,
}

/// Ends the background threads when the last handle and session go without [`Engine::close`]: they would keep each other's engine
/// alive, and the folder locked for a while.
pub(crate) struct Threads(std::sync::Weak<Core>);

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(core) = self.0.upgrade() {
            background::end(&core);
            if let Ok(_held) = core.hold_folder() {
                // Without a close, too: what cannot be synced is told, and stops the log.
                let _ = background::sync_what_is_owed(&core);
            }
            background::answer_requests(&core);
        }
    }
}

/// Who is told may panic: that ends no work of the engine, which tells in the middle of it.
fn guarded(log: Notify) -> Notify {
    Arc::new(move |text, level| {
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| log(text, level)));
    })
}

impl Engine {
    /// Opens the folder `dir` with standard options; what is worth telling goes to standard error. A relative path is meant from
    /// the process' folder of now, whatever that becomes later.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_dir(dir: impl AsRef<Path>) -> Result<Engine> {
        let dir = std::path::absolute(dir).map_err(|e| Error::InvalidArgument(format!("no folder: {e}")))?;
        let log: Notify = Arc::new(|message, level| match level {
            Level::Info => {}
            Level::Warning | Level::Error => eprintln!("esker: {message}"),
        });
        Engine::open(Arc::new(PosixDisk::new()), &dir, Options::default(), log)
    }

    /// Opens the folder `dir`, made if it is not there, and recovers what the last process left. A relative path goes with the
    /// process' own folder, which must not change then.
    ///
    /// With [`Options::read_only`] the folder must be there, it is locked like any other, and recovery's writes go to
    /// memory: nothing in it changes.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process has it open, [`Error::Damage`] with file and offset, [`Error::NewerFormat`],
    /// or what the disk says. Nothing is overwritten in these cases.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, options: Options, log: Notify) -> Result<Engine> {
        let options = options.sound();
        let log = guarded(log);
        if options.read_only {
            return Self::open_read_only(disk, dir, options, log);
        }
        let core = recovery::open(disk, dir, options, log)?;
        let engine = Engine::of(core);
        background::start(&engine.core)?;
        Ok(engine)
    }

    fn open_read_only(disk: Arc<dyn Disk>, dir: &Path, options: Options, log: Notify) -> Result<Engine> {
        if !disk.exists(&dir.join(crate::upkeep::manifest::MANIFEST))? {
            return Err(Self::without_manifest(&*disk, dir));
        }
        let options = Options {
            background: Background::Inline,
            // The segment that recovery begins lies in memory and stays empty.
            wal_segment_bytes: 64 << 10,
            ..options
        };
        let core = recovery::open(Arc::new(Overlay::new(disk)), dir, options, log)?;
        core.writable.set_read_only();
        Ok(Engine::of(core))
    }

    /// Why a folder in which there is no manifest is not looked into: it has lost it ([`Error::ManifestMissing`]), or is none of
    /// Esker's.
    pub fn without_manifest(disk: &dyn Disk, dir: &Path) -> Error {
        let none = || {
            let file = dir.join(crate::upkeep::manifest::MANIFEST);
            Error::InvalidArgument(format!("no Esker folder: {} is missing", file.display()))
        };
        recovery::holds_no_data(disk, dir).err().unwrap_or_else(none)
    }

    fn of(core: Arc<Core>) -> Engine {
        let threads = Arc::new(Threads(Arc::downgrade(&core)));
        Engine { threads, core }
    }

    /// Ends background work, writes memtables out and lets the folder go. Nothing can be written afterwards. The folder stays
    /// locked as long as a session of before is there: it may be writing, or have files that go with it. So it does while a call
    /// of before writes, and as long as there are [`BuiltIndexes`](crate::BuiltIndexes).
    ///
    /// # Errors
    /// What writing the memtables out failed with; the engine is closed all the same.
    pub fn close(&self) -> Result<()> {
        // Others may close it, too, and be done before.
        let _held = self.core.hold_folder().ok();
        background::stop(&self.core);
        let core = &self.core;
        let result = match core.writable.is_poisoned() {
            _ if core.writable.check_open().is_err() => Ok(()),
            // The next start recovers what is durable.
            true => background::sync_what_is_owed(core),
            // First: what is committed stays, whatever cannot be flushed.
            false => background::sync_all(core).and_then(|()| flush::all(core)),
        };
        self.core.let_go_of_folder();
        result
    }

    /// A new session.
    pub fn session(&self) -> Session {
        Session::new(self.core.clone(), Some(self.threads.clone()))
    }

    /// Creates a table, durably. Its name and those of its indexes have 1 to 4,096 bytes.
    ///
    /// # Errors
    /// [`Error::TableExists`]; [`Error::InvalidArgument`] for a name of another length, two indexes of one name, or a layout, a schema
    /// or an index that makes no sense.
    pub fn create_table(&self, name: &str, def: &TableDef) -> Result<()> {
        let _held = self.core.hold_folder()?;
        ddl::create_table(&self.core, name, def, 0, &[])
    }

    /// The same of a table whose AUTO_INCREMENT values below `counts_from` are not given out.
    ///
    /// # Errors
    /// As for [`create_table`](Self::create_table).
    pub fn create_counting_table(&self, name: &str, def: &TableDef, counts_from: u64) -> Result<()> {
        let _held = self.core.hold_folder()?;
        ddl::create_table(&self.core, name, def, counts_from, &[])
    }

    /// AUTO_INCREMENT values of the table below `counts_from` are not given out any more, durably; nothing changes where the counter
    /// is beyond that. Not part of a transaction.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a table of another engine, [`Error::NoSuchTable`] once it is dropped; those of writing.
    pub fn count_from(&self, table: &Table, counts_from: u64) -> Result<()> {
        self.core.check_own(table)?;
        let _held = self.core.hold_folder()?;
        ddl::count_from(&self.core, table, counts_from)
    }

    /// Asks whether the table's rows may be copied by somebody who will put the copy in its place, and keeps writers away until then.
    ///
    /// # Errors
    /// [`Error::LockTimeout`] while a prepared transaction has written in the table: no copy would have what that one commits.
    pub fn check_copied(&self, table: &Table) -> Result<()> {
        self.core.check_own(table)?;
        ddl::check_copied(&self.core, table)
    }

    /// Creates a table of these columns, durably, and opens it.
    ///
    /// # Errors
    /// As for [`create_table`](Self::create_table).
    pub fn create(&self, name: &str, schema: &Schema) -> Result<Arc<Table>> {
        self.create_table(name, &TableDef::of(schema)?)?;
        self.open_table(name)
    }

    /// Drops a table, durably; its space comes back. A transaction that has not ended loses what it wrote there, and goes on; who
    /// has a handle of the table gets [`Error::NoSuchTable`] from now on.
    ///
    /// # Errors
    /// [`Error::LockTimeout`] if a prepared transaction has written there.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        let _held = self.core.hold_folder()?;
        ddl::drop_table(&self.core, name, Beside::Others)
    }

    /// The same beside prepared transactions, too: they lose what they wrote there, and are committed or rolled back without it. For who
    /// could not leave the table as it is any more.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`]; those of writing.
    pub fn drop_table_of_prepared(&self, name: &str) -> Result<()> {
        let _held = self.core.hold_folder()?;
        ddl::drop_table(&self.core, name, Beside::Prepared)
    }

    /// Renames a table, durably; its new name is as for [`create_table`](Self::create_table).
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], [`Error::TableExists`]; [`Error::InvalidArgument`] for a name of another length; [`Error::LockTimeout`] if a
    /// prepared transaction has written there; those of writing.
    pub fn rename_table(&self, from: &str, to: &str) -> Result<()> {
        let _held = self.core.hold_folder()?;
        ddl::rename_table(&self.core, from, to, Renamed::Known)
    }

    /// The same for a table that was made and filled under a name that nobody else knew. A transaction whose view is older
    /// than the last commit into it gets [`Error::TableChanged`] when it reads, instead of a part of the rows or none.
    ///
    /// # Errors
    /// As for [`rename_table`](Self::rename_table).
    pub fn show_table(&self, from: &str, to: &str) -> Result<()> {
        let _held = self.core.hold_folder()?;
        ddl::rename_table(&self.core, from, to, Renamed::Shown)
    }

    /// Empties a table, durably; its space comes back. Not part of a transaction.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`]; [`Error::LockTimeout`] if a prepared transaction has written there; those of writing.
    pub fn truncate_table(&self, name: &str) -> Result<()> {
        let _held = self.core.hold_folder()?;
        ddl::truncate_table(&self.core, name)
    }

    /// A table by its name.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`].
    pub fn open_table(&self, name: &str) -> Result<Arc<Table>> {
        let tables = self.core.lock_catalog();
        tables.get(name).cloned().ok_or_else(|| Error::NoSuchTable(name.to_owned()))
    }

    /// The names of all tables, sorted.
    pub fn tables(&self) -> Vec<String> {
        self.core.tables.lock().keys().cloned().collect()
    }

    /// The names of the tables whose names begin so, sorted.
    pub fn tables_that_begin(&self, prefix: &str) -> Vec<String> {
        let tables = self.core.tables.lock();
        let names = tables.range(prefix.to_owned()..).map(|(name, _)| name);
        names.take_while(|name| name.starts_with(prefix)).cloned().collect()
    }

    /// XIDs of the transactions that were prepared by an earlier process or detached, and await a decision.
    pub fn prepared(&self) -> Vec<Vec<u8>> {
        let prepared = self.core.prepared.lock();
        prepared.iter().filter(|(_, p)| p.detached).map(|(xid, _)| xid.clone()).collect()
    }

    /// Commits a prepared transaction; false if there is none of this XID. Durable on return, as configured.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] where nothing may be written, [`Error::Poisoned`] once writing has stopped.
    pub fn commit_xid(&self, xid: &[u8]) -> Result<bool> {
        let _held = self.core.hold_folder()?;
        self.refuse_read_only()?;
        prepared::commit(&self.core, xid, None)
    }

    /// Rolls a prepared transaction back; false if there is none of this XID. Durable on return.
    ///
    /// # Errors
    /// As for [`commit_xid`](Self::commit_xid).
    pub fn rollback_xid(&self, xid: &[u8]) -> Result<bool> {
        let _held = self.core.hold_folder()?;
        self.refuse_read_only()?;
        prepared::rollback(&self.core, xid, None)
    }

    fn refuse_read_only(&self) -> Result<()> {
        self.core.writable.check_open()
    }

    /// Calls `done`, from any thread, once everything that is committed or decided now is durable; or with the error that keeps it
    /// from ever becoming so. Every request is answered; one that panics then is told of ([`Level::Error`]) and stops nothing.
    pub fn request_checkpoint(&self, done: Box<dyn FnOnce(Result<()>) + Send>) {
        // Answered it is all the same.
        let _held = self.core.hold_folder().ok();
        self.core.signals.request(done);
        if self.core.options.background == crate::Background::Inline || self.core.signals.stopping() {
            // Nobody else would.
            background::answer_requests(&self.core);
        }
    }

    /// What makes the log durable: as [`Options::sync_method`] had it, or what there was instead.
    pub fn sync_method(&self) -> SyncMethod {
        self.core.wal.syncing().method
    }

    /// Sets when commits are written and synced.
    pub fn set_flush_mode(&self, mode: FlushMode) {
        self.core.settings.set_flush_mode(mode);
    }

    /// Sets the bound of large memory, in bytes.
    pub fn set_memory_limit(&self, bytes: u64) {
        self.core.settings.set_memory_limit_bytes(bytes);
        self.core.cache.set_memory_limit(bytes);
        self.core.large.set_memory_limit(bytes);
    }

    /// Sets the buffers of a bulk writer, in bytes.
    pub fn set_bulk_buffer(&self, bytes: usize) {
        self.core.settings.set_bulk_buffer_bytes(bytes);
    }

    /// Writes memtables out, merges what wants merging, and writes a manifest: all background work there is.
    ///
    /// # Errors
    /// What the first of this that fails fails with; what was done before stays done.
    pub fn checkpoint(&self) -> Result<()> {
        let _held = self.core.hold_folder()?;
        background::settle_all(&self.core)
    }

    /// Merges all runs of a table and purges what no view needs. `progress` gets blocks done and blocks there are, both
    /// zero while it waits for another merge; false stops it.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if `progress` said so.
    pub fn optimize(&self, table: &Table, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
        let _held = self.core.hold_folder()?;
        self.core.check_usable(table)?;
        merge::optimize(&self.core, table, progress)
    }

    /// Reads and verifies every block of a table, holds its indexes and the number of its rows that is kept against its rows, and
    /// looks every entry of an index up by its key: [`CheckScope::Extended`]. `progress` gets blocks done and blocks there are, those
    /// that are read once more for that included; false stops.
    ///
    /// # Errors
    /// As for [`check_part`](Self::check_part).
    pub fn check(&self, table: &Table, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<CheckReport> {
        self.check_part(table, CheckScope::Extended, progress)
    }

    /// The same for a part of it; nothing read says that nothing of that part was left to check.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a table of another engine, [`Error::NoSuchTable`] once it is dropped; want of memory or
    /// handles. Of what is damaged or cannot be read the report tells.
    pub fn check_part(
        &self,
        table: &Table,
        scope: CheckScope,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<CheckReport> {
        // What is read would not go under it, nor be taken for lost.
        let _held = self.core.hold_folder().ok();
        self.core.check_usable(table)?;
        let (mut report, again) = check::table(table, scope, progress)?;
        let all_sound = scope.holds_rows() && !report.stopped && report.damages.is_empty();
        let own = self.core.tables().into_iter().find(|t| t.id == table.id);
        if let Some(table) = own.filter(|_| all_sound) {
            let by_key = scope == CheckScope::Extended;
            check::rows(&mut self.session(), &table, &mut report, &again, by_key, progress)?;
        }
        Ok(report)
    }

    /// Has all writing stopped, until a restart?
    pub fn poisoned(&self) -> bool {
        self.core.is_poisoned()
    }

    /// Stops all writing, because something above found its own logic broken.
    pub fn poison(&self, why: &str) {
        self.core.writable.poison(why);
    }
}
