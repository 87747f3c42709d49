/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  Writing rows. A write takes its row's lock if the read before has not, and waits for it.
*/
#include "ha_esker.h"
#include "errors.h"
#include "variables.h"
#include "slave.h"
#include "sql_trigger.h"

using namespace shim;

namespace
{
/* The server's own check of a row by the keys that it keeps: it has it for itself, and undoes no UPDATE that it refuses by it. */
int check_kept_keys(handler *of, const uchar *old_data, const uchar *new_data);
template <int (handler::*check)(const uchar *, const uchar *)> struct Kept_keys
{
  friend int check_kept_keys(handler *of, const uchar *old_data, const uchar *new_data)
  {
    return (of->*check)(old_data, new_data);
  }
};
template struct Kept_keys<&handler::ha_check_inserver_constraints>;

/*
  May what a statement has done so far stay when a row of it is refused? So it may where a function or a trigger goes on, as no end of a
  statement undoes anything there, where a replica passes over errors, and in ALTER IGNORE TABLE.
*/
bool may_go_on(const THD *thd)
{
  return thd->in_sub_stmt || thd->lex->ignore ||
         (thd->rgi_slave && (use_slave_mask || slave_exec_mode_options == SLAVE_EXEC_MODE_IDEMPOTENT));
}
}

int ha_esker::write_row(const uchar *buf)
{
  ESKER_CALLED();
  if (likely(connection_ != nullptr))
  {
    EsStage *stage= connection_->stage();
    if (stage->table == table_ && stage->next != stage->end && likely(!server_checks_))
    {
      memcpy(stage->next, buf, image_bytes_);
      stage->next+= image_bytes_;
      row_id_= stage->row_id++;
      return 0;
    }
  }
  if (!table->found_next_number_field || buf != table->record[0])
    return insert(buf);
  if (table->next_number_field)
    return write_numbered(buf);
  /* Its value comes with it: a row that moves to another partition, or what is left of one behind a portion of time. */
  const int error= insert(buf);
  return error ? error : note_number(table->found_next_number_field);
}

int ha_esker::insert(const uchar *buf)
{
  int error= 0;
  EsSession *s= session(&error);
  if (unlikely(!s))
    return error;
  if (unlikely(layout_.keeps_virtual()))
    if ((error= compute_virtual(buf)))
      return error;
  if (index_cursor_ && !queued_)
    queued_= row_id_;
  EsStatus status;
  {
    const Work work(handler_stats, s);
    status= es_insert(s, table_, buf, lock_duplicate_, &row_id_);
  }
  if (unlikely(is_sequence()))
    return end_sequence(fail(s, status));
  if (unlikely(status != EsStatus::Ok))
    return fail_write(s, status);
  return likely(!server_checks_) ? 0 : make_second_handler();
}

/*
  The server keeps by which of the keys that it checks itself it found a row to be a duplicate, until it checks the next one. A row that
  the engine refuses does not get so far: by which key it is one, the engine says.
*/
int ha_esker::fail_write(const EsSession *s, EsStatus status)
{
  if (status == EsStatus::DuplicateKey)
    table->file->lookup_errkey= static_cast<uint>(-1);
  return fail(s, status);
}

/*
  A row is in when the server looks for duplicates of it. Where it finds one it takes the row out again by a second handler, if it has
  made one; else the end of the statement is to undo it.
*/
int ha_esker::make_second_handler()
{
  handler *first= table->file;
  THD *thd= ha_thd();
  if (first->lookup_handler != first || !may_go_on(thd))
    return 0;
  handler *second= first->clone(table->s->normalized_path.str, thd->mem_root);
  if (!second)
    return HA_ERR_OUT_OF_MEM;
  first->lookup_handler= second;
  made_second_= true;
  return second->ha_external_lock(thd, F_WRLCK);
}

