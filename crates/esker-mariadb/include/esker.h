/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * esker.h: the C face of the Esker storage engine, the only thing a front end in C or C++ needs to know of it.
 *
 * Rules
 *  - Every function that can fail returns an es_status: ES_OK or one of ES_E_*. No exception and no panic crosses.
 *  - Handles are opaque, made by *_open and freed by the matching *_close, which accept NULL.
 *  - An es_session belongs to one thread at a time. es_engine, es_table and es_killer may be used by any thread.
 *  - Functions that take a session leave the words of their last failure in it (es_last_error); functions that take
 *    none fill the es_error they are given (may be NULL).
 *  - Strings are UTF-8 or at least bytes without NUL; lengths are in bytes and exclude the NUL.
 */
#ifndef ESKER_H
#define ESKER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct es_engine es_engine;
typedef struct es_session es_session;
typedef struct es_table es_table;
typedef struct es_cursor es_cursor;
typedef struct es_killer es_killer;

typedef int32_t es_status;
enum {
  ES_OK = 0,
  ES_E_IO = 1,              /* a file operation failed */
  ES_E_DISK_FULL = 2,
  ES_E_DAMAGE = 3,          /* bytes on disk are not what was written */
  ES_E_NEWER_FORMAT = 4,
  ES_E_LOCKED = 5,          /* another process uses the data folder */
  ES_E_NO_SUCH_TABLE = 6,
  ES_E_TABLE_EXISTS = 7,
  ES_E_TABLE_CHANGED = 8,   /* the read view is older than the table's rebuild */
  ES_E_LOCK_TIMEOUT = 9,
  ES_E_WOULD_BLOCK = 10,    /* NOWAIT and the row is locked */
  ES_E_DEADLOCK = 11,
  ES_E_INTERRUPTED = 12,    /* killed while waiting */
  ES_E_RECORD_CHANGED = 13, /* snapshot isolation: a newer version was committed */
  ES_E_ROW_NOT_FOUND = 14,
  ES_E_ROW_TOO_LONG = 15,
  ES_E_READ_ONLY = 16,
  ES_E_POISONED = 17,       /* an earlier write or sync failed: restart recovers */
  ES_E_OUT_OF_MEMORY = 18,
  ES_E_UNSUPPORTED = 19,
  ES_E_INVALID = 20,        /* an argument that makes no sense */
  ES_E_LAYOUT = 21,         /* the caller's column layout is not the table's */
  ES_E_PANIC = 22,          /* a bug in Esker; the engine is poisoned */
  ES_E_OTHER = 23
};

typedef struct es_error {
  es_status code;
  char text[1020];          /* NUL-terminated, cut if longer */
} es_error;

/* ---- engine ---------------------------------------------------------------------------------------------------- */

enum { ES_LOG_ERROR = 0, ES_LOG_WARNING = 1, ES_LOG_INFO = 2 };
/* Called from any thread, also before es_engine_open returns. */
typedef void (*es_log_fn)(void *context, int32_t level, const char *text, size_t length);

enum { ES_FLUSH_LAZY = 0, ES_FLUSH_EVERY_COMMIT = 1, ES_FLUSH_WRITE_ONLY = 2 };

typedef struct es_options {
  const char *data_dir;
  uint64_t memory_limit_bytes;
  uint64_t bulk_buffer_bytes;
  uint64_t bulk_threshold_bytes;
  uint64_t wal_segment_bytes;
  uint64_t recovery_target_bytes; /* 0: recovery_target_seconds decides */
  uint32_t recovery_target_seconds;
  int32_t flush_mode;       /* ES_FLUSH_* */
  es_log_fn log;
  void *log_context;
} es_options;

/* The options that the engine itself would choose; fills everything but data_dir and log. */
void es_default_options(es_options *options);
/* Opens or creates the data folder and recovers. */
es_status es_engine_open(const es_options *options, es_engine **engine, es_error *error);
/*
 * Clean shutdown. All sessions, tables and cursors must be closed. Frees the handle also when it fails. ES_E_POISONED:
 * writing had stopped; what was committed last may have to be recovered with the help of who decided it.
 */
es_status es_engine_close(es_engine *engine, es_error *error);

void es_set_memory_limit(es_engine *engine, uint64_t bytes);
void es_set_bulk_buffer(es_engine *engine, uint64_t bytes);
void es_set_flush_mode(es_engine *engine, int32_t mode);

