/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  The handler: one open instance of one table. Its parts lie in handler_open.cc, handler_lock.cc, handler_scan.cc,
  handler_index.cc, handler_pushed.cc, handler_cost.cc, handler_write.cc, handler_number.cc, handler_sequence.cc, handler_ddl.cc,
  handler_alter.cc and handler_admin.cc.
*/
#ifndef HA_ESKER_INCLUDED
#define HA_ESKER_INCLUDED

#include "shim.h"
#include "layout.h"
#include "keys.h"
#include "transaction.h"
#include "work.h"
#include <string>

namespace shim
{
/** What a block of keys takes, and a page of InnoDB's. */
constexpr uint key_block_bytes= 16 * 1024;
}

/**
  Lives on a MEM_ROOT, so its destructor may never run: what it owns is freed in close(), cursors in reset() at the latest.
*/
class ha_esker final : public handler
{
public:
  ha_esker(handlerton *hton, TABLE_SHARE *share);
  ~ha_esker() override;

  /* handler_open.cc: what it is, open and close, figures */
  Table_flags table_flags() const override;
  ulong index_flags(uint index, uint part, bool all_parts) const override;
  const char *index_type(uint) override { return "BTREE"; }
  uint max_supported_keys() const override { return MAX_KEY; }
  uint max_supported_key_part_length() const override { return MAX_DATA_LENGTH_FOR_KEY; }
  int open(const char *path, int mode, uint test_if_locked) override;
  int close() override;
  int info(uint flag) override;
  ha_rows records() override;

  /* handler_cost.cc: what the optimizer is told */
  double scan_time() override;
  double read_time(uint index, uint ranges, ha_rows rows) override;
  enum row_type get_row_type() const override;
  uint8 table_cache_type() override { return HA_CACHE_TBL_NOCACHE; }
  void print_error(int error, myf flags) override;

  /* handler_lock.cc: statements and what they lock */
  uint lock_count() const override { return 0; }
  THR_LOCK_DATA **store_lock(THD *thd, THR_LOCK_DATA **to, thr_lock_type lock_type) override;
  int external_lock(THD *thd, int lock_type) override;
  int start_stmt(THD *thd, thr_lock_type lock_type) override;
  int extra(enum ha_extra_function operation) override;
  int reset() override;

  /* handler_scan.cc: reading */
  int rnd_init(bool scan) override;
  int rnd_next(uchar *buf) override;
  int rnd_end() override;
  int rnd_pos(uchar *buf, uchar *pos) override;
  void position(const uchar *record) override;
  void column_bitmaps_signal() override;
  bool was_semi_consistent_read() override { return semi_read_; }
  void try_semi_consistent_read(bool yes) override;
  void unlock_row() override;
  /** A partition: the row that was read last, and waited in the server's queue, is the current one. */
  void return_record_by_parent() override;
  int calculate_checksum() override;

  /* handler_index.cc: reading by keys */
  int index_init(uint index, bool sorted) override;
  int index_end() override;
  int index_read_map(uchar *buf, const uchar *key, key_part_map parts, enum ha_rkey_function find) override;
  int index_read_idx_map(uchar *buf, uint index, const uchar *key, key_part_map parts,
                         enum ha_rkey_function find) override;
  int index_first(uchar *buf) override;
  int index_last(uchar *buf) override;
  int index_next(uchar *buf) override;
  int index_prev(uchar *buf) override;
  int index_next_same(uchar *buf, const uchar *key, uint bytes) override;
  int read_range_first(const key_range *start, const key_range *end, bool is_equal, bool sorted) override;
  int read_range_next() override;
  ha_rows records_in_range(uint index, const key_range *min, const key_range *max, page_range *pages) override;
  handler *clone(const char *name, MEM_ROOT *root) override;

