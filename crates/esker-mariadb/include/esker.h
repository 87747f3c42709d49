/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * esker.h: the C face of the Esker storage engine, the only thing a front end in C++ needs to know of it.
 *
 * Rules of every call; what it asks for beyond them is said under its "# Safety".
 *  - What can fail returns an EsStatus. No panic crosses, and no exception may cross from a callback.
 *  - A pointer or a callback is NULL only where it is said that it may be: another NULL stops the process. `error` and
 *    names may always be NULL: then no words are given, and the name is refused.
 *  - Handles are opaque: made by *_open, theirs who opened them, freed by *_close, valid in between.
 *  - What a pointer argument points to is the caller's, needed for the call only, and not changed by others meanwhile;
 *    what is given out is the engine's, and it is said how long it is valid. Nothing else is freed by either side.
 *  - An EsSession and its cursors belong to one thread at a time. EsEngine, EsTable and EsKiller may be used by any.
 *  - Calls that take a session leave the words of their failure in it (es_last_error); those that take none fill in the
 *    `error` they are given. An answer is written by a call that succeeds, unless it is said otherwise.
 *  - A number that is no member of its enum is refused as Invalid where it is Unchecked<>.
 *  - Strings end with NUL, are UTF-8 or at least bytes without NUL; lengths are in bytes and exclude the NUL.
 */

#pragma once

/* Generated from crates/esker-mariadb/src: change it there, and the test that finds this stale says how to renew it. */

#include <cstddef>
#include <cstdint>

/* A value that the engine checks before it takes it for a member. */
template <typename E> using Unchecked = E;

/// Bytes of an error's words, the final NUL included.
constexpr static const size_t ES_ERROR_BYTES = 1024;

/// The collation is not known: see `EsWeightsFn`.
constexpr static const size_t ES_NO_WEIGHTS = ~0;

/// An index that the table does not have yet.
constexpr static const uint32_t ES_NEW_INDEX = ~0;

/// Bytes of an XID's parts together.
constexpr static const size_t ES_XID_DATA_BYTES = 128;

/// How a call ended.
enum class [[nodiscard]] EsStatus : int32_t {
  /// It did what it was asked for.
  Ok = 0,
  /// A file operation failed.
  Io = 1,
  /// No space is left.
  DiskFull = 2,
  /// Bytes on disk are not what was written.
  Damage = 3,
  /// Another release wrote it, and this one does not read what is in it.
  NewerFormat = 4,
  /// Another process uses the data folder.
  Locked = 5,
  /// There is no table of that name.
  NoSuchTable = 6,
  /// There is a table of that name already.
  TableExists = 7,
  /// The read view is older than the table's rebuild.
  TableChanged = 8,
  /// Waited for a row lock as long as was allowed.
  LockTimeout = 9,
  /// The row is locked, and waiting is not allowed.
  WouldBlock = 10,
  /// Waiting would never end.
  Deadlock = 11,
  /// Killed while waiting, or stopped by its caller.
  Interrupted = 12,
  /// Snapshot isolation: a newer version was committed.
  RecordChanged = 13,
  /// No such row for this session.
  RowNotFound = 14,
  /// The row is longer than a row may be.
  RowTooLong = 15,
  /// It may not be written.
  ReadOnly = 16,
  /// An earlier write or sync failed: a restart recovers.
  Poisoned = 17,
  /// Memory is missing.
  OutOfMemory = 18,
  /// The engine cannot do that.
  Unsupported = 19,
  /// An argument that makes no sense.
  Invalid = 20,
  /// The caller's column layout is not the table's.
  Layout = 21,
  /// A bug in Esker; the engine is poisoned.
  Panic = 22,
  /// Another row has the key of a unique index: see `es_duplicate`.
  DuplicateKey = 23,
  /// What this version of the boundary has no code for.
  Other = 24,
};

/// When a commit is written and made durable.
enum class EsFlushMode : int32_t {
  /// Some time later; a crash of the process loses the last commits.
  Lazy = 0,
  /// Before it returns.
  EveryCommit = 1,
  /// Written before it returns, durable some time later: a power cut loses the last commits.
  WriteOnly = 2,
};

/// What makes the log durable.
enum class EsSyncMethod : int32_t {
  /// A write, then fdatasync.
  Fdatasync = 0,
  /// One write that is durable.
  Dsync = 1,
  /// A write and fdatasync by one call of io_uring.
  Uring = 2,
  /// What a trial at the opening finds to be fastest.
  Auto = 3,
};

/// How much a line of the log matters.
enum class EsLogLevel : int32_t {
  /// Something is wrong.
  Error = 0,
  /// Something to look at.
  Warning = 1,
  /// For the record.
  Info = 2,
};

/// How a column's bytes lie in a row image.
enum class EsColumnKind : int32_t {
  /// `width` bytes.
  Fixed = 0,
  /// `width` bytes, filled up at the end with `pad`.
  Padded = 1,
  /// The length, in `len_bytes` bytes (little-endian), then up to `width` bytes.
  Var = 2,
  /// The length, in `len_bytes` bytes (little-endian), then an 8-byte pointer.
  Blob = 3,
};

/// How rows are stored.
enum class EsRowFormat : int32_t {
  /// Packed, a column at a time.
  Dynamic = 0,
  /// Whole images at full width; no blobs.
  Fixed = 1,
};

/// How blocks are compressed.
enum class EsCompression : int32_t {
  /// Not at all.
  None = 0,
  /// Fast.
  Lz4 = 1,
  /// Small.
  Zstd = 2,
};

/// How a column's value becomes bytes of a key.
enum class EsKeyEncoding : int32_t {
  /// A little-endian number without sign; the column is Fixed.
  Unsigned = 1,
  /// A little-endian number in two's complement; the column is Fixed.
  Signed = 2,
  /// A little-endian IEEE 754 number; the column is Fixed.
  Float = 3,
  /// The bytes as they are, all of the same length; the column is Fixed or Padded.
  Fixed = 4,
  /// The bytes as they are.
  Bytes = 5,
  /// What the string weighs.
  Weights = 6,
  /// What the string weighs; one that goes on with spaces is the same.
  PaddedWeights = 7,
};

/// Which blocks a check reads, and what it does beyond.
enum class EsCheckScope : int32_t {
  /// All; indexes are held against the rows.
  All = 0,
  /// Those written since a check that found nothing wrong, or the start.
  Unchecked = 1,
  /// None: only what is known already.
  Quick = 2,
  /// All; indexes are held against the rows, and every entry is looked up by its key.
  Extended = 3,
};

/// As what people see a column's values.
enum class EsShownAs : int32_t {
  /// As the encoding in keys tells: numbers, texts, bytes.
  Plain = 0,
  /// Bytes that are no text.
  Binary = 1,
  /// A floating-point number with `decimals` digits behind the point.
  Rounded = 2,
  /// Bits, big-endian.
  Bits = 3,
  /// A byte, counted from 1900; 0 is the year 0. Of two `digits`, its last ones.
  Year = 4,
  /// Little-endian: 5 bits of day, 4 of month, 15 of year.
  Date = 5,
  /// Fields of bits, big-endian, with `decimals` of a second, as the next two.
  DateTime = 6,
  /// Seconds since 1970, big-endian.
  Timestamp = 7,
  /// May be negative or longer than a day.
  Time = 8,
  /// A number: its decimal digits, little-endian, or with `decimals` seconds, minutes and so on as remainders, big-endian.
  NumberDateTime = 9,
  /// Seconds since 1970, little-endian, or with `decimals` big-endian.
  NumberTimestamp = 10,
  /// As NumberDateTime.
  NumberTime = 11,
  /// `digits` decimal digits in all, `decimals` of them behind the point, nine in four bytes.
  Decimal = 12,
  /// The place of one of the names, from 1 on.
  Enum = 13,
  /// A bit for each name.
  Set = 14,
  /// Four bytes of an address.
  Inet4 = 15,
  /// Sixteen.
  Inet6 = 16,
  /// Sixteen bytes, which may stand in the order in which they are sorted.
  Uuid = 17,
};

/// What a transaction sees of others.
enum class EsIsolation : int32_t {
  /// A view per statement.
  ReadCommitted = 0,
  /// A view per transaction.
  RepeatableRead = 1,
};

/// How rows that are read are locked.
enum class EsLockMode : int32_t {
  /// Not at all.
  None = 0,
  /// Together with others that share.
  Shared = 1,
  /// Alone.
  Exclusive = 2,
};

/// How a statement gets its AUTO_INCREMENT values.
enum class EsCounting : int32_t {
  /// Whoever comes gets the next ones: values of several statements may alternate.
  Interleaved = 0,
  /// All at once, or what is asked for; waits for who counts alone.
  AtOnce = 1,
  /// Nobody else gets values until the statement ends.
  Alone = 2,
};

/// Indexes that a table is to have, built. Used by one thread at a time.
struct EsBuiltIndexes;

/// An open cursor. Belongs to its session.
struct EsCursor;

/// An open engine. Used by any thread.
struct EsEngine;

/// An open cursor over an index. Belongs to its session.
struct EsIndexCursor;

/// What wakes a session. Used by any thread.
struct EsKiller;

/// A connection's session. Belongs to one thread at a time.
struct EsSession;

/// An open table. Used by any thread.
struct EsTable;

/// A session's trace. Used by the session's thread; a statement begins and ends in one thread.
struct EsTrace;

/// The words of a failure; filled in only by a call that fails.
struct EsError {
  /// NUL-terminated, cut if longer.
  char text[ES_ERROR_BYTES];
};

/// Takes a line for the log: `length` bytes without a NUL, valid for the call. Called from any thread, also before
/// `es_engine_open` returns.
using EsLogFn = void(*)(void *context, EsLogLevel level, const char *text, size_t length);

