/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  The handler's capabilities, open and close, statistics, and the words of errors.
*/
#include "ha_esker.h"
#include "errors.h"
#include "shown.h"
#include <algorithm>

using namespace shim;

ha_esker::ha_esker(handlerton *hton, TABLE_SHARE *share) : handler(hton, share)
{
  ref_length= sizeof(uint64_t);
}

ha_esker::~ha_esker()
{
  close_cursors();
  es_session_close(sequence_session_);
  es_table_close(table_);
}

handler::Table_flags ha_esker::table_flags() const
{
  Table_flags flags= HA_REC_NOT_IN_SEQ | HA_NULL_IN_KEY | HA_CAN_INDEX_BLOBS | HA_CAN_VIRTUAL_COLUMNS |
                     HA_CAN_SQL_HANDLER | HA_CAN_GEOMETRY | HA_PARTIAL_COLUMN_READ | HA_CAN_ONLINE_BACKUPS |
                     HA_ONLINE_ANALYZE | HA_CONCURRENT_OPTIMIZE | HA_CAN_SKIP_LOCKED | HA_BINLOG_ROW_CAPABLE |
                     HA_CRASH_SAFE | HA_CAN_TABLES_WITHOUT_ROLLBACK | HA_DUPLICATE_POS;
  /*
    Long UNIQUE keys and those WITHOUT OVERLAPS are the server's to check, by reading. Where the new row is there before,
    two who write at the same time meet each other's, wait, and are found out.
  */
  flags|= HA_CHECK_UNIQUE_AFTER_WRITE;
  /* So those come last, and REPLACE must not take the last of the engine's keys for the last one. */
  if (table_share && table_share->long_unique_table)
    flags|= HA_DUPLICATE_KEY_NOT_IN_ORDER;
  /* A locking COUNT(*) has to visit its rows. */
  if (!locks_rows())
    flags|= HA_HAS_RECORDS;
  /* No gap locks: statements cannot be logged as such. A replica has to take them as they come; where it may it logs rows of its own. */
  if (const THD *thd= ha_thd())
    if (thd->slave_thread && thd->variables.binlog_format == BINLOG_FORMAT_STMT)
      flags|= HA_BINLOG_STMT_CAPABLE;
  return flags;
}

/* Asked before a table is open, too. An entry tells the columns that are in its key wholly. */
ulong ha_esker::index_flags(uint index, uint part, bool all_parts) const
{
  ulong flags= HA_READ_NEXT | HA_READ_PREV | HA_READ_ORDER | HA_READ_RANGE;
  flags|= HA_DO_INDEX_COND_PUSHDOWN;
  /*
    A filter is made by reading what is in it: who locks would lock rows that need not be looked at. The rows of a range of
    the primary key are near each other.
  */
  if (!locks_rows() && index != table_share->primary_key)
    flags|= HA_DO_RANGE_FILTER_PUSHDOWN;
  const KEY_PART_INFO *parts= table_share->key_info[index].key_part;
  bool tells= key_tells_column(parts + part);
  for (uint i= 0; all_parts && i < part; i++)
    tells&= key_tells_column(parts + i);
  return tells ? flags | HA_KEYREAD_ONLY : flags;
}

int ha_esker::open(const char *path, int, uint)
{
  if (!layout_.init(table))
    return HA_ERR_OUT_OF_MEM;
  image_bytes_= layout_.image_bytes();
  EsLayout layout= layout_.c_layout();
  name_= table_name(path);
  server_checks_= table_share->long_unique_table || table_share->period.unique_keys;
  EsError why;
  Key_definitions keys;
  Key_definitions::Refusal refusal;
  Shown_columns shown;
  if (!keys.init(table, layout_, &refusal) || !shown.init(table, layout_))
    return HA_ERR_OUT_OF_MEM;
  EsStatus status= es_table_open(engine, name_.c_str(), &layout, keys.indexes(), keys.count(), &table_, &why);
  if (status == EsStatus::Ok)
    status= es_table_show_as(table_, shown.columns(), shown.count(), &why);
  if (status != EsStatus::Ok)
    return fail(status, why.text);
  info(HA_STATUS_NO_LOCK | HA_STATUS_VARIABLE | HA_STATUS_CONST | HA_STATUS_OPEN);
  return 0;
}

int ha_esker::close()
{
  drop_second_handler();
  close_cursors();
  es_session_close(sequence_session_);
  sequence_session_= nullptr;
  const THD *thd= current_thd;
  if (Connection *connection= thd ? Connection::find(thd) : nullptr)
    connection->leave_stage(table_);
  es_table_close(table_);
  table_= nullptr;
  connection_= nullptr;
  layout_= Record_layout();
  std::vector<uchar>().swap(columns_);
  std::vector<uint32_t>().swap(chosen_);
  std::vector<uchar>().swap(key_images_);
  std::string().swap(name_);
  std::string().swap(detail_);
  return 0;
}

/*
  The optimizer plans for what this transaction finds, and PARTITION BY SYSTEM_TIME LIMIT begins the next partition in the middle
  of one, too.
*/
ha_rows ha_esker::rows_with_own(uint64_t committed) const
{
  const Connection *connection= Connection::find(ha_thd());
  const int64_t own= connection ? es_own_rows(connection->session(), table_) : 0;
  return static_cast<ha_rows>(std::max<int64_t>(static_cast<int64_t>(committed) + own, 0));
}