  /* handler_pushed.cc: what the server leaves to reading by keys */
  Item *idx_cond_push(uint index, Item *condition) override;
  bool rowid_filter_push(Rowid_filter *filter) override;
  int multi_range_read_init(RANGE_SEQ_IF *ranges, void *init_param, uint count, uint mode,
                            HANDLER_BUFFER *buffer) override;
  int multi_range_read_next(range_id_t *range) override;
  ha_rows multi_range_read_info_const(uint index, RANGE_SEQ_IF *ranges, void *init_param, uint count,
                                      uint *buffer_bytes, uint *flags, Cost_estimate *cost) override;
  ha_rows multi_range_read_info(uint index, uint ranges, uint keys, uint key_parts, uint *buffer_bytes, uint *flags,
                                Cost_estimate *cost) override;
  int multi_range_read_explain_info(uint mode, char *text, size_t bytes) override;

  /* handler_write.cc: writing */
  int write_row(const uchar *buf) override;
  int update_row(const uchar *old_data, const uchar *new_data) override;
  int delete_row(const uchar *buf) override;
  int delete_all_rows() override;
  /* Rows come in bulk, or not, by their number: these are here to be told. */
  void start_bulk_insert(ha_rows, uint) override { ESKER_CALLED(); }
  int end_bulk_insert() override { ESKER_CALLED(); return 0; }

  /* handler_number.cc: AUTO_INCREMENT */
  void get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted, ulonglong *first,
                          ulonglong *reserved) override;
  void release_auto_increment() override;
  int reset_auto_increment(ulonglong value) override;
  bool autoinc_lock_mode_stmt_unsafe() const override;

  /* handler_ddl.cc: definitions */
  int create(const char *path, TABLE *form, HA_CREATE_INFO *create_info) override;
  int delete_table(const char *path) override;
  int rename_table(const char *from, const char *to) override;
  int truncate() override;
  void update_create_info(HA_CREATE_INFO *create_info) override;
  bool check_if_incompatible_data(HA_CREATE_INFO *create_info, uint table_changes) override;

  /* handler_alter.cc: indexes that come and go while the rows stay */
  enum_alter_inplace_result check_if_supported_inplace_alter(TABLE *altered, Alter_inplace_info *info) override;
  bool inplace_alter_table(TABLE *altered, Alter_inplace_info *info) override;
  bool commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info, bool commit) override;
  ulonglong table_version() const override;

  /* handler_admin.cc: CHECK, ANALYZE, OPTIMIZE */
  int check(THD *thd, HA_CHECK_OPT *options) override;
  int analyze(THD *thd, HA_CHECK_OPT *options) override;
  int optimize(THD *thd, HA_CHECK_OPT *options) override;