/* Before the table is closed: the server lets go of second handlers only where a statement ends with its table, which ALTER's does not. */
void ha_esker::drop_second_handler()
{
  if (likely(!made_second_))
    return;
  made_second_= false;
  handler *first= table->file, *second= first->lookup_handler;
  if (second == first)
    return;
  first->lookup_handler= first;
  (void) second->ha_external_unlock(ha_thd());
  second->ha_close();
  delete second;
}

/*
  The server has computed the virtual columns of keys, in its own statements. A replica's events have what the master had of
  them, which may have no such key.
*/
int ha_esker::compute_virtual(const uchar *buf)
{
  THD *thd= ha_thd();
  if (buf != table->record[0] || !(thd->slave_thread || thd->rgi_fake))
    return 0;
  Query_arena backup;
  MY_BITMAP *old= tmp_use_all_columns(table, &table->read_set);
  thd->set_n_backup_active_arena(table->expr_arena, &backup);
  /* Others may fail, which is nothing to who does not ask for them. */
  for (uint16 index : layout_.made_virtual())
    table->field[index]->vcol_info->expr->save_in_field(table->field[index], 0);
  thd->restore_active_arena(table->expr_arena, &backup);
  tmp_restore_column_map(&table->read_set, old);
  return thd->is_error() ? HA_ERR_GENERIC : 0;
}

/*
  The server leaves a changed row that it refuses to the end of the statement. Here it becomes again what it was: it is locked, and its old
  values are still in memory.
*/
int ha_esker::check_update(EsSession *s, const uchar *old_data, const uchar *new_data)
{
  const uint64_t row= row_id_;
  const int refused= check_kept_keys(table->file, old_data, new_data);
  row_id_= row;
  /* Whatever else it fails with ends the calling statement, too. */
  if (refused != HA_ERR_FOUND_DUPP_KEY)
    return refused;
  const Work work(handler_stats, s);
  const int error= fail(s, es_update(s, table_, row, old_data));
  return error ? error : refused;
}

/* Is it UPDATE, or ON DUPLICATE KEY UPDATE? REPLACE writes a new row over the old one. */
static bool updates_rows(const THD *thd)
{
  switch (thd->lex->sql_command) {
  case SQLCOM_UPDATE:
  case SQLCOM_UPDATE_MULTI:
  case SQLCOM_INSERT:
  case SQLCOM_INSERT_SELECT:
    return true;
  default:
    return false;
  }
}

/*
  Is the new row the old one, though the server took it for another? It compares rows only when all columns that are
  written were wanted to be read, and then also the bytes under a NULL. A read that locks has filled in all columns. By the
  time of ON UPDATE, which the server has put in for the sake of such bytes, a row does not change.
*/
bool ha_esker::is_unchanged(const uchar *old_data, const uchar *new_data) const
{
  if (old_data != table->record[1] || new_data != table->record[0])
    return false;
  const my_ptrdiff_t offset= table->record[1] - table->record[0];
  const bool is_update= updates_rows(ha_thd());
  for (Field **ptr= table->field; *ptr; ptr++)
  {
    Field *field= *ptr;
    if (is_update && field->has_update_default_function() && !field->has_explicit_value())
      continue;
    if (!field->stored_in_db() || !bitmap_is_set(table->write_set, field->field_index))
      continue;
    if (field->is_real_null() != field->is_real_null(offset))
      return false;
    if (!field->is_real_null() && field->cmp_binary_offset(static_cast<uint>(offset)))
      return false;
  }
  return true;
}

int ha_esker::update_row(const uchar *old_data, const uchar *new_data)
{
  ESKER_CALLED();
  may_pass_= false;
  if (is_unchanged(old_data, new_data))
    return HA_ERR_RECORD_IS_THE_SAME;
  int error= 0;
  EsSession *s= session(&error);
  if (unlikely(!s))
    return error;
  if (unlikely(layout_.keeps_virtual()))
    if ((error= compute_virtual(new_data)))
      return error;
  EsStatus status;
  {
    const Work work(handler_stats, s);
    status= es_update(s, table_, row_id_, new_data);
  }
  if (unlikely(is_sequence()))
    return end_sequence(fail(s, status));
  if (unlikely(status != EsStatus::Ok))
    return fail_write(s, status);
  if (unlikely(server_checks_) && may_go_on(ha_thd()))
    if ((error= check_update(s, old_data, new_data)))
      return error;
  if (table->found_next_number_field && new_data == table->record[0] &&
      bitmap_is_set(table->write_set, table->found_next_number_field->field_index))
    return note_number(table->found_next_number_field);
  return 0;
}

