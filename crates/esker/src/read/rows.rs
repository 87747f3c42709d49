//! Rows for Rust programs: a scan, of the table or by an index, that gives out values instead of row images, without `unsafe`.
//!
//! Invariant: the images of the current batch stay valid while its rows are given out, because nobody but
//! [`Rows::next`] moves the cursor.

use crate::catalog::table::Table;
use crate::lock::LockMode;
use crate::read::cursor::{Cursor, ScanOptions};
use crate::read::index::{Direction, IndexCursor, KeyRange};
use crate::session::Session;
use crate::value::{self, FromValue, Value};
use crate::{Error, Result};
use esker_format::key_bytes::pass_prefix;
use esker_format::row;
use esker_format::{RowId, Schema};
use std::sync::Arc;

/// A scan that gives out one row after the other; made by [`Session::rows`].
pub struct Rows<'s> {
    session: &'s mut Session,
    table: Arc<Table>,
    source: Source,
    images: *const u8,
    stride: usize,
    ids: Vec<RowId>,
    at: usize,
    packed: Vec<u8>,
    failed: Option<Error>,
}

/// What gives the row images.
enum Source {
    Scan(Box<Cursor>),
    Index(Box<IndexCursor>),
}

/// Which rows are read by an index, and in which order; see [`Session::rows_by`].
#[derive(Debug, Clone, Copy, Default)]
pub struct IndexRange<'v> {
    from: &'v [Value<'v>],
    to: &'v [Value<'v>],
    descending: bool,
}

impl<'v> IndexRange<'v> {
    /// All of them.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Those whose first columns in the index have these values.
    #[must_use]
    pub fn equal(values: &'v [Value<'v>]) -> Self {
        Self::between(values, values)
    }

    /// Those from the first with the values `from` to the last with the values `to`, both included: of the index's first
    /// columns, as many as are given; none stands for the index's beginning, or its end.
    #[must_use]
    pub fn between(from: &'v [Value<'v>], to: &'v [Value<'v>]) -> Self {
        IndexRange { from, to, descending: false }
    }

    /// The last one first.
    #[must_use]
    pub fn descending(self) -> Self {
        IndexRange { descending: true, ..self }
    }
}

/// A row that [`Rows::next`] gave out.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    id: RowId,
    table: &'a Table,
    packed: &'a [u8],
}