/// Writes what a string weighs: comparing weights as bytes is comparing strings, where neither is the beginning of the
/// other. Of the value only the first `prefix_bytes` count, or as many characters as are as long at most; 0: all. The
/// one byte 0x20 is a space in every character set. Returns
/// how many bytes there are, if that is less than `room`; anything else says that there may be more than `room`, which is
/// written to as it likes, and is called again with more; or ES_NO_WEIGHTS. Depends on its arguments alone, for ever, and
/// is called from any thread.
using EsWeightsFn = size_t(*)(void *context,
                              uint32_t collation,
                              const uint8_t *value,
                              size_t value_bytes,
                              uint32_t prefix_bytes,
                              uint8_t *weights,
                              size_t room);

/// A number that tells one version of a collation from another: the same as long as all strings weigh the same. 0: unknown.
/// May be slow; is called from any thread.
using EsWeightsVersionFn = uint64_t(*)(void *context, uint32_t collation);

/// Writes a string of a collation in UTF-8, for people, at most `room` bytes of it; returns how many. Called from any thread.
using EsCollationTextFn = size_t(*)(void *context,
                                    uint32_t collation,
                                    const uint8_t *value,
                                    size_t value_bytes,
                                    uint8_t *text,
                                    size_t room);

/// This thread, whoever's it is, begins to wait (`what` for, static text), or has waited (NULL). Called from any thread, at any
/// place; must not call back into the engine.
using EsWaitingFn = void(*)(const char *what);

/// What an engine is opened with.
struct EsOptions {
  const char *data_dir;
  uint64_t memory_limit_bytes;
  uint64_t bulk_buffer_bytes;
  uint64_t bulk_threshold_bytes;
  uint64_t wal_segment_bytes;
  /// 0: `recovery_target_seconds` decides.
  uint64_t recovery_target_bytes;
  uint32_t recovery_target_seconds;
  Unchecked<EsFlushMode> flush_mode;
  Unchecked<EsSyncMethod> sync_method;
  /// NULL: nobody wants to know.
  EsLogFn log;
  void *log_context;
  /// NULL: there are no collations.
  EsWeightsFn weights;
  /// NULL: strings weigh for ever what they weighed.
  EsWeightsVersionFn weights_version;
  /// NULL: texts in keys are not told.
  EsCollationTextFn collation_text;
  void *weights_context;
  /// NULL: nobody wants to know. The process has one.
  EsWaitingFn waiting;
};

/// How one column lies in a row image.
struct EsColumn {
  Unchecked<EsColumnKind> kind;
  uint32_t offset;
  /// Fixed, Padded: bytes; Var: greatest number of bytes.
  uint32_t width;
  /// The byte in which the NULL bit lies.
  uint32_t null_byte;
  /// The NULL bit; 0: NOT NULL.
  uint8_t null_mask;
  /// Var, Blob: bytes of the length.
  uint8_t len_bytes;
  /// Padded: the byte that fills up.
  uint8_t pad;
  /// What its values are to the caller. A table is opened by those numbers alone with which it was created.
  uint32_t type_number;
  /// The column may have been created with this number, too: by a caller of before, which told less of its type. 0: it cannot.
  uint32_t earlier_type_number;
};

/// How a table's row images lie.
struct EsLayout {
  uint32_t image_bytes;
  /// Always stored: NULL bits and what else lies there.
  uint32_t head_bytes;
  uint32_t column_count;
  const EsColumn *columns;
};

/// One part of an index's key.
struct EsKeyPart {
  /// The column's place in the layout.
  uint32_t column;
  /// Only so many bytes of the value count; 0: all.
  uint32_t prefix_bytes;
  Unchecked<EsKeyEncoding> encoding;
  /// For weights: the number that `EsOptions::weights` is called with.
  uint32_t collation;
  /// Greater values come first.
  bool descending;
};

/// An index.
struct EsIndex {
  const char *name;
  const EsKeyPart *parts;
  uint32_t part_count;
  /// No two rows have the same key; a key with a NULL is like no other.
  bool unique;
};

/// What a table is created with.
struct EsTableDef {
  EsLayout layout;
  Unchecked<EsRowFormat> row_format;
  Unchecked<EsCompression> compression;
  /// In the order of their numbers.
  const EsIndex *indexes;
  uint32_t index_count;
  /// Gone at the next start.
  bool temporary;
  /// AUTO_INCREMENT values are given out from here on; 0: from 1 on.
  uint64_t auto_increment;
};

/// Gets the name of a table, valid for the call.
using EsNameFn = void(*)(void *context, const char *name);

/// A table's figures.
struct EsTableStats {
  /// An estimate.
  uint64_t rows;
  uint64_t data_bytes;
  /// Of rows as they are before encoding and compression; about.
  uint64_t row_bytes;
  /// Held by versions that nobody can see any more.
  uint64_t free_bytes;
  uint64_t runs;
  /// Seconds since 1970; 0: unknown.
  uint64_t create_time;
  /// Seconds since 1970; 0: unknown.
  uint64_t update_time;
  EsRowFormat row_format;
  EsCompression compression;
};

/// Told how far it is; true: stop.
using EsProgressFn = bool(*)(void *context, uint64_t done, uint64_t total);

/// How people see a column's values.
struct EsShown {
  Unchecked<EsShownAs> shown_as;
  uint32_t name_count;
  /// Of an enum or a set.
  const char *const *names;
  uint8_t digits;
  uint8_t decimals;
  /// Zeros stand before a number up to so many characters; 0: none do.
  uint8_t filled;
};

/// One of the indexes that a table is to have.
struct EsIndexPlan {
  /// Of one that is there only the name counts.
  EsIndex index;
  /// Its place among the table's indexes now, or ES_NEW_INDEX.
  uint32_t place;
};

/// Called around waits for row locks, in the session's thread. They must not call back into the engine, except for
/// `es_kill`. Each may be NULL.
struct EsWaitHooks {
  /// Whose session it is: what the hooks are called with.
  void *context;
  void (*before)(void *context);
  /// How long it may take at most, in microseconds; 0: not at all. Asked before; NULL: 50 seconds.
  uint64_t (*longest)(void *context);
  /// The wait took `waited_us`.
  void (*after)(void *context, uint64_t waited_us);
  /// The transaction that is waited for is that of the session opened with the context `other` (NULL: unknown); only after
  /// `es_report_waits`.
  void (*waits_for)(void *context, void *other);
  /// Does the transaction of the session opened with the context `one` have to end before that of `other`? Asked when a wait
  /// has made a deadlock, of sessions that report their waits; in any thread, with locks held: it waits for nothing.
  bool (*goes_before)(void *one, void *other);
  /// Writes the statement that a connection runs, in UTF-8, at most `room` bytes of it; returns how many. Asked, for each of
  /// them, when a wait would have made a deadlock.
  size_t (*statement)(uint64_t connection, uint8_t *text, size_t room);
};

/// An XA transaction id, as the server has it.
struct EsXid {
  int64_t format;
  /// At most 64, as `bqual_bytes`.
  uint32_t gtrid_bytes;
  uint32_t bqual_bytes;
  /// First the gtrid, then the bqual.
  uint8_t data[ES_XID_DATA_BYTES];
};

/// Called once, from any thread: with `Ok` when all that was committed before the call is durable; with an error and
/// its words, valid for the call, if writing has stopped, and it will not become durable before the engine is opened
/// again.
using EsDoneFn = void(*)(void *cookie, EsStatus status, const char *why);

/// Room for more rows of a table, to be filled without a call each. When `es_insert` has inserted a row in bulk, there
/// may be some: while `table` is the row's table and `next` is not `end`, copy the next row's image to `next`, take
/// `row_id` as its id, move `next` by the image size and `row_id` by one. The next call on the session, whatever it is,
/// takes what was written; if that fails, so does the call. Images must not point anywhere.
struct EsStage {
  /// NULL: there is no room.
  const EsTable *table;
  uint8_t *next;
  uint8_t *end;
  uint64_t row_id;
};

/// How a cursor reads.
struct EsScanOptions {
  /// The layout's columns to fill in, a bit each, least significant bit first; NULL: all.
  const uint8_t *columns;
  /// Bytes of `columns`, not fewer than the layout's columns need.
  size_t columns_bytes;
  Unchecked<EsLockMode> lock;
  /// Leave locked rows out.
  bool skip_locked;
  /// Give a locked row's last committed version rather than wait.
  bool semi_consistent;
  /// By an index: whether a key is free is asked, and no row of the view is looked for.
  bool passes_gone;
};

/// Rows decoded ahead: `count` images, `stride` bytes apart, and their ids. They belong to the cursor and are valid
/// until its next call; what their blob slots point to, until a call gives other rows.
struct EsBatch {
  const uint8_t *images;
  size_t stride;
  const uint64_t *row_ids;
  /// 0: the end.
  size_t count;
};

/// Where a range of keys begins or ends: before all keys whose first `parts` parts are like those of a row image, or behind
/// them.
struct EsKeyBound {
  /// NULL: there is no bound on this side.
  const uint8_t *image;
  uint32_t parts;
  bool behind;
};

/// Keys of an index.
struct EsKeyRange {
  EsKeyBound from;
  EsKeyBound to;
};

/// What a session has done since it was opened, as far as the server tells it of a table's part in a statement: a call's work is
/// the difference of two.
struct EsWork {
  /// Blocks taken from the cache, or read.
  uint64_t blocks;
  /// Reads of run files: blocks, their indexes and filters; the page cache may have answered.
  uint64_t reads;
  /// For how long, in nanoseconds.
  uint64_t read_ns;
  /// Blocks that were read together with one that was wanted.
  uint64_t blocks_ahead;
  /// Whole buffers of rows that a large write has filled.
  uint64_t buffers;
  /// Row versions passed over, newer than a view or undone.
  uint64_t versions_passed;
};