/* Returns when the log is durable up to the moment of the call, or cannot become so. */
es_status es_flush_log(es_engine *engine, es_error *error);

/* ---- tables ---------------------------------------------------------------------------------------------------- */

enum { ES_COLUMN_FIXED = 0, ES_COLUMN_PADDED = 1, ES_COLUMN_VAR = 2, ES_COLUMN_BLOB = 3 };

/* How one column lies in a row image. Var: length (little-endian) then bytes. Blob: length then an 8-byte pointer. */
typedef struct es_column {
  uint32_t kind;            /* ES_COLUMN_* */
  uint32_t offset;
  uint32_t width;           /* Fixed, Padded: bytes; Var: greatest number of bytes */
  uint32_t len_bytes;       /* Var, Blob */
  uint32_t pad;             /* Padded: the byte that fills up */
  uint32_t null_byte;       /* where the NULL bit lies; null_mask 0: NOT NULL */
  uint32_t null_mask;
} es_column;

typedef struct es_layout {
  uint32_t image_bytes;
  uint32_t head_bytes;      /* always stored: NULL bits and what else lies there */
  uint32_t column_count;
  const es_column *columns;
} es_layout;

enum { ES_ROW_DYNAMIC = 0, ES_ROW_FIXED = 1 };
enum { ES_COMPRESSION_NONE = 0, ES_COMPRESSION_LZ4 = 1, ES_COMPRESSION_ZSTD = 2 };

typedef struct es_table_def {
  es_layout layout;
  int32_t row_format;       /* ES_ROW_* */
  int32_t compression;      /* ES_COMPRESSION_* */
  int32_t temporary;
} es_table_def;

/* Each is atomic and durable on return. */
es_status es_create_table(es_engine *engine, const char *name, const es_table_def *def, es_error *error);
es_status es_drop_table(es_engine *engine, const char *name, es_error *error);
es_status es_rename_table(es_engine *engine, const char *from, const char *to, es_error *error);
es_status es_truncate_table(es_engine *engine, const char *name, es_error *error);

/* ES_E_LAYOUT when the table was created with another layout. */
es_status es_table_open(es_engine *engine, const char *name, const es_layout *layout, es_table **table,
                        es_error *error);
void es_table_close(es_table *table);

typedef struct es_table_stats {
  uint64_t rows;            /* estimate */
  uint64_t data_bytes;
  uint64_t free_bytes;      /* held by versions that nobody can see any more */
  uint64_t runs;
  uint64_t create_time;     /* seconds since 1970, 0: unknown */
  uint64_t update_time;
  int32_t row_format;
  int32_t compression;
} es_table_stats;
void es_table_get_stats(es_table *table, es_table_stats *stats);

/* Returns nonzero to stop. */
typedef int32_t (*es_progress_fn)(void *context, uint64_t done, uint64_t total);
/* All blocks; those written since a check that found nothing wrong (or the start); none, only what is known already. */
enum { ES_CHECK_ALL = 0, ES_CHECK_UNCHECKED = 1, ES_CHECK_QUICK = 2 };
/* Reads and verifies blocks. ES_E_DAMAGE: the first damage found, in `error`; `damaged` counts all, `blocks` those read. */
es_status es_table_check(es_table *table, int32_t scope, es_progress_fn progress, void *context, uint64_t *blocks,
                         uint64_t *damaged, es_error *error);
/* ES_E_INTERRUPTED if `progress` stopped it: what was done by then stays. */
es_status es_table_optimize(es_table *table, es_progress_fn progress, void *context, es_error *error);

/* ---- sessions and transactions --------------------------------------------------------------------------------- */

/*
 * Around waits for row locks, in the session's thread. `waited_us` of the wait that ended. `waits_for`: the transaction
 * that is waited for is that of the session opened with the context `other` (NULL: unknown), whenever it changes;
 * only after es_report_waits. It must not call back into the engine, except for es_kill.
 */
typedef struct es_wait_hooks {
  void *context;
  void (*before)(void *context);
  void (*after)(void *context, uint64_t waited_us);
  void (*waits_for)(void *context, void *other);
} es_wait_hooks;

es_status es_session_open(es_engine *engine, const es_wait_hooks *hooks, es_session **session, es_error *error);
/* Rolls back what is open; a prepared transaction stays prepared, for es_commit_xid or es_rollback_xid. */
void es_session_close(es_session *session);
/* Copies the words of the session's last failure, NUL-terminated; returns its ES_E_* code. */
es_status es_last_error(const es_session *session, char *text, size_t capacity);