int ha_esker::info(uint flag)
{
  ESKER_CALLED();
  if (flag & HA_STATUS_ERRKEY)
    duplicate(&errkey);
  if (table_ && (flag & HA_STATUS_AUTO))
    stats.auto_increment_value= es_next_auto_increment(table_);
  if (!table_ || !(flag & (HA_STATUS_VARIABLE | HA_STATUS_CONST | HA_STATUS_TIME)))
    return 0;
  EsTableStats figures;
  es_table_get_stats(table_, &figures);
  const ha_rows rows= rows_with_own(figures.rows);
  if (flag & HA_STATUS_VARIABLE)
  {
    stats.records= rows;
    stats.deleted= 0;
    row_bytes_= figures.row_bytes;
    stats.data_file_length= figures.data_bytes;
    /* Trees of indexes are asked for those who look, not for each statement's optimizer. */
    if (flag & HA_STATUS_VARIABLE_EXTRA)
      stats.index_file_length= es_table_index_bytes(table_);
    stats.delete_length= figures.free_bytes;
    stats.mean_rec_length= figures.rows ? static_cast<ulong>(figures.data_bytes / figures.rows) : 0;
    if (is_full_delete(ha_thd()))
      stats.records= lock_all();
    /* The optimizer takes 0 for certain; it is certain only to a reader's view. SHOW TABLE STATUS may have it. */
    else if (stats.records == 0 && !(flag & (HA_STATUS_TIME | HA_STATUS_OPEN)))
      stats.records= 1;
  }
  if (flag & HA_STATUS_TIME)
    stats.update_time= static_cast<time_t>(figures.update_time);
  if (flag & HA_STATUS_CONST)
  {
    stats.create_time= static_cast<time_t>(figures.create_time);
    stats.block_size= key_block_bytes;
    stats.max_data_file_length= 0;
    /* A row id, and the range that it was found in. */
    stats.mrr_length_per_rec= ref_length + sizeof(range_id_t);
  }
  if (flag & (HA_STATUS_CONST | HA_STATUS_VARIABLE))
    tell_rows_per_key(rows, flag);
  return 0;
}

/* Of the last write that failed; asked of the connection, since a partitioned table asks another partition's handler. */
void ha_esker::duplicate(uint *index)
{
  uint32_t place;
  uint64_t row;
  *index= MAX_KEY;
  if (!connection_ || !es_duplicate(connection_->session(), &place, &row))
    return;
  *index= place;
  mi_int8store(dup_ref, row);
}

/* What the transaction, or its statement, sees: known without reading, but where rows could not be read. */
ha_rows ha_esker::records()
{
  ESKER_CALLED();
  int error= 0;
  uint64_t rows;
  THD *thd= ha_thd();
  /* Others ask for an idea of the size only: the progress of ALTER TABLE, samples of ANALYZE. */
  int command= thd_sql_command(thd);
  if (command == SQLCOM_ALTER_TABLE || command == SQLCOM_OPTIMIZE || command == SQLCOM_ANALYZE)
    return stats.records;
  EsSession *s= session(&error);
  /* On an error, a KILL too, the server scans, and meets it there. */
  if (!s)
    return HA_POS_ERROR;
  const Work work(handler_stats, s);
  return fail(s, es_count_rows(s, table_, &rows)) ? HA_POS_ERROR : rows;
}

enum row_type ha_esker::get_row_type() const
{
  if (!table_)
    return ROW_TYPE_NOT_USED;
  EsTableStats figures;
  es_table_get_stats(table_, &figures);
  return figures.row_format == EsRowFormat::Fixed ? ROW_TYPE_FIXED : ROW_TYPE_DYNAMIC;
}

int ha_esker::fail(const EsSession *session, EsStatus status)
{
  detail_status_= EsStatus::Ok;
  if (likely(status == EsStatus::Ok))
    return 0;
  if (connection_ && connection_->session() == session)
    connection_->note_failure(status);
  else
  {
    EsError why;
    detail_status_= es_last_error(session, &why);
    detail_= why.text;
  }
  const int error= ha_error(ha_thd(), status);
  /* The server says nothing of what the first rows of an index merge fail with, and takes the statement for done. */
  if (is_clone_ && status != EsStatus::Interrupted && !ha_thd()->is_error())
    print_error(error, MYF(0));
  return error;
}

int ha_esker::fail(EsStatus status, const char *text)
{
  detail_status_= status;
  detail_= text;
  return ha_error(ha_thd(), status);
}

void ha_esker::print_error(int error, myf flags)
{
  if (has_detail(detail_status_) && ha_error(detail_status_) == error)
  {
    raise(detail_status_, detail_.c_str(), flags);
    detail_status_= EsStatus::Ok;
    return;
  }
  /* Asked of the connection: a partitioned table asks any of its partitions' handlers for the words. */
  if (Connection *c= Connection::find(ha_thd()))
  {
    EsError why;
    EsStatus status= es_last_error(c->session(), &why);
    if (status == c->failed() && has_detail(status) && ha_error(status) == error)
    {
      raise(status, why.text, flags);
      return;
    }
  }
  handler::print_error(error, flags);
}