/// Writes the name of a table of the engine as people know it, `schema.table`, in UTF-8, at most `room` bytes of it; returns how
/// many, 0 if it cannot. Called by the session's thread. NULL: tables are called as the engine calls them.
using EsTableForPeopleFn = size_t(*)(const char *name, uint8_t *readable, size_t room);

/// Takes a part of a text: `length` bytes without a NUL, valid for the call.
using EsWriteFn = void(*)(void *context, const char *text, size_t length);

/// Takes the name of a page or of a wait event, and what it says, both valid for the call.
using EsSiteFn = void(*)(void *context, const char *name, const char *figures);

/// A status variable and its value in all. Its texts are static.
struct EsMetric {
  /// Without `Esker_`.
  const char *name;
  const char *unit;
  const char *meaning;
  uint64_t value;
  /// A session has a value of its own, too.
  bool per_session;
};

/// Takes a metric, valid for the call; true: no more are wanted.
using EsMetricFn = bool(*)(void *context, const EsMetric *metric);

/// An open transaction.
struct EsTransaction {
  uint64_t id;
  /// 0: none, as of a prepared one after a restart.
  uint64_t connection;
  uint64_t started_unix_us;
  uint64_t age_us;
  /// By its ended statements, as `redo_bytes`.
  uint64_t rows_changed;
  uint64_t rows_locked;
  uint64_t redo_bytes;
  /// The oldest view it keeps; 0: none.
  uint64_t view_seq;
  /// Static, as `isolation`.
  const char *state;
  const char *isolation;
  bool has_xid;
  EsXid xid;
};

/// Takes one, which is valid for the call; true: stop. None of the engine's locks is held.
using EsTransactionFn = bool(*)(void *context, const EsTransaction *transaction);

/// A session that waits for another's transaction.
struct EsLockWait {
  uint64_t waiting_connection;
  uint64_t blocking_connection;
  uint64_t waited_us;
  uint64_t blocker_idle_us;
  /// The connection at the end of the chain.
  uint64_t root_blocker;
  /// Static.
  const char *kind;
  /// Valid for the call, as `key_text`, which is NULL where there is none.
  const char *table;
  const char *key_text;
};

/// Takes one, which is valid for the call; true: stop. None of the engine's locks is held.
using EsLockWaitFn = bool(*)(void *context, const EsLockWait *wait);

/// The local time of who reads, as a number of digits YYYYMMDDhhmmss, of a time in seconds since 1970.
using EsLocalTimeFn = uint64_t(*)(void *context, int64_t unix_seconds);

/// A lock, neighbouring ones, or the wish for one.
struct EsLock {
  uint64_t txn;
  /// 0: none, as of a prepared one after a restart.
  uint64_t connection;
  /// Static.
  const char *kind;
  /// Static; NULL: another transaction's end is waited for, or it is of many.
  const char *mode;
  /// Valid for the call, as the others; empty: of more than one.
  const char *table;
  /// NULL: the text has no index's values.
  const char *key_name;
  const char *key_text;
  bool waiting;
};

/// Takes one, which is valid for the call; true: stop. None of the engine's locks is held.
using EsLockFn = bool(*)(void *context, const EsLock *lock);

/// A file of the engine's, and what was done to it since it was first opened.
struct EsFile {
  /// Valid for the call, as all texts. Those of tables and indexes are NULL where it is not of one alone.
  const char *path;
  const char *kind;
  const char *table;
  const char *index;
  uint64_t size_bytes;
  uint64_t reads;
  uint64_t read_bytes;
  uint64_t read_ns;
  uint64_t writes;
  uint64_t write_bytes;
  uint64_t write_ns;
  uint64_t syncs;
  uint64_t sync_ns;
};

/// Takes one, which is valid for the call; true: stop. None of the engine's locks is held.
using EsFileFn = bool(*)(void *context, const EsFile *file);

/// Memory of one kind that somebody has.
struct EsMemory {
  /// Valid for the call, as all texts: "engine", "session" or "table".
  const char *owner;
  const char *kind;
  /// NULL but for a table.
  const char *table;
  bool of_session;
  /// 0: nobody has said whose it is.
  uint64_t connection;
  uint64_t bytes;
  uint64_t peak_bytes;
  bool has_peak;
  uint64_t objects;
};

/// Takes one, which is valid for the call; true: stop. None of the engine's locks is held.
using EsMemoryFn = bool(*)(void *context, const EsMemory *memory);

/// Waits of one kind, of the process or of a session.
struct EsWait {
  /// Valid for the call, as all texts.
  const char *kind;
  const char *name;
  bool of_session;
  /// 0: nobody has said whose it is.
  uint64_t connection;
  uint64_t count;
  uint64_t sum_ns;
  uint64_t max_ns;
  /// Not of sessions, as `p99_ns`.
  uint64_t p50_ns;
  uint64_t p99_ns;
};

/// Takes one, which is valid for the call; true: stop. None of the engine's locks is held.
using EsWaitFn = bool(*)(void *context, const EsWait *wait);

/// How many waits of a kind took so long.
struct EsWaitBucket {
  /// Valid for the call.
  const char *name;
  uint64_t from_ns;
  /// 0: no end.
  uint64_t to_ns;
  uint64_t count;
};

/// Takes one, which is valid for the call; true: stop. None of the engine's locks is held.
using EsWaitBucketFn = bool(*)(void *context, const EsWaitBucket *bucket);

/// What was done to a table's rows, or by an index of it, in statements that have ended.
struct EsTableWork {
  /// Valid for the call, as `index`, which is NULL for the rows.
  const char *table;
  const char *index;
  uint64_t rows_read;
  uint64_t rows_changed;
  uint64_t blocks_cached;
  /// From the operating system's cache, or from the device.
  uint64_t blocks_read;
  /// Of the two that follow something is known.
  bool has_source;
  uint64_t blocks_pagecache;
  uint64_t blocks_device;
  /// Those of them that were read to change rows.
  uint64_t blocks_read_by_changes;
  uint64_t lock_waits;
  uint64_t lock_wait_us;
};

/// Takes one, which is valid for the call; true: stop. None of the engine's locks is held.
using EsTableWorkFn = bool(*)(void *context, const EsTableWork *work);

/// Locks of one name, since the start or since `es_forget_mutexes`; those that are gone included.
struct EsMutex {
  /// Valid for the call.
  const char *name;
  /// In the lock order, the outermost is 0.
  uint64_t rank;
  /// By readers, too.
  uint64_t acquired;
  /// Found taken.
  uint64_t contended;
  /// Times that those tried again.
  uint64_t spins;
  uint64_t wait_ns;
  uint64_t wait_max_ns;
  /// Of acquisitions that were timed, as the next two.
  uint64_t hold_ns;
  uint64_t hold_max_ns;
  uint64_t unlock_ns;
  /// From letting go to a waiter's having it, where that is known.
  uint64_t rewake_ns;
  bool has_rewake;
  /// One in so many was; 0: none.
  uint64_t sampled_one_in;
};

/// Takes one, which is valid for the call; true: stop. None of the engine's locks is held.
using EsMutexFn = bool(*)(void *context, const EsMutex *mutex);

/// A frame of a stack of code that waited for a lock, or held one that was waited for.
struct EsMutexFrame {
  /// Of the lock. Valid for the call, as all texts.
  const char *name;
  const char *role;
  /// Of the lock's stacks.
  uint64_t stack_id;
  uint64_t samples;
  /// How long these waited, held or took to let go.
  uint64_t sum_ns;
  /// The innermost is 1.
  uint64_t frame_no;
  const char *frame;
};

/// Takes one, which is valid for the call; true: stop. None of the engine's locks is held.
using EsMutexFrameFn = bool(*)(void *context, const EsMutexFrame *frame);

/// Of which session a trace is, and where it goes. All texts are needed for the call only.
struct EsTraceFile {
  /// Is made if it is not there; its parent is.
  const char *folder;
  /// Without its extension.
  const char *name;
  const char *user;
  const char *server;
  /// In UTC, as RFC 3339 has it.
  const char *began;
  const char *level;
  uint64_t connection;
  uint64_t process;
  EsTableForPeopleFn table_for_people;
};

/// Calls of the engine one after another that are alike.
struct EsTraceCall {
  /// Of the first, by `es_trace_now`.
  uint64_t at_ns;
  uint64_t count;
  /// May be NULL.
  const char *table;
  const char *function;
  /// Of `end_bulk_insert`: buffers that were written full.
  bool is_bulk_end;
  uint64_t full;
};

/// What the server knows of a statement that has ended.
struct EsTraceEnd {
  uint64_t rows;
  uint64_t changed;
  /// By `es_trace_now`; 0: none.
  uint64_t first_row_ns;
  uint64_t error;
  uint64_t merge_passes;
  uint64_t disk_tables;
  uint64_t disk_bytes;
  /// Calls that were not kept.
  uint64_t calls_dropped;
  bool killed;
};