impl Session {
    /// Begins a plain scan of `table` that gives out whole rows. Others may change what it gave out meanwhile: who means to change a
    /// row by what he reads of it takes [`rows_for_update`](Self::rows_for_update).
    ///
    /// # Errors
    /// As for [`scan`](Self::scan).
    pub fn rows(&mut self, table: &Arc<Table>) -> Result<Rows<'_>> {
        self.all_rows(table, None)
    }

    /// As [`rows`](Self::rows), for who changes rows by what he reads of them: each is locked before it is given out, as it is by then
    /// whatever the transaction's view shows, and stays so until the transaction ends. Who wants to change it, or reads it like
    /// this, waits, as set by [`set_lock_wait`](Self::set_lock_wait).
    ///
    /// # Errors
    /// [`Error::LockTimeout`], [`Error::WouldBlock`] and [`Error::Deadlock`], with snapshot isolation [`Error::RecordChanged`], after
    /// which the transaction is best rolled back and begun again.
    pub fn rows_for_update(&mut self, table: &Arc<Table>) -> Result<Rows<'_>> {
        self.all_rows(table, Some(LockMode::Exclusive))
    }

    fn all_rows(&mut self, table: &Arc<Table>, lock: Option<LockMode>) -> Result<Rows<'_>> {
        let mask = table.all_columns();
        let cursor = self.scan(table, ScanOptions { mask, lock, ..ScanOptions::default() })?;
        Ok(Rows::new(self, table, Source::Scan(Box::new(cursor))))
    }

    /// Begins a plain reading of whole rows by an index of the table, in the order of its keys.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the table has no such index, or a value does not fit its column.
    ///
    /// ```
    /// # use esker::{Engine, Error, IndexRange, Schema, TableDef, Type};
    /// # fn main() -> esker::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("esker-index-{}", std::process::id()));
    /// # let engine = Engine::open_dir(&dir)?;
    /// let schema = Schema::new().column("id", Type::U64).column("name", Type::Text(100));
    /// engine.create_table("people", &TableDef::of(&schema)?.unique("by_id", &["id"])?.index("by_name", &["name"])?)?;
    /// let people = engine.open_table("people")?;
    /// let mut session = engine.session();
    /// for (id, name) in [(1u64, "Grace"), (2, "Ada"), (3, "Barbara")] {
    ///     session.insert(&people, &[id.into(), name.into()])?;
    /// }
    /// let again = session.insert(&people, &[2u64.into(), "Edsger".into()]);
    /// assert!(matches!(again, Err(Error::DuplicateKey { index: 0, .. })));
    ///
    /// let (from, to) = (["A".into()], ["C".into()]);
    /// let mut rows = session.rows_by(&people, "by_name", IndexRange::between(&from, &to))?;
    /// let mut names = Vec::new();
    /// while let Some(row) = rows.next()? {
    ///     names.push(row.get::<String>("name")?);
    /// }
    /// assert_eq!(names, ["Ada", "Barbara"]);
    /// session.commit()?;
    /// # drop((session, people));
    /// # engine.close()?;
    /// # let _ = std::fs::remove_dir_all(&dir); // deps-ok: an example
    /// # Ok(())
    /// # }
    /// ```
    pub fn rows_by(&mut self, table: &Arc<Table>, index: &str, range: IndexRange<'_>) -> Result<Rows<'_>> {
        self.index_rows(table, index, range, None)
    }

    /// As [`rows_by`](Self::rows_by), for who changes rows by what he reads of them, see
    /// [`rows_for_update`](Self::rows_for_update).
    ///
    /// # Errors
    /// Those of both.
    ///
    /// ```
    /// # use esker::{Engine, IndexRange, Schema, TableDef, Type};
    /// # fn main() -> esker::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("esker-for-update-{}", std::process::id()));
    /// # let engine = Engine::open_dir(&dir)?;
    /// let schema = Schema::new().column("id", Type::U64).column("balance", Type::I64);
    /// engine.create_table("accounts", &TableDef::of(&schema)?.unique("by_id", &["id"])?)?;
    /// let accounts = engine.open_table("accounts")?;
    /// let mut session = engine.session();
    /// session.insert(&accounts, &[7u64.into(), 100i64.into()])?;
    /// session.commit()?;
    ///
    /// // 30 more, whoever else pays in at the same time.
    /// let key = [7u64.into()];
    /// let mut rows = session.rows_by_for_update(&accounts, "by_id", IndexRange::equal(&key))?;
    /// if let Some(row) = rows.next()? {
    ///     let (id, balance) = (row.id(), row.get::<i64>("balance")?);
    ///     session.update(&accounts, id, &[7u64.into(), (balance + 30).into()])?;
    /// }
    /// session.commit()?;
    /// # drop((session, accounts));
    /// # engine.close()?;
    /// # let _ = std::fs::remove_dir_all(&dir); // deps-ok: an example
    /// # Ok(())
    /// # }
    /// ```
    pub fn rows_by_for_update(&mut self, table: &Arc<Table>, index: &str, range: IndexRange<'_>) -> Result<Rows<'_>> {
        self.index_rows(table, index, range, Some(LockMode::Exclusive))
    }

    fn index_rows(
        &mut self,
        table: &Arc<Table>,
        index: &str,
        range: IndexRange<'_>,
        lock: Option<LockMode>,
    ) -> Result<Rows<'_>> {
        let at = table.trees().indexes.iter().position(|i| i.entry.name == index && i.is_kept());
        let none = || Error::InvalidArgument(format!("table '{}' has no index '{index}'", table.name()));
        let at = at.ok_or_else(none)?;
        let mut to = key_of(table, at, range.to)?;
        let to = pass_prefix(&mut to).then_some(to);
        let keys = KeyRange { from: key_of(table, at, range.from)?, to };
        let direction = if range.descending { Direction::Backward } else { Direction::Forward };
        let options = ScanOptions { mask: table.all_columns(), lock, ..ScanOptions::default() };
        let mut cursor = self.open_index_cursor(table, at, options)?;
        cursor.seek(self, keys, direction)?;
        Ok(Rows::new(self, table, Source::Index(Box::new(cursor))))
    }
}