/* Whose session it is, for es_transactions and es_lock_waits. */
void es_set_connection(es_session *session, uint64_t connection);

es_killer *es_killer_open(const es_session *session);
void es_killer_close(es_killer *killer);
/* Wakes the session from a wait for a row lock, now or its next one in this statement. From any thread. */
void es_kill(const es_killer *killer);

enum { ES_READ_COMMITTED = 0, ES_REPEATABLE_READ = 1 };

/* Are waits of this session's transactions reported, and others' waits for them? From the next es_begin on. */
void es_report_waits(es_session *session, int32_t on);
/* Begins a transaction unless one is open. */
es_status es_begin(es_session *session, int32_t isolation, int32_t snapshot_isolation);
int32_t es_in_transaction(const es_session *session);
/* Has the open transaction locked or written rows, those rolled back to a savepoint included? */
int32_t es_holds_locks(const es_session *session);
es_status es_take_view(es_session *session);
/* From here on: how long requests for row locks wait; 0: not at all. */
void es_set_lock_wait(es_session *session, uint64_t timeout_us);
/* Also forgets an es_kill that nothing waited for. */
es_status es_begin_statement(es_session *session);
es_status es_end_statement(es_session *session);
es_status es_rollback_statement(es_session *session);
/* Savepoints live until the transaction ends, one before them is rolled back to, or they are released, each by itself. */
es_status es_savepoint(es_session *session, uint64_t *savepoint);
es_status es_rollback_to(es_session *session, uint64_t savepoint);
es_status es_release_savepoint(es_session *session, uint64_t savepoint);

/* An XA transaction id, as the server has it. */
typedef struct es_xid {
  int64_t format;
  uint32_t gtrid_bytes;
  uint32_t bqual_bytes;
  uint8_t data[128];
} es_xid;

es_status es_prepare(es_session *session, const es_xid *xid);
/* Makes the transaction visible; neither waits nor fails, except by a bug. Any thread, calls come one at a time. */
es_status es_commit_ordered(es_session *session);
es_status es_commit(es_session *session);
es_status es_rollback(es_session *session);
/* As es_commit without its wait: durable, as far as is configured, once es_await_log of any session returned for `end`. */
es_status es_commit_unsynced(es_session *session, uint64_t *end);
es_status es_await_log(es_session *session, uint64_t end);

/* Prepared transactions that no session owns. `restart` begins a new list; then each call gives the next ones. */
es_status es_recover(es_engine *engine, int32_t restart, es_xid *xids, uint32_t capacity, uint32_t *count,
                     es_error *error);
/* `found` 0: unknown. Durable on return. */
es_status es_commit_xid(es_engine *engine, const es_xid *xid, int32_t *found, es_error *error);
es_status es_rollback_xid(es_engine *engine, const es_xid *xid, int32_t *found, es_error *error);

/*
 * Calls `done` once, from any thread: with ES_OK when all that was committed before the call is durable; with an error
 * and its words if writing has stopped, and it will not become durable before the engine is opened again.
 */
typedef void (*es_done_fn)(void *cookie, es_status status, const char *why);
void es_request_checkpoint(es_engine *engine, es_done_fn done, void *cookie);

/* ---- rows ------------------------------------------------------------------------------------------------------ */

es_status es_insert(es_session *session, es_table *table, const uint8_t *image, uint64_t *row_id);
/*
 * When es_insert has inserted a row in bulk, there may be room for more rows of that table, to be filled without a call:
 * while `table` is the row's table and `next` is not `end`, copy its image to `next`, take `row_id` as its id, move `next`
 * by the image size and `row_id` by one. The next call on the session takes what was written; if that fails, so does the
 * call. Images must not point anywhere.
 */
typedef struct es_stage {
  const es_table *table;
  uint8_t *next;
  uint8_t *end;
  uint64_t row_id;
} es_stage;

/* Stays where it is as long as the session. */
es_stage *es_session_stage(const es_session *session);
/* Takes what was written: needed before the table is closed. */
es_status es_unstage(es_session *session);
es_status es_update(es_session *session, es_table *table, uint64_t row_id, const uint8_t *image);
es_status es_delete(es_session *session, es_table *table, uint64_t row_id);
/* Locks all rows that there are and counts them: those that es_delete_all is about to delete. */
es_status es_lock_all(es_session *session, es_table *table, uint64_t *rows);
es_status es_delete_all(es_session *session, es_table *table);
/* Rows that the session's view sees. */
es_status es_count_rows(es_session *session, es_table *table, uint64_t *rows);
/* Gives back the lock of a row that was read and is not wanted. */
void es_unlock_row(es_session *session, es_table *table, uint64_t row_id);