extern "C" {

/// May the engine's files lie in `folder`, as `esker_data_dir` has it? Not in a database's folder, nor in the server's own.
///
/// # Safety
/// Texts of C; `home` is the server's data folder.
EsStatus es_data_folder(const char *folder,
                        const char *home,
                        EsError *error);

/// The options that the engine itself would choose; `data_dir`, `log` and those of weights are NULL.
///
/// # Safety
/// `options` may be written.
void es_default_options(EsOptions *options);

/// Opens or creates the data folder and recovers. `*engine` is written only if it succeeds.
///
/// # Safety
/// The options are needed for the call only, but for `log`, `weights`, `weights_version`, `collation_text`, `waiting` and their contexts: they are used, from any thread,
/// until the engine is closed.
EsStatus es_engine_open(const EsOptions *options,
                        EsEngine **engine,
                        EsError *error);

/// Clean shutdown. Frees the handle also when it fails. `Poisoned`: writing had stopped; what was committed last may
/// have to be recovered with the help of who decided it.
///
/// # Safety
/// All of its sessions, killers, tables and cursors are closed. `engine` may be NULL; it is not used again.
EsStatus es_engine_close(EsEngine *engine, EsError *error);

/// New bound of memory.
///
/// # Safety
/// `engine` is open.
void es_set_memory_limit(const EsEngine *engine, uint64_t bytes);

/// New size of the buffers in which the rows of large writes gather.
///
/// # Safety
/// `engine` is open.
void es_set_bulk_buffer(const EsEngine *engine, uint64_t bytes);

/// From the next commit on.
///
/// # Safety
/// `engine` is open.
EsStatus es_set_flush_mode(const EsEngine *engine, Unchecked<EsFlushMode> mode);

/// The name of what makes the log durable: static, NUL-terminated.
///
/// # Safety
/// `engine` is open.
const char *es_sync_method(const EsEngine *engine);

/// Returns when the log is durable up to the moment of the call, or cannot become so.
///
/// # Safety
/// `engine` is open.
EsStatus es_flush_log(const EsEngine *engine, EsError *error);

/// Atomic, and durable on return.
///
/// # Safety
/// `def->layout.columns` are `column_count` columns, `def->indexes` are `index_count` indexes, and each has `part_count`
/// parts.
EsStatus es_create_table(const EsEngine *engine,
                         const char *name,
                         const EsTableDef *def,
                         EsError *error);

/// Atomic, and durable on return; `of_prepared`: also where a prepared transaction has rows, which go.
///
/// # Safety
/// `engine` is open.
EsStatus es_drop_table(const EsEngine *engine, const char *name, bool of_prepared, EsError *error);

/// Drops all tables whose names begin so, one after the other; no such table if there is none.
///
/// # Safety
/// `engine` is open.
EsStatus es_drop_tables(const EsEngine *engine, const char *prefix, bool of_prepared, EsError *error);

/// Tells the names of all tables that begin so.
///
/// # Safety
/// `engine` is open; `each` may be called with `context`.
void es_tables_that_begin(const EsEngine *engine, const char *prefix, EsNameFn each, void *context);

/// Is there a table of this name?
///
/// # Safety
/// `engine` is open.
bool es_has_table(const EsEngine *engine, const char *name);

/// Atomic, and durable on return. With `shows` nobody else has known the table so far: who has a view that is older than its
/// last commit is told that the table has changed.
///
/// # Safety
/// `engine` is open.
EsStatus es_rename_table(const EsEngine *engine,
                         const char *from,
                         const char *to,
                         bool shows,
                         EsError *error);

/// Atomic, and durable on return.
///
/// # Safety
/// `engine` is open.
EsStatus es_truncate_table(const EsEngine *engine, const char *name, EsError *error);

/// `LockTimeout` while a prepared transaction has written in the table: it would be in no copy that takes the table's place.
///
/// # Safety
/// `table` is open.
EsStatus es_check_copied(const EsTable *table,
                         EsError *error);

/// `Layout` when the table was created with another layout, other types, or other indexes but for their names. Where only their order
/// is another one the table gets that of `keys`, durably: nobody has it open by another. `*table` is written only if it succeeds.
///
/// # Safety
/// `expected->columns` are `column_count` columns, `keys` are `key_count` indexes, and each has `part_count` parts. From here
/// on every row image of the table lies as `expected` says.
EsStatus es_table_open(const EsEngine *engine,
                       const char *name,
                       const EsLayout *expected,
                       const EsIndex *keys,
                       uint32_t key_count,
                       EsTable **table,
                       EsError *error);

/// Lets go of a table.
///
/// # Safety
/// Its cursors are closed, and no session's stage is open for it. `table` may be NULL; it is not used again.
void es_table_close(EsTable *table);

/// Figures; all 0 after a bug in Esker.
///
/// # Safety
/// `table` is open.
void es_table_get_stats(const EsTable *table, EsTableStats *stats);

/// Bytes of its indexes, in runs and in memory; 0 after a bug in Esker.
///
/// # Safety
/// `table` is open.
uint64_t es_table_index_bytes(const EsTable *table);

/// Reads and verifies blocks. `Damage`: the first damage found, in `error`; `*damaged` counts all, `*blocks` those read.
/// Both are written before a failure only if it is `Damage` or `Interrupted`, which is when `progress` stopped it.
///
/// # Safety
/// `progress` may be NULL; it is called in this thread.
EsStatus es_table_check(const EsTable *table,
                        Unchecked<EsCheckScope> scope,
                        EsProgressFn progress,
                        void *context,
                        uint64_t *blocks,
                        uint64_t *damaged,
                        EsError *error);

/// Merges what can be merged. `Interrupted` if `progress` stopped it: what was done by then stays.
///
/// # Safety
/// `progress` may be NULL; it is called in this thread.
EsStatus es_table_optimize(const EsTable *table, EsProgressFn progress, void *context, EsError *error);

/// Finds out how many rows are alike by each index, and keeps that durably. `Interrupted` if `progress` stopped it: then what
/// was known stays.
///
/// # Safety
/// As for `es_table_optimize`.
EsStatus es_table_analyze(const EsTable *table,
                          EsProgressFn progress,
                          void *context,
                          EsError *error);

/// People are to see the table's columns, in the order of its layout, like this where a key of it is told: to all who have
/// it open, until somebody says otherwise, or the engine is closed.
///
/// # Safety
/// `columns` are `count` columns, each with `name_count` names.
EsStatus es_table_show_as(const EsTable *table,
                          const EsShown *columns,
                          size_t count,
                          EsError *error);

/// Builds the indexes of the plan that are new, in its order, of all rows that are committed, while others read. Nothing of it
/// shows before `es_alter_indexes`. `DuplicateKey`: `*place` is the index's in the plan, `*row` a row that has another one's
/// key; both are written only then, `*built` only if it succeeds. `Interrupted` if `progress` stopped it.
///
/// # Safety
/// `plan` are `count` indexes, and each has `part_count` parts. `progress` may be NULL; it is called in this thread. Nobody
/// writes in the table until what was built is used or let go of.
EsStatus es_build_indexes(const EsTable *table,
                          const EsIndexPlan *plan,
                          uint32_t count,
                          EsProgressFn progress,
                          void *context,
                          EsBuiltIndexes **built,
                          uint32_t *place,
                          uint64_t *row,
                          EsError *error);

/// Gives tables the indexes that were built for them, and no others: `count` of them, each of another table. Atomic, and
/// durable on return.
///
/// # Safety
/// All were built in the same engine. None of them is used again, whatever comes of it.
EsStatus es_alter_indexes(EsBuiltIndexes *const *built,
                          uint32_t count,
                          EsError *error);

/// Lets go of indexes that are not wanted.
///
/// # Safety
/// `built` may be NULL; it is not used again.
void es_built_indexes_close(EsBuiltIndexes *built);

/// A number that is another one after `es_alter_indexes`, also after a restart.
///
/// # Safety
/// `engine` is open.
EsStatus es_table_version(const EsEngine *engine, const char *name, uint64_t *version, EsError *error);

/// A session for one connection. `*session` is written only if it succeeds.
///
/// # Safety
/// `hooks` may be NULL and is needed for the call only; its functions are called with its context until the session is
/// closed.
EsStatus es_session_open(const EsEngine *engine, const EsWaitHooks *hooks, EsSession **session, EsError *error);

/// Rolls back what is open; a prepared transaction stays prepared, for `es_commit_xid` or `es_rollback_xid`.
///
/// # Safety
/// Its cursors are closed. `session` may be NULL; neither it nor its stage is used again.
void es_session_close(EsSession *session);

/// How the session's last call that failed ended, and its words; `Ok` and none if none has failed yet.
///
/// # Safety
/// `session` is open.
EsStatus es_last_error(const EsSession *session, EsError *error);

/// What wakes this session from other threads. `*killer` is written only if it succeeds; it may outlive the session.
///
/// # Safety
/// `session` is open.
EsStatus es_killer_open(EsSession *session, EsKiller **killer);

/// Frees a killer.
///
/// # Safety
/// `killer` may be NULL; it is not used again, by no thread.
void es_killer_close(EsKiller *killer);

/// Wakes the session from a wait for a row lock, now or its next one in this statement.
///
/// # Safety
/// `killer` is open.
void es_kill(const EsKiller *killer);

/// Whose session it is, for `es_transactions` and `es_lock_waits`.
///
/// # Safety
/// `session` is open.
void es_set_connection(EsSession *session, uint64_t connection);

/// Are waits of this session's transactions reported, and others' waits for them? From the next `es_begin` on. `changes`: whenever
/// whom it waits for is another one, too, for which it is woken; and its order counts in deadlocks.
///
/// # Safety
/// `session` is open.
void es_report_waits(EsSession *session,
                     bool waits,
                     bool changes);

/// Begins a transaction unless one is open. `snapshot_isolation`: a row that was changed after the view was opened is an
/// error to a writer.
///
/// # Safety
/// `session` is open.
EsStatus es_begin(EsSession *session,
                  Unchecked<EsIsolation> isolation,
                  bool snapshot_isolation);

/// Is a transaction open?
///
/// # Safety
/// `session` is open.
bool es_in_transaction(const EsSession *session);

/// Has the open transaction locked or written rows, those rolled back to a savepoint included?
///
/// # Safety
/// `session` is open.
bool es_holds_locks(const EsSession *session);

/// Opens the transaction's view now.
///
/// # Safety
/// `session` is open.
EsStatus es_take_view(EsSession *session);

/// From here on: who reads a table or an index from block to block has so many blocks read by one call, at most.
///
/// # Safety
/// `session` is open.
void es_set_read_blocks(EsSession *session, uint32_t most);

/// Begins a statement, and forgets an `es_kill` that nothing waited for.
///
/// # Safety
/// `session` is open.
EsStatus es_begin_statement(EsSession *session);

/// Ends a statement.
///
/// # Safety
/// `session` is open.
EsStatus es_end_statement(EsSession *session);

/// Undoes a statement and ends it.
///
/// # Safety
/// `session` is open.
EsStatus es_rollback_statement(EsSession *session);

/// Sets a savepoint. It lives until the transaction ends, one before it is rolled back to, or it is released, by itself.
///
/// # Safety
/// `session` is open.
EsStatus es_savepoint(EsSession *session,
                      uint64_t *savepoint);

/// Rolls back to a savepoint, which stays; later ones go.
///
/// # Safety
/// `session` is open.
EsStatus es_rollback_to(EsSession *session, uint64_t savepoint);

/// Forgets this savepoint alone: a front end lets the old one go when it sets a name again, and later ones live on.
/// Those that it forgets without a word go with the transaction.
///
/// # Safety
/// `session` is open.
void es_release_savepoint(EsSession *session, uint64_t savepoint);

/// First phase of a commit: durable, not yet visible. `in_turn`: its end waits for others or for people, so that nobody puts
/// a sync off for it.
///
/// # Safety
/// `session` is open.
EsStatus es_prepare(EsSession *session,
                    const EsXid *xid,
                    bool in_turn);

/// Gives the prepared transaction its place in the order, and in every view opened from then on; neither waits nor fails, except by
/// a bug. Calls come one at a time.
///
/// # Safety
/// `session` is open. Another thread may call while the session's own waits for it.
EsStatus es_commit_ordered(EsSession *session);

/// Commits: visible and, as far as is configured, durable on return.
///
/// # Safety
/// `session` is open.
EsStatus es_commit(EsSession *session);

/// As `es_commit` without its wait: durable, as far as is configured, once `es_await_log` of any session returned for
/// `*end`, which is written only if it succeeds.
///
/// # Safety
/// `session` is open.
EsStatus es_commit_unsynced(EsSession *session, uint64_t *end);

/// Waits for the log.
///
/// # Safety
/// `session` is open.
EsStatus es_await_log(EsSession *session, uint64_t end);

/// Waits for the log, for all that was committed so far, and as far as the configuration asks for it: what was decided in
/// `es_commit_ordered` is durable then by itself.
///
/// # Safety
/// `session` is open.
EsStatus es_await_whole_log(EsSession *session);

/// Rolls back.
///
/// # Safety
/// `session` is open.
EsStatus es_rollback(EsSession *session);

/// Prepared transactions that no session owns. `restart` begins a new list; then each call gives the next ones, `*count`
/// of them: fewer than `capacity` at the end.
///
/// # Safety
/// `xids` is room for `capacity` of them.
EsStatus es_recover(const EsEngine *engine,
                    bool restart,
                    EsXid *xids,
                    uint32_t capacity,
                    uint32_t *count,
                    EsError *error);

/// Commits a prepared transaction that no session holds, durable on return. `*found` is written only if it succeeds;
/// false: there is none of that XID.
///
/// # Safety
/// `engine` is open.
EsStatus es_commit_xid(const EsEngine *engine, const EsXid *xid, bool *found, EsError *error);

/// Rolls back a prepared transaction that no session holds; otherwise as `es_commit_xid`.
///
/// # Safety
/// `engine` is open.
EsStatus es_rollback_xid(const EsEngine *engine, const EsXid *xid, bool *found, EsError *error);

/// Calls back once the log is durable past now, or cannot become so.
///
/// # Safety
/// `done` may be called with `cookie` from any thread, until it has been called.
void es_request_checkpoint(const EsEngine *engine, EsDoneFn done, void *cookie);

/// The session's stage: belongs to the session and stays where it is as long as that.
///
/// # Safety
/// `session` is open. The stage is used between calls on the session only, as `EsStage` says.
EsStage *es_session_stage(const EsSession *session);

/// Takes the staged rows: needed before their table is closed.
///
/// # Safety
/// `session` is open.
EsStatus es_unstage(EsSession *session);

/// Inserts a row, and may open the session's stage. `DuplicateKey`: nothing was written, and `es_duplicate` tells of the row
/// that is there already; with `lock_duplicate` it is locked, and has the key as long as that.
///
/// # Safety
/// `image` is a row image of the table's layout; its blobs' pointers are valid for their lengths.
EsStatus es_insert(EsSession *session,
                   const EsTable *table,
                   const uint8_t *image,
                   bool lock_duplicate,
                   uint64_t *row_id);

/// Which row has the key that another one was refused for, if that is how the session's last call that failed ended: the
/// place of the index among the table's, and the row.
///
/// # Safety
/// `session` is open.
bool es_duplicate(const EsSession *session,
                  uint32_t *index,
                  uint64_t *row_id);

/// Gives a row a new version. `DuplicateKey` as for `es_insert`.
///
/// # Safety
/// As for `es_insert`.
EsStatus es_update(EsSession *session, const EsTable *table, uint64_t row_id, const uint8_t *image);

/// Deletes a row.
///
/// # Safety
/// `session` and `table` are open.
EsStatus es_delete(EsSession *session, const EsTable *table, uint64_t row_id);

/// Locks all rows that there are and counts them: those that `es_delete_all` is about to delete.
///
/// # Safety
/// `session` and `table` are open.
EsStatus es_lock_all(EsSession *session, const EsTable *table, uint64_t *rows);

/// Deletes all rows.
///
/// # Safety
/// `session` and `table` are open.
EsStatus es_delete_all(EsSession *session, const EsTable *table);

/// The number of rows that the session's view sees, at once where it is known.
///
/// # Safety
/// `session` and `table` are open.
EsStatus es_count_rows(EsSession *session, const EsTable *table, uint64_t *rows);

/// By how many rows the open transaction changes the table, fewer than none: has deleted. 0 if none is open.
///
/// # Safety
/// `session` and `table` are open.
int64_t es_own_rows(const EsSession *session, const EsTable *table);

/// Gives back the lock of a row that was read and is not wanted.
///
/// # Safety
/// `session` and `table` are open.
void es_unlock_row(EsSession *session, const EsTable *table, uint64_t row_id);

/// Begins a scan, for `es_cursor_next_batch`, of the rows behind one; 0: of all. `*cursor` is written only if it succeeds.
///
/// # Safety
/// `options->columns` are `columns_bytes` bytes or NULL; needed for the call only.
EsStatus es_scan_open(EsSession *session,
                      const EsTable *table,
                      uint64_t behind,
                      const EsScanOptions *options,
                      EsCursor **cursor);

/// A cursor for `es_cursor_fetch` alone. `*cursor` is written only if it succeeds.
///
/// # Safety
/// As for `es_scan_open`.
EsStatus es_fetch_open(EsSession *session, const EsTable *table, const EsScanOptions *options, EsCursor **cursor);

/// Frees a cursor, the rows that it gave and what it pins.
///
/// # Safety
/// `cursor` may be NULL; neither it nor its rows are used again.
void es_cursor_close(EsCursor *cursor);

/// The next rows. `*batch` is written only if it succeeds.
///
/// # Safety
/// `session` is the one that the cursor was opened with. What the cursor gave before is not used again.
EsStatus es_cursor_next_batch(EsCursor *cursor, EsSession *session, EsBatch *batch);

/// One row by id. `*image` belongs to the cursor and is valid until its next call, its blobs until one gives a row; NULL: no such row for this session.
///
/// # Safety
/// As for `es_cursor_next_batch`.
EsStatus es_cursor_fetch(EsCursor *cursor,
                         EsSession *session,
                         uint64_t row_id,
                         const uint8_t **image);

/// Was the last row read without the lock that another holds, in its last committed version?
///
/// # Safety
/// `cursor` is open.
bool es_cursor_was_semi_consistent(const EsCursor *cursor);

/// A cursor over the index at this place of the table's. `*cursor` is written only if it succeeds.
///
/// # Safety
/// As for `es_scan_open`.
EsStatus es_index_open(EsSession *session,
                       const EsTable *table,
                       uint32_t index,
                       const EsScanOptions *options,
                       EsIndexCursor **cursor);

/// Frees a cursor, the rows that it gave and what it pins.
///
/// # Safety
/// `cursor` may be NULL; neither it nor its rows are used again.
void es_index_close(EsIndexCursor *cursor);

/// The first rows of a range of keys, or with `backward` the last. A cursor that locks gives one at a time. With `choosing`
/// each batch, from here to the next seek, is one to choose from by `es_index_choose`: its images tell the columns that
/// stand wholly in the key, and its row ids the rows. `*batch` is written only if it succeeds.
///
/// # Safety
/// `session` is the one that the cursor was opened with. The images of the range's bounds lie as the table's do; in them only
/// the columns of the parts count, and blobs' pointers are valid for their lengths. What the cursor gave before is not used
/// again.
EsStatus es_index_seek(EsIndexCursor *cursor,
                       EsSession *session,
                       const EsKeyRange *keys,
                       bool backward,
                       bool choosing,
                       EsBatch *batch);

/// The next rows in the direction of the seek. `*batch` is written only if it succeeds.
///
/// # Safety
/// `session` is the one that the cursor was opened with. What the cursor gave before is not used again.
EsStatus es_index_next_batch(EsIndexCursor *cursor, EsSession *session, EsBatch *batch);

/// Of the batch that was given last the rows at `count` places, which rise, with all their columns; where these take much memory only
/// the first of them, and the next batch begins behind those. Rows are left out that the
/// session's own transaction has changed since. `*batch` is written only if it succeeds.
///
/// # Safety
/// As for `es_index_next_batch`; `places` are `count` numbers.
EsStatus es_index_choose(EsIndexCursor *cursor,
                         EsSession *session,
                         const uint32_t *places,
                         size_t count,
                         EsBatch *batch);

/// The rows behind a row, or with `backward` before it, whatever the range was that was sought. `taken`: how many rows the
/// caller took of the batch that was given last; it is the last of them, or if that is none, the row given before. Where
/// nothing was found it is the range that was sought; and who turns at an end meets the last row again. `anew`: the statement
/// of the session in which the cursor was opened is over, and the cursor goes on in this one.
///
/// # Safety
/// As for `es_index_next_batch`.
EsStatus es_index_turn(EsIndexCursor *cursor,
                       EsSession *session,
                       size_t taken,
                       bool backward,
                       bool anew,
                       EsBatch *batch);

/// Was the last row read without the lock that another holds, in its last committed version?
///
/// # Safety
/// `cursor` is open.
bool es_index_was_semi_consistent(const EsIndexCursor *cursor);

/// The last row once more, now with its lock; if it is not there any more, the next one.
///
/// # Safety
/// As for `es_index_next_batch`. The last row was read without the lock that another holds.
EsStatus es_index_read_again(EsIndexCursor *cursor, EsSession *session, EsBatch *batch);

/// About how many rows there are in a range of keys.
///
/// # Safety
/// The images of the range's bounds: as for `es_index_seek`.
EsStatus es_estimate_rows(EsSession *session,
                          const EsTable *table,
                          uint32_t index,
                          const EsKeyRange *keys,
                          uint64_t *rows);

/// About how many rows are alike in the first part of the index's key, in the first two, and so on, of `parts`, which is not
/// more than it has. False: nothing is known, and nothing was written; there may be no rows.
///
/// # Safety
/// `rows` is room for `parts` numbers.
bool es_rows_alike(const EsTable *table,
                   uint32_t index,
                   double *rows,
                   uint32_t parts);

/// The row whose columns of the index's parts, all of them, are like those of a row image: its columns, as `options` says
/// which, to another one; what belongs to other columns is left as it is. `*row_id` is 0 if there is none. `options` locks
/// nothing.
///
/// # Safety
/// `session` is open and `table` of its engine. `key` and `image` lie as the table's images do; in `key` only the columns of
/// the index's parts count, and blobs' pointers are valid for their lengths. `options->columns` are `columns_bytes` bytes or
/// NULL. All are needed for the call only.
EsStatus es_row_by_key(EsSession *session,
                       const EsTable *table,
                       uint32_t index,
                       const uint8_t *key,
                       uint32_t parts,
                       const EsScanOptions *options,
                       uint8_t *image,
                       uint64_t *row_id);

/// Takes `values` AUTO_INCREMENT values that nobody else gets, or as many as are left, of those that are `offset` and a multiple
/// of `increment`, both from 1 on. `*first`: the first of them; `*end`: no value from here on was taken. Both are where the
/// counter stood if none is left up to `greatest`, which the column can have.
///
/// # Safety
/// `session` and `table` are open.
EsStatus es_take_auto_increment(EsSession *session,
                                const EsTable *table,
                                uint64_t offset,
                                uint64_t increment,
                                uint64_t values,
                                uint64_t greatest,
                                Unchecked<EsCounting> counting,
                                uint64_t *first,
                                uint64_t *end);

/// The statement gets no more values: it does not count alone any more. Those from `unused` to before `end`, where its last ones
/// ended, it has not used: they are free again, unless somebody took others since.
///
/// # Safety
/// `session` and `table` are open.
EsStatus es_end_auto_increment(EsSession *session,
                               const EsTable *table,
                               uint64_t unused,
                               uint64_t end);

/// A row has this value by itself: those that are given out from now on are greater.
///
/// # Safety
/// `session` and `table` are open.
EsStatus es_auto_increment_used(EsSession *session, const EsTable *table, uint64_t value);

/// AUTO_INCREMENT values below this one may have been given out.
///
/// # Safety
/// `table` is open.
uint64_t es_next_auto_increment(const EsTable *table);

/// Values below `counts_from` are not given out any more: durable on return. `error` says what went wrong.
///
/// # Safety
/// `table` is open.
EsStatus es_count_from(const EsTable *table, uint64_t counts_from, EsError *error);

/// How many counters there are.
uint32_t es_counter_count();

/// A counter's name: snake_case, NUL-terminated, static; NULL if there is no such counter.
const char *es_counter_name(uint32_t index);

/// A counter's total.
uint64_t es_counter_global(uint32_t index);

/// A session's share of it.
///
/// # Safety
/// `session` is open.
uint64_t es_counter_session(const EsSession *session, uint32_t index);

/// What a session has done by now.
///
/// # Safety
/// `session` is open.
void es_session_work(const EsSession *session, EsWork *work);

/// How many gauges there are: figures that are no counters, as memory by account, log positions, recovery.
uint32_t es_gauge_count();

/// A gauge's name, as a counter's.
const char *es_gauge_name(uint32_t index);

/// The first `capacity` gauges' values, taken together.
///
/// # Safety
/// `values` is room for `capacity` of them.
void es_gauges(const EsEngine *engine, uint64_t *values, uint32_t capacity);

/// The engine's state as text for people, with tables called as `table_for_people` does; `write` may be called several times.
///
/// # Safety
/// `write` is called with `context` in this thread.
void es_status_text(const EsEngine *engine,
                    EsTableForPeopleFn table_for_people,
                    EsWriteFn write,
                    void *context);

/// Calls `site` with the pages that tell of locks as plockstat does, then with every wait event.
///
/// # Safety
/// `site` is called with `context` in this thread.
void es_lock_report(EsSiteFn site, void *context);

/// Calls `metric` with every numeric status variable.
///
/// # Safety
/// `metric` is called with `context` in this thread.
void es_metrics(const EsEngine *engine, EsMetricFn metric, void *context);

/// Calls `each` with every open transaction.
///
/// # Safety
/// `each` is called with `context` in this thread.
void es_transactions(const EsEngine *engine, EsTransactionFn each, void *context);

/// Calls `each` with every wait for a lock. Without `local`, which may be NULL, timestamps in keys are told in UTC.
///
/// # Safety
/// `each` and `local` are called with `context` in this thread.
void es_lock_waits(const EsEngine *engine, EsLockWaitFn each, EsLocalTimeFn local, void *context);

/// Calls `each` with every lock and every wait for one; those of a transaction that has many are told in few. Without
/// `local`, which may be NULL, timestamps in keys are told in UTC.
///
/// # Safety
/// `each` and `local` are called with `context` in this thread.
void es_locks(const EsEngine *engine, EsLockFn each, EsLocalTimeFn local, void *context);

/// Calls `each` with every file. Touches none of them, and waits for nobody who does.
///
/// # Safety
/// `each` is called with `context` in this thread.
void es_files(const EsEngine *engine, EsFileFn each, void *context);

/// Calls `each` with what the engine's accounts, sessions and tables have in memory.
///
/// # Safety
/// `each` is called with `context` in this thread.
void es_memory(const EsEngine *engine, EsMemoryFn each, void *context);

/// Calls `each` with every kind of wait of the process, then with those of each session that has waited so.
///
/// # Safety
/// `each` is called with `context` in this thread.
void es_waits(const EsEngine *engine, EsWaitFn each, void *context);

/// Calls `each` with how the process's waits of each kind are spread; empty buckets are left out.
///
/// # Safety
/// `each` is called with `context` in this thread.
void es_wait_buckets(const EsEngine *engine, EsWaitBucketFn each, void *context);

/// Waits are counted from zero again, for `es_waits` and `es_wait_buckets`.
///
/// # Safety
/// `engine` is open.
void es_forget_waits(const EsEngine *engine);

/// Calls `each` with what was done to every table's rows, and by every index. Waits for nobody who waits for a disk.
///
/// # Safety
/// `each` is called with `context` in this thread.
void es_table_work(const EsEngine *engine, EsTableWorkFn each, void *context);

/// Work is counted from zero again, for `es_table_work`.
///
/// # Safety
/// `engine` is open.
void es_forget_table_work(const EsEngine *engine);

/// Calls `each` with the locks of every name, by their names.
///
/// # Safety
/// `each` is called with `context` in this thread.
void es_mutexes(EsMutexFn each, void *context);

/// Locks are counted from zero again, for `es_mutexes` and `es_lock_report`.
void es_forget_mutexes();

/// Calls `each` with the stacks of the locks of every name, by their names; looks up what the functions are called, which takes
/// long.
///
/// # Safety
/// `each` is called with `context` in this thread.
void es_mutex_stacks(EsMutexFrameFn each,
                     void *context);

/// Stacks that were sampled so far are gone.
void es_forget_mutex_stacks();

/// Has holding and releasing of the engine's own locks timed always, and stacks sampled of those who wait; or times one in 64
/// acquisitions, and no stacks. Those that there are stay until they are sampled anew.
void es_profile_locks(bool on);

/// The greatest size of a trace, and of all that are in their folder; from now on.
void es_trace_max_size(uint64_t bytes);

/// May traces lie in `folder`, as `esker_trace_dir` has it? Not where the server or Esker looks for its own.
///
/// # Safety
/// Texts of C; `home` is the server's data folder, `own` Esker's.
EsStatus es_trace_folder(const char *folder, const char *home, const char *own, EsError *error);

/// Begins a session's trace in a file of its own. `*trace` is written only if it succeeds. A failure without words has been told
/// before; so it is with [`es_trace_leave`] and [`es_trace_end`].
///
/// # Safety
/// `file` and its texts are there for the call; an engine is open.
EsStatus es_trace_open(const EsTraceFile *file,
                       EsTrace **trace,
                       EsError *error);

/// Ends a trace, and a statement of it that has not ended.
///
/// # Safety
/// `trace` may be NULL; it is not used again.
void es_trace_close(EsTrace *trace);

/// A statement begins in this thread. Its texts are UTF-8, or become so; passwords in it are not written.
///
/// # Safety
/// `session` and `trace` are open; none of the trace's statements is under way.
void es_trace_begin(EsTrace *trace,
                    const EsSession *session,
                    uint64_t query,
                    const uint8_t *db,
                    size_t db_bytes,
                    const uint8_t *text,
                    size_t text_bytes);

/// What a statement left in this thread that the server continued in another one is gone, before it notes what others do.
void es_trace_left_behind();

/// Nanoseconds since the trace began.
///
/// # Safety
/// `trace` is open.
uint64_t es_trace_now(const EsTrace *trace);

/// The traced statement's thread enters the engine; never twice.
void es_trace_enter();

/// It has left the engine. A failure is told once: that the trace has ended, and why.
///
/// # Safety
/// `engine` and `trace` are open.
EsStatus es_trace_leave(const EsEngine *engine, EsTrace *trace, EsError *error);

/// The statement's transaction is prepared, and others work on it.
void es_trace_binlog();

/// Its own thread goes on; nothing if none is prepared.
void es_trace_binlog_end();

/// Calls of the statement, in their order.
///
/// # Safety
/// `trace` is open.
void es_trace_call(EsTrace *trace, const EsTraceCall *call);

/// A row of the server's plan; none: it has none to show.
///
/// # Safety
/// `trace` is open.
void es_trace_plan(EsTrace *trace, const uint8_t *text, size_t bytes);

/// The statement that began in this thread ends. A failure is told once: that the trace has ended, and why.
///
/// # Safety
/// `engine`, `session` and `trace` are open.
EsStatus es_trace_end(const EsEngine *engine,
                      EsTrace *trace,
                      const EsSession *session,
                      const EsTraceEnd *end,
                      EsError *error);

}  // extern "C"