/// Where the keys of an index begin whose first columns have these values.
fn key_of(table: &Table, index: usize, values: &[Value<'_>]) -> Result<Vec<u8>> {
    let (schema, index) = (value::schema_of(table)?, table.trees().index(index)?.clone());
    let codec = index.codec()?;
    if values.len() > codec.parts() {
        let why = format!("index '{}' has {} columns, not {}", index.entry.name, codec.parts(), values.len());
        return Err(Error::InvalidArgument(why));
    }
    let mut key = Vec::new();
    for (at, (value, place)) in values.iter().zip(codec.columns()).enumerate() {
        let number = value::number(value);
        let stored = match value::stored(&schema.columns()[place], value, &number)? {
            row::Value::Null => None,
            row::Value::Bytes(bytes) => Some(bytes),
        };
        codec.put_part(at, stored, &*index.collations, &mut key).map_err(|e| index.error(&e))?;
    }
    Ok(key)
}

impl<'s> Rows<'s> {
    fn new(session: &'s mut Session, table: &Arc<Table>, source: Source) -> Self {
        Rows {
            session,
            table: table.clone(),
            source,
            images: std::ptr::null(),
            stride: 0,
            ids: Vec::new(),
            at: 0,
            packed: Vec::new(),
            failed: None,
        }
    }

    /// The next row; `None` at the end.
    ///
    /// # Errors
    /// Those of reading and, for who locks, of waiting. From then on each call gives the same one: there may be rows that were
    /// not given.
    #[allow(clippy::should_implement_trait)] // an iterator could not lend the row
    pub fn next(&mut self) -> Result<Option<Row<'_>>> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        if self.at == self.ids.len() {
            self.read_on().inspect_err(|e| self.failed = Some(e.clone()))?;
            if self.ids.is_empty() {
                return Ok(None);
            }
        }
        let at = self.at;
        self.at += 1;
        self.packed.clear();
        // SAFETY: the batch has an image for each id, with all columns decoded, and the cursor has not moved since.
        unsafe { row::pack(&self.table.layout, self.images.add(at * self.stride), &mut self.packed) }
            .map_err(Error::in_memory)
            .inspect_err(|e| self.failed = Some(e.clone()))?;
        Ok(Some(Row { id: self.ids[at], table: &self.table, packed: &self.packed }))
    }

    /// The next batch; none at the end.
    fn read_on(&mut self) -> Result<()> {
        self.ids.clear();
        self.at = 0;
        let (images, stride, ids) = match &mut self.source {
            Source::Scan(cursor) => {
                let batch = cursor.next_batch(self.session)?;
                (batch.images, batch.stride, batch.ids)
            }
            Source::Index(cursor) => {
                let batch = cursor.next_batch(self.session)?;
                (batch.images, batch.stride, batch.ids)
            }
        };
        (self.images, self.stride) = (images, stride);
        self.ids.extend_from_slice(ids);
        Ok(())
    }
}

impl<'a> Row<'a> {
    /// Its id, by which it is updated and deleted.
    pub fn id(&self) -> RowId {
        self.id
    }

    /// The value of the column of this name, as a Rust type; `Option` where it may be NULL.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no such column, or its value is of another type.
    pub fn get<T: FromValue<'a>>(&self, name: &str) -> Result<T> {
        let schema = value::schema_of(self.table)?;
        let at = schema
            .position(name)
            .ok_or_else(|| Error::InvalidArgument(format!("table '{}' has no column '{name}'", self.table.name())))?;
        let stored = self.stored()?[at];
        value::take(&schema.columns()[at], self.load(schema, at, stored)?)
    }

    /// Its values, one for each column of the table's schema.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the table has no schema, or what is stored is no value of its column.
    pub fn values(&self) -> Result<Vec<Value<'a>>> {
        let schema = value::schema_of(self.table)?;
        self.stored()?.into_iter().enumerate().map(|(at, stored)| self.load(schema, at, stored)).collect()
    }

    /// Its values as they are stored, whether or not the table has a schema.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the packed row is none of this table's.
    pub fn stored(&self) -> Result<Vec<row::Value<'a>>> {
        row::values(&self.table.layout, self.packed).map_err(|e| Error::InvalidArgument(e.to_string()))
    }

    /// The packed row, as [`Session::update_row`] takes it.
    pub fn packed(&self) -> &'a [u8] {
        self.packed
    }

    fn load(&self, schema: &'a Schema, at: usize, stored: row::Value<'a>) -> Result<Value<'a>> {
        let column = &schema.columns()[at];
        value::loaded(column, stored).ok_or_else(|| {
            let why = format!("column '{}' of row {} is not {}", column.name, self.id, column.kind);
            Error::InvalidArgument(why)
        })
    }
}