int ha_esker::delete_row(const uchar *)
{
  ESKER_CALLED();
  may_pass_= false;
  int error= 0;
  EsSession *s= session(&error);
  if (unlikely(!s))
    return error;
  const Work work(handler_stats, s);
  EsStatus status= es_delete(s, table_, row_id_);
  return likely(status == EsStatus::Ok) ? 0 : fail(s, status);
}

/*
  Is the statement going to call delete_all_rows()? Has the server's own conditions (mysql_delete), as it asks for the
  number of rows before. A view's condition is not in the statement's: its table is not the one that is named.
*/
bool ha_esker::is_full_delete(THD *thd) const
{
  if (!thd || is_sequence() || lock_ != EsLockMode::Exclusive || thd_sql_command(thd) != SQLCOM_DELETE ||
      thd->lex->describe || thd->lex->has_returning() || thd->is_current_stmt_binlog_format_row() ||
      table->versioned(VERS_TIMESTAMP) ||
      (table->triggers && table->triggers->has_delete_triggers()))
    return false;
  const TABLE_LIST *named= thd->lex->query_tables;
  if (!named || table->pos_in_table_list != named || named->has_period())
    return false;
  const SELECT_LEX *select= thd->lex->first_select_lex();
  Item *where= select->where;
  if (where && !(where->fixed() && where->const_item() && where->val_bool()))
    return false;
  return !select->limit_params.explicit_limit;
}

/*
  DELETE without WHERE reports the number of rows that the engine had before as the number that it deleted: it has to be
  true, so the rows are locked before they are counted. An error waits for delete_all_rows().
*/
ha_rows ha_esker::lock_all()
{
  if (full_delete_ != Full_delete::none)
    return full_delete_rows_;
  full_delete_rows_= 0;
  full_delete_error_= 0;
  if (EsSession *s= session(&full_delete_error_))
  {
    const Work work(handler_stats, s);
    connection_->full_delete_of= nullptr;
    full_delete_error_= fail(s, es_lock_all(s, table_, &full_delete_rows_));
  }
  full_delete_= full_delete_error_ ? Full_delete::failed : Full_delete::locked;
  return full_delete_rows_;
}

/* DELETE without WHERE, when no row has to be logged and no trigger wants it. */
int ha_esker::delete_all_rows()
{
  ESKER_CALLED();
  switch (full_delete_) {
  case Full_delete::none:
    /* Not foreseen by info(): the number of rows that the server has is an estimate. */
    return HA_ERR_WRONG_COMMAND;
  case Full_delete::failed:
    return full_delete_error_;
  case Full_delete::locked:
    break;
  }
  int error= 0;
  EsSession *s= session(&error);
  if (!s)
    return error;
  /* It compares no versions: leave it to the single rows to find a conflict. */
  if (snapshot_isolation(ha_thd()) && thd_tx_isolation(ha_thd()) == ISO_REPEATABLE_READ)
    return HA_ERR_WRONG_COMMAND;
#ifdef WITH_PARTITION_STORAGE_ENGINE
  /* ha_partition makes 2 of 1 row in all partitions together: let that one be deleted and counted by itself. */
  if (table->part_info && connection_->full_delete_of != table)
  {
    if (full_delete_rows_ == 0)
      return 0;
    if (full_delete_rows_ == 1)
      return HA_ERR_WRONG_COMMAND;
    connection_->full_delete_of= table;
  }
#endif
  const Work work(handler_stats, s);
  return fail(s, es_delete_all(s, table_));
}