/* Both sides have the same structs. */
static_assert(sizeof(EsError) == 1024 &&
              offsetof(EsError, text) == 0,
              "EsError lies otherwise than in Rust");
static_assert(sizeof(EsOptions) == 120 &&
              offsetof(EsOptions, data_dir) == 0 &&
              offsetof(EsOptions, memory_limit_bytes) == 8 &&
              offsetof(EsOptions, bulk_buffer_bytes) == 16 &&
              offsetof(EsOptions, bulk_threshold_bytes) == 24 &&
              offsetof(EsOptions, wal_segment_bytes) == 32 &&
              offsetof(EsOptions, recovery_target_bytes) == 40 &&
              offsetof(EsOptions, recovery_target_seconds) == 48 &&
              offsetof(EsOptions, flush_mode) == 52 &&
              offsetof(EsOptions, sync_method) == 56 &&
              offsetof(EsOptions, log) == 64 &&
              offsetof(EsOptions, log_context) == 72 &&
              offsetof(EsOptions, weights) == 80 &&
              offsetof(EsOptions, weights_version) == 88 &&
              offsetof(EsOptions, collation_text) == 96 &&
              offsetof(EsOptions, weights_context) == 104 &&
              offsetof(EsOptions, waiting) == 112,
              "EsOptions lies otherwise than in Rust");