private:
  /* Maps a failure; what it is in words is kept for print_error. */
  int fail(const EsSession *session, EsStatus status);
  int fail(EsStatus status, const char *text);

  /* The session to work in; null and *error if the statement cannot be entered. */
  EsSession *session(int *error)
  {
    if (likely(connection_ != nullptr && connection_->in_statement()))
      return connection_->session();
    return enter(error);
  }
  void begin_statement();
  int check_partition(THD *thd);
  EsSession *enter(int *error);
  EsSession *enter_sequence(int *error);
  int end_sequence(int error);
  int commit_sequence();
  EsStatus check_emptied(EsError *why) const;
  bool is_sequence() const { return table_share->table_type == TABLE_TYPE_SEQUENCE; }

  bool locks_rows() const { return lock_ != EsLockMode::None; }
  bool has_cursors() const { return scan_cursor_ || fetch_cursor_ || index_cursor_; }
  void duplicate(uint *index);
  ha_rows rows_with_own(uint64_t committed) const;
  void tell_rows_per_key(uint64_t rows, uint flag);
  bool find_rows_per_key(bool is_empty);
  ha_rows weighed_rows(uint index, ha_rows rows) const;
  bool is_full_delete(THD *thd) const;
  ha_rows lock_all();
  bool is_unchanged(const uchar *old_data, const uchar *new_data) const;

  int insert(const uchar *buf);
  int fail_write(const EsSession *session, EsStatus status);
  int make_second_handler();
  void drop_second_handler();
  int check_update(EsSession *session, const uchar *old_data, const uchar *new_data);
  int compute_virtual(const uchar *buf);
  int write_numbered(const uchar *buf);
  bool fills_left_over(const char *path, const TABLE *form, std::string *name) const;
  static bool is_table_of(const TABLE *table, const std::string &name);
  int note_number(Field *field);

  bool changes_only_definition(const TABLE *altered, const Alter_inplace_info *info);
  bool duplicate_found(TABLE *altered, uint place, uint64_t row);
  bool build_indexes(TABLE *altered, inplace_alter_handler_ctx *planned);
  bool commit_alter(TABLE *altered, inplace_alter_handler_ctx **contexts);
  bool raise_counter(const TABLE *altered, const HA_CREATE_INFO *create_info);

  EsScanOptions scan_options(bool scan);
  int open_cursor(EsCursor **cursor, bool scan);
  int fetch(uint64_t row_id, const uint8_t **image);
  void fill_nulls(uchar *buf) const;
  void blank_generated(uchar *buf) const;
  int next_slow(uchar *buf);
  void let_go_of_passed();
  int read_again(const uint8_t **image);
  int take_batch(const EsSession *session, EsStatus status, const EsBatch &batch);
  int next_batch();
  bool columns_grew();
  /* Each row goes the slow way, where it is told. */
  static bool is_traced() { return shim::Trace::any() && shim::Trace::current(); }
  void close_cursors();
  void end_cursors();
  void close_ended();

  /* The next row of the batch; there is one. */
  int take_image(uchar *buf)
  {
    memcpy(buf, batch_.next, image_bytes_);
    batch_.next+= batch_.stride;
    row_id_= *batch_.next_id++;
    return 0;
  }

  EsKeyBound bound_at(uint index, const uchar *key, key_part_map parts, bool behind, uint place);
  EsKeyBound end_bound(uint index, const key_range *end);
  int open_index();
  int seek(uchar *buf, const EsKeyRange &range, bool backward);
  int seek_batch(const EsKeyRange &range);
  int go_on(uchar *buf, bool backward);
  int turn(bool backward);
  bool chooses() const;
  /** Are many ranges read one after the other, as they come? */
  bool takes_ranges_in_turn() const;
  int take_chosen(EsSession *session, EsStatus status, EsBatch *batch);
  int choose();

  EsTable *table_= nullptr;
  /* As the engine knows it: of the partition, for a partition. */
  std::string name_;
  ulonglong trace_id_= 0;                       /* Trace::called */
  shim::Record_layout layout_;
  /* Null for a sequence. */
  shim::Connection *connection_= nullptr;
  /* A sequence's: what it writes is committed at once, whatever becomes of the statement's transaction. */
  EsSession *sequence_session_= nullptr;

  /*
    Rows of the scan, or of the index, decoded ahead: from next to end. rnd_next's fast path takes rows up to fast_end, which is end,
    or next when each row must go the slow way.
  */
  struct Batch
  {
    const uint8_t *start= nullptr;
    const uint8_t *next= nullptr;
    const uint8_t *fast_end= nullptr;
    const uint8_t *end= nullptr;
    const uint64_t *next_id= nullptr;
    size_t stride= 0;

    void clear() { *this= Batch(); }
  };
  Batch batch_;
  uint32 image_bytes_= 0;
  /* Row that was read or written last. */
  uint64_t row_id_= 0;
  /* Of a partition the row that was read last, if others were written since: it may wait in the server's queue. */
  uint64_t queued_= 0;
  /* A scan begins behind this row. */
  uint64_t scan_behind_= 0;
  /* The server checks some of the keys by reading, after each write: no row may wait in the stage. */
  bool server_checks_= false;
  /* It has made the handler by which the server takes such a row out again. */
  bool made_second_= false;

  EsCursor *scan_cursor_= nullptr;
  EsCursor *fetch_cursor_= nullptr;
  /* The scan of rows is by this one where it is there. */
  EsIndexCursor *index_cursor_= nullptr;
  /* Ended, and kept for what the last row's blobs point to, see end_cursors(). */
  EsCursor *ended_scan_= nullptr;
  EsCursor *ended_fetch_= nullptr;
  EsIndexCursor *ended_index_= nullptr;
  /* Its rows come from the last to the first. */
  bool backward_= false;
  /* The statement is over in which it was opened: HANDLER goes on in another one. */
  bool other_statement_= false;
  /* read_range_next() is running: nothing beyond the range is wanted. */
  bool within_range_= false;
  /* Entries of the batch that pass what was pushed down. */
  std::vector<uint32_t> chosen_;
  /* The end of the range that read_range_first() is looking for. */
  const key_range *read_range_end_= nullptr;
  /* Bytes of the key that was sought, if the index gives rows of this key alone. */
  uint same_key_bytes_= 0;
  DsMrr_impl ds_mrr_;
  /* Two row images, for the ends of a range of keys. */
  std::vector<uchar> key_images_;
  /* Columns that the cursors fill in; empty: all. */
  std::vector<uchar> columns_;
  /* read_set changed since columns_ was made of it. */
  bool columns_stale_= false;
  /* The scan cursor does not fill in all columns any more that are wanted: take ids from it, rows from fetch. */
  bool refetch_= false;

  /* A row that is a duplicate of one to be written is wanted: let nobody take it away. */
  bool lock_duplicate_= false;

  /* Bytes of the rows as they are before compression, and how many rows there were when rows per key were told. */
  uint64_t row_bytes_= 0;
  uint64_t told_rows_= 0;

  EsLockMode lock_= EsLockMode::None;
  EsLockMode read_lock_= EsLockMode::None;      /* as store_lock found it, for F_RDLCK */
  bool skip_locked_= false;
  /* One of several that an index merge reads by. */
  bool is_clone_= false;
  bool try_semi_= false;
  /* The last row was read without waiting for its lock: if it is wanted, it must be read again. */
  bool semi_read_= false;
  /* The last row was read by who applies a binlog: it is one that he passes if he reads on. */
  bool may_pass_= false;
  /* Rows are read for CHECKSUM TABLE, which sums up bits of generated columns and reads none of these. */
  bool sums_up_= false;

  /* What lock_all() did for a DELETE of all rows, and found. */
  enum class Full_delete { none, locked, failed };
  Full_delete full_delete_= Full_delete::none;
  uint64_t full_delete_rows_= 0;
  int full_delete_error_= 0;

  /* What the engine gave the statement to number rows with, last. */
  struct Numbers
  {
    ulonglong first= 0;
    ulonglong unused= 0;                        /* no row got these, or was to */
    ulonglong end= 0;
    ulonglong step= 0;
    int error= 0;                               /* why it gave none, for who calls update_auto_increment() */
  };
  Numbers numbers_;

  /* Words of the last failure of a call without the connection's session. */
  EsStatus detail_status_= EsStatus::Ok;
  std::string detail_;
};

namespace shim
{
/** The engine's name of the table at this path: the path without "./". */
const char *table_name(const char *path);
/** The same of a path that the server has made for no handler. */
std::string canonical_name(const char *path);

/** What an ALTER TABLE does to partitions. The server leaves it there for the statements that follow. */
inline ulong partition_flags_of(const THD *thd)
{
  return thd->lex->sql_command == SQLCOM_ALTER_TABLE ? thd->lex->alter_info.partition_flags : 0;
}

/**
  Partitions that have this table's name, which the server does not know, go to tables that lack them. Not 0: it cannot be told whether
  there is one, or given back; the error was raised.
*/
int give_partitions_back(THD *thd, const std::string &name);

/** handlerton::drop_table. */
int drop_table(handlerton *, const char *path);
/** handlerton::drop_database. */
void drop_database(handlerton *, char *path);
/** handlerton::check_version. */
int check_version(handlerton *, const char *path, const LEX_CUSTRING *version, ulonglong before);
}

/** Tells the statement of this THD how far it is; true: it was killed. */
extern "C" bool report_progress(void *thd, uint64_t done, uint64_t total);


#endif