enum { ES_LOCK_NONE = 0, ES_LOCK_SHARED = 1, ES_LOCK_EXCLUSIVE = 2 };

typedef struct es_scan_options {
  const uint8_t *columns;   /* bitmap, least significant bit first, of the layout's columns to fill in; NULL: all */
  int32_t lock;             /* ES_LOCK_* */
  int32_t skip_locked;
  int32_t semi_consistent;  /* give a locked row's last committed version rather than wait */
} es_scan_options;

/* Rows decoded ahead: `count` images, `stride` bytes apart, and their ids. Valid until the cursor's next call. */
typedef struct es_batch {
  const uint8_t *images;
  size_t stride;
  const uint64_t *row_ids;
  size_t count;             /* 0: end */
} es_batch;

/* For es_cursor_next_batch. */
es_status es_scan_open(es_session *session, es_table *table, const es_scan_options *options, es_cursor **cursor);
/* For es_cursor_fetch alone. */
es_status es_fetch_open(es_session *session, es_table *table, const es_scan_options *options, es_cursor **cursor);
void es_cursor_close(es_cursor *cursor);
es_status es_cursor_next_batch(es_cursor *cursor, es_session *session, es_batch *batch);
/* One row by id; *image NULL: no such row for this session. */
es_status es_cursor_fetch(es_cursor *cursor, es_session *session, uint64_t row_id, const uint8_t **image);
/* Was the last row read without the lock that another holds (its last committed version)? */
int32_t es_cursor_was_semi_consistent(const es_cursor *cursor);

/* ---- what can be seen ------------------------------------------------------------------------------------------ */

uint32_t es_counter_count(void);
const char *es_counter_name(uint32_t index);    /* snake_case, NUL-terminated, static */
uint64_t es_counter_global(uint32_t index);
uint64_t es_counter_session(const es_session *session, uint32_t index);

/* Further figures that are no counters: memory by account, log positions, recovery. */
uint32_t es_gauge_count(void);
const char *es_gauge_name(uint32_t index);
/* Fills `values` with es_gauge_count() figures taken together. */
void es_gauges(es_engine *engine, uint64_t *values);

/* An open transaction. */
typedef struct es_transaction {
  uint64_t id;
  uint64_t connection;      /* 0: none, as of a prepared one after a restart */
  uint64_t started_unix_us;
  uint64_t age_us;
  uint64_t rows_changed;    /* by its ended statements, as redo_bytes */
  uint64_t rows_locked;
  uint64_t redo_bytes;
  uint64_t view_seq;        /* the oldest view it keeps; 0: none */
  const char *state;        /* static, as isolation */
  const char *isolation;
  int32_t has_xid;
  es_xid xid;
} es_transaction;

/* A session that waits for another's transaction. */
typedef struct es_lock_wait {
  uint64_t waiting_connection;
  uint64_t blocking_connection;
  uint64_t waited_us;
  uint64_t blocker_idle_us;
  uint64_t root_blocker;    /* the connection at the end of the chain */
  uint64_t row_id;          /* 0: it is no single row */
  const char *kind;         /* static */
  const char *table;        /* valid for the call */
} es_lock_wait;

/* Each is called without any lock of the engine held; nonzero stops. */
typedef int32_t (*es_transaction_fn)(void *context, const es_transaction *transaction);
typedef int32_t (*es_lock_wait_fn)(void *context, const es_lock_wait *wait);
void es_transactions(es_engine *engine, es_transaction_fn each, void *context);
void es_lock_waits(es_engine *engine, es_lock_wait_fn each, void *context);

/* Text for people; `write` may be called several times. */
typedef void (*es_write_fn)(void *context, const char *text, size_t length);
void es_status_text(es_engine *engine, es_write_fn write, void *context);
/* Times waits, holds and releases of the engine's own locks, or stops. Contention is counted always. */
void es_profile_locks(int32_t on);
/* One call per lock site and per wait event: name and figures. */
typedef void (*es_site_fn)(void *context, const char *name, const char *figures);
void es_lock_report(es_site_fn site, void *context);

#ifdef __cplusplus
}
#endif
#endif