static_assert(sizeof(EsColumn) == 28 &&
              offsetof(EsColumn, kind) == 0 &&
              offsetof(EsColumn, offset) == 4 &&
              offsetof(EsColumn, width) == 8 &&
              offsetof(EsColumn, null_byte) == 12 &&
              offsetof(EsColumn, null_mask) == 16 &&
              offsetof(EsColumn, len_bytes) == 17 &&
              offsetof(EsColumn, pad) == 18 &&
              offsetof(EsColumn, type_number) == 20 &&
              offsetof(EsColumn, earlier_type_number) == 24,
              "EsColumn lies otherwise than in Rust");
static_assert(sizeof(EsLayout) == 24 &&
              offsetof(EsLayout, image_bytes) == 0 &&
              offsetof(EsLayout, head_bytes) == 4 &&
              offsetof(EsLayout, column_count) == 8 &&
              offsetof(EsLayout, columns) == 16,
              "EsLayout lies otherwise than in Rust");
static_assert(sizeof(EsKeyPart) == 20 &&
              offsetof(EsKeyPart, column) == 0 &&
              offsetof(EsKeyPart, prefix_bytes) == 4 &&
              offsetof(EsKeyPart, encoding) == 8 &&
              offsetof(EsKeyPart, collation) == 12 &&
              offsetof(EsKeyPart, descending) == 16,
              "EsKeyPart lies otherwise than in Rust");
static_assert(sizeof(EsIndex) == 24 &&
              offsetof(EsIndex, name) == 0 &&
              offsetof(EsIndex, parts) == 8 &&
              offsetof(EsIndex, part_count) == 16 &&
              offsetof(EsIndex, unique) == 20,
              "EsIndex lies otherwise than in Rust");
static_assert(sizeof(EsIndexPlan) == 32 &&
              offsetof(EsIndexPlan, index) == 0 &&
              offsetof(EsIndexPlan, place) == 24,
              "EsIndexPlan lies otherwise than in Rust");
static_assert(sizeof(EsTableDef) == 56 &&
              offsetof(EsTableDef, layout) == 0 &&
              offsetof(EsTableDef, row_format) == 24 &&
              offsetof(EsTableDef, compression) == 28 &&
              offsetof(EsTableDef, indexes) == 32 &&
              offsetof(EsTableDef, index_count) == 40 &&
              offsetof(EsTableDef, temporary) == 44 &&
              offsetof(EsTableDef, auto_increment) == 48,
              "EsTableDef lies otherwise than in Rust");
static_assert(sizeof(EsShown) == 24 &&
              offsetof(EsShown, shown_as) == 0 &&
              offsetof(EsShown, name_count) == 4 &&
              offsetof(EsShown, names) == 8 &&
              offsetof(EsShown, digits) == 16 &&
              offsetof(EsShown, decimals) == 17 &&
              offsetof(EsShown, filled) == 18,
              "EsShown lies otherwise than in Rust");
static_assert(sizeof(EsTableStats) == 64 &&
              offsetof(EsTableStats, rows) == 0 &&
              offsetof(EsTableStats, data_bytes) == 8 &&
              offsetof(EsTableStats, row_bytes) == 16 &&
              offsetof(EsTableStats, free_bytes) == 24 &&
              offsetof(EsTableStats, runs) == 32 &&
              offsetof(EsTableStats, create_time) == 40 &&
              offsetof(EsTableStats, update_time) == 48 &&
              offsetof(EsTableStats, row_format) == 56 &&
              offsetof(EsTableStats, compression) == 60,
              "EsTableStats lies otherwise than in Rust");
static_assert(sizeof(EsMetric) == 40 &&
              offsetof(EsMetric, name) == 0 &&
              offsetof(EsMetric, unit) == 8 &&
              offsetof(EsMetric, meaning) == 16 &&
              offsetof(EsMetric, value) == 24 &&
              offsetof(EsMetric, per_session) == 32,
              "EsMetric lies otherwise than in Rust");
static_assert(sizeof(EsWork) == 48 &&
              offsetof(EsWork, blocks) == 0 &&
              offsetof(EsWork, reads) == 8 &&
              offsetof(EsWork, read_ns) == 16 &&
              offsetof(EsWork, blocks_ahead) == 24 &&
              offsetof(EsWork, buffers) == 32 &&
              offsetof(EsWork, versions_passed) == 40,
              "EsWork lies otherwise than in Rust");
static_assert(sizeof(EsWaitHooks) == 56 &&
              offsetof(EsWaitHooks, context) == 0 &&
              offsetof(EsWaitHooks, before) == 8 &&
              offsetof(EsWaitHooks, longest) == 16 &&
              offsetof(EsWaitHooks, after) == 24 &&
              offsetof(EsWaitHooks, waits_for) == 32 &&
              offsetof(EsWaitHooks, goes_before) == 40 &&
              offsetof(EsWaitHooks, statement) == 48,
              "EsWaitHooks lies otherwise than in Rust");
static_assert(sizeof(EsStage) == 32 &&
              offsetof(EsStage, table) == 0 &&
              offsetof(EsStage, next) == 8 &&
              offsetof(EsStage, end) == 16 &&
              offsetof(EsStage, row_id) == 24,
              "EsStage lies otherwise than in Rust");
static_assert(sizeof(EsXid) == 144 &&
              offsetof(EsXid, format) == 0 &&
              offsetof(EsXid, gtrid_bytes) == 8 &&
              offsetof(EsXid, bqual_bytes) == 12 &&
              offsetof(EsXid, data) == 16,
              "EsXid lies otherwise than in Rust");
static_assert(sizeof(EsTransaction) == 232 &&
              offsetof(EsTransaction, id) == 0 &&
              offsetof(EsTransaction, connection) == 8 &&
              offsetof(EsTransaction, started_unix_us) == 16 &&
              offsetof(EsTransaction, age_us) == 24 &&
              offsetof(EsTransaction, rows_changed) == 32 &&
              offsetof(EsTransaction, rows_locked) == 40 &&
              offsetof(EsTransaction, redo_bytes) == 48 &&
              offsetof(EsTransaction, view_seq) == 56 &&
              offsetof(EsTransaction, state) == 64 &&
              offsetof(EsTransaction, isolation) == 72 &&
              offsetof(EsTransaction, has_xid) == 80 &&
              offsetof(EsTransaction, xid) == 88,
              "EsTransaction lies otherwise than in Rust");
static_assert(sizeof(EsLockWait) == 64 &&
              offsetof(EsLockWait, waiting_connection) == 0 &&
              offsetof(EsLockWait, blocking_connection) == 8 &&
              offsetof(EsLockWait, waited_us) == 16 &&
              offsetof(EsLockWait, blocker_idle_us) == 24 &&
              offsetof(EsLockWait, root_blocker) == 32 &&
              offsetof(EsLockWait, kind) == 40 &&
              offsetof(EsLockWait, table) == 48 &&
              offsetof(EsLockWait, key_text) == 56,
              "EsLockWait lies otherwise than in Rust");
static_assert(sizeof(EsLock) == 64 &&
              offsetof(EsLock, txn) == 0 &&
              offsetof(EsLock, connection) == 8 &&
              offsetof(EsLock, kind) == 16 &&
              offsetof(EsLock, mode) == 24 &&
              offsetof(EsLock, table) == 32 &&
              offsetof(EsLock, key_name) == 40 &&
              offsetof(EsLock, key_text) == 48 &&
              offsetof(EsLock, waiting) == 56,
              "EsLock lies otherwise than in Rust");
static_assert(sizeof(EsTraceFile) == 72 &&
              offsetof(EsTraceFile, folder) == 0 &&
              offsetof(EsTraceFile, name) == 8 &&
              offsetof(EsTraceFile, user) == 16 &&
              offsetof(EsTraceFile, server) == 24 &&
              offsetof(EsTraceFile, began) == 32 &&
              offsetof(EsTraceFile, level) == 40 &&
              offsetof(EsTraceFile, connection) == 48 &&
              offsetof(EsTraceFile, process) == 56 &&
              offsetof(EsTraceFile, table_for_people) == 64,
              "EsTraceFile lies otherwise than in Rust");
static_assert(sizeof(EsTraceCall) == 48 &&
              offsetof(EsTraceCall, at_ns) == 0 &&
              offsetof(EsTraceCall, count) == 8 &&
              offsetof(EsTraceCall, table) == 16 &&
              offsetof(EsTraceCall, function) == 24 &&
              offsetof(EsTraceCall, is_bulk_end) == 32 &&
              offsetof(EsTraceCall, full) == 40,
              "EsTraceCall lies otherwise than in Rust");
static_assert(sizeof(EsTraceEnd) == 72 &&
              offsetof(EsTraceEnd, rows) == 0 &&
              offsetof(EsTraceEnd, changed) == 8 &&
              offsetof(EsTraceEnd, first_row_ns) == 16 &&
              offsetof(EsTraceEnd, error) == 24 &&
              offsetof(EsTraceEnd, merge_passes) == 32 &&
              offsetof(EsTraceEnd, disk_tables) == 40 &&
              offsetof(EsTraceEnd, disk_bytes) == 48 &&
              offsetof(EsTraceEnd, calls_dropped) == 56 &&
              offsetof(EsTraceEnd, killed) == 64,
              "EsTraceEnd lies otherwise than in Rust");
static_assert(sizeof(EsFile) == 104 &&
              offsetof(EsFile, path) == 0 &&
              offsetof(EsFile, kind) == 8 &&
              offsetof(EsFile, table) == 16 &&
              offsetof(EsFile, index) == 24 &&
              offsetof(EsFile, size_bytes) == 32 &&
              offsetof(EsFile, reads) == 40 &&
              offsetof(EsFile, read_bytes) == 48 &&
              offsetof(EsFile, read_ns) == 56 &&
              offsetof(EsFile, writes) == 64 &&
              offsetof(EsFile, write_bytes) == 72 &&
              offsetof(EsFile, write_ns) == 80 &&
              offsetof(EsFile, syncs) == 88 &&
              offsetof(EsFile, sync_ns) == 96,
              "EsFile lies otherwise than in Rust");
static_assert(sizeof(EsMemory) == 72 &&
              offsetof(EsMemory, owner) == 0 &&
              offsetof(EsMemory, kind) == 8 &&
              offsetof(EsMemory, table) == 16 &&
              offsetof(EsMemory, of_session) == 24 &&
              offsetof(EsMemory, connection) == 32 &&
              offsetof(EsMemory, bytes) == 40 &&
              offsetof(EsMemory, peak_bytes) == 48 &&
              offsetof(EsMemory, has_peak) == 56 &&
              offsetof(EsMemory, objects) == 64,
              "EsMemory lies otherwise than in Rust");
static_assert(sizeof(EsWait) == 72 &&
              offsetof(EsWait, kind) == 0 &&
              offsetof(EsWait, name) == 8 &&
              offsetof(EsWait, of_session) == 16 &&
              offsetof(EsWait, connection) == 24 &&
              offsetof(EsWait, count) == 32 &&
              offsetof(EsWait, sum_ns) == 40 &&
              offsetof(EsWait, max_ns) == 48 &&
              offsetof(EsWait, p50_ns) == 56 &&
              offsetof(EsWait, p99_ns) == 64,
              "EsWait lies otherwise than in Rust");
static_assert(sizeof(EsWaitBucket) == 32 &&
              offsetof(EsWaitBucket, name) == 0 &&
              offsetof(EsWaitBucket, from_ns) == 8 &&
              offsetof(EsWaitBucket, to_ns) == 16 &&
              offsetof(EsWaitBucket, count) == 24,
              "EsWaitBucket lies otherwise than in Rust");
static_assert(sizeof(EsMutex) == 104 &&
              offsetof(EsMutex, name) == 0 &&
              offsetof(EsMutex, rank) == 8 &&
              offsetof(EsMutex, acquired) == 16 &&
              offsetof(EsMutex, contended) == 24 &&
              offsetof(EsMutex, spins) == 32 &&
              offsetof(EsMutex, wait_ns) == 40 &&
              offsetof(EsMutex, wait_max_ns) == 48 &&
              offsetof(EsMutex, hold_ns) == 56 &&
              offsetof(EsMutex, hold_max_ns) == 64 &&
              offsetof(EsMutex, unlock_ns) == 72 &&
              offsetof(EsMutex, rewake_ns) == 80 &&
              offsetof(EsMutex, has_rewake) == 88 &&
              offsetof(EsMutex, sampled_one_in) == 96,
              "EsMutex lies otherwise than in Rust");
static_assert(sizeof(EsMutexFrame) == 56 &&
              offsetof(EsMutexFrame, name) == 0 &&
              offsetof(EsMutexFrame, role) == 8 &&
              offsetof(EsMutexFrame, stack_id) == 16 &&
              offsetof(EsMutexFrame, samples) == 24 &&
              offsetof(EsMutexFrame, sum_ns) == 32 &&
              offsetof(EsMutexFrame, frame_no) == 40 &&
              offsetof(EsMutexFrame, frame) == 48,
              "EsMutexFrame lies otherwise than in Rust");
static_assert(sizeof(EsTableWork) == 96 &&
              offsetof(EsTableWork, table) == 0 &&
              offsetof(EsTableWork, index) == 8 &&
              offsetof(EsTableWork, rows_read) == 16 &&
              offsetof(EsTableWork, rows_changed) == 24 &&
              offsetof(EsTableWork, blocks_cached) == 32 &&
              offsetof(EsTableWork, blocks_read) == 40 &&
              offsetof(EsTableWork, has_source) == 48 &&
              offsetof(EsTableWork, blocks_pagecache) == 56 &&
              offsetof(EsTableWork, blocks_device) == 64 &&
              offsetof(EsTableWork, blocks_read_by_changes) == 72 &&
              offsetof(EsTableWork, lock_waits) == 80 &&
              offsetof(EsTableWork, lock_wait_us) == 88,
              "EsTableWork lies otherwise than in Rust");
static_assert(sizeof(EsScanOptions) == 24 &&
              offsetof(EsScanOptions, columns) == 0 &&
              offsetof(EsScanOptions, columns_bytes) == 8 &&
              offsetof(EsScanOptions, lock) == 16 &&
              offsetof(EsScanOptions, skip_locked) == 20 &&
              offsetof(EsScanOptions, semi_consistent) == 21 &&
              offsetof(EsScanOptions, passes_gone) == 22,
              "EsScanOptions lies otherwise than in Rust");
static_assert(sizeof(EsKeyBound) == 16 &&
              offsetof(EsKeyBound, image) == 0 &&
              offsetof(EsKeyBound, parts) == 8 &&
              offsetof(EsKeyBound, behind) == 12,
              "EsKeyBound lies otherwise than in Rust");
static_assert(sizeof(EsKeyRange) == 32 &&
              offsetof(EsKeyRange, from) == 0 &&
              offsetof(EsKeyRange, to) == 16,
              "EsKeyRange lies otherwise than in Rust");
static_assert(sizeof(EsBatch) == 32 &&
              offsetof(EsBatch, images) == 0 &&
              offsetof(EsBatch, stride) == 8 &&
              offsetof(EsBatch, row_ids) == 16 &&
              offsetof(EsBatch, count) == 24,
              "EsBatch lies otherwise than in Rust");
