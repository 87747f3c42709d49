/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  What a statement does to a table: enters the transaction, and says which rows its reads lock.

  Esker takes no table locks (lock_count() is 0): metadata locks keep DDL out, row locks other writers.
*/
#include "ha_esker.h"
#include "errors.h"
#include "sql_sequence.h"

using namespace shim;

namespace
{
/* Reads of a table that is only a source take no locks: the binlog has rows, so nothing need be repeatable. */
EsLockMode lock_of(thr_lock_type type)
{
  if (type >= TL_FIRST_WRITE)
    return EsLockMode::Exclusive;
  if (type == TL_READ_WITH_SHARED_LOCKS || type == TL_READ_SKIP_LOCKED)
    return EsLockMode::Shared;
  return EsLockMode::None;
}


bool skips_locked(thr_lock_type type)
{
  return type == TL_READ_SKIP_LOCKED || type == TL_WRITE_SKIP_LOCKED;
}
}

THR_LOCK_DATA **ha_esker::store_lock(THD *, THR_LOCK_DATA **to, thr_lock_type lock_type)
{
  ESKER_CALLED();
  /* TL_IGNORE may come from another thread than the one that uses the table. */
  if (lock_type != TL_IGNORE)
  {
    read_lock_= lock_of(lock_type);
    skip_locked_= skips_locked(lock_type);
  }
  return to;
}

int ha_esker::external_lock(THD *thd, int lock_type)
{
  ESKER_CALLED();
  if (lock_type == F_UNLCK)
  {
    if (Trace::any())
      Trace::unlocked(thd);
    connection_= nullptr;
    lock_= EsLockMode::None;
    skip_locked_= false;
    return 0;
  }
  begin_statement();
  /* One that the server looks for duplicates by: it says itself what fails. */
  if (lock_type == F_WRLCK)
    is_clone_= false;
  /* F_WRLCK of a SELECT is FOR UPDATE. */
  lock_= lock_type == F_WRLCK ? EsLockMode::Exclusive : read_lock_;
  int error= 0;
  /* The server opens a sequence under a lock of its own, for which a transaction ahead may wait. */
  const bool is_opened= !is_sequence() || table->s->sequence->initialized == SEQUENCE::SEQ_READY_TO_USE;
  Connection *connection= Connection::enter(thd, &error, is_opened);
  connection_= is_sequence() ? nullptr : connection;
  return error ? error : check_partition(thd);
}

/* What is refused once partitions are emptied goes to the binlog all the same. */
int ha_esker::check_partition(THD *thd)
{
  if (likely(!(partition_flags_of(thd) & ALTER_PARTITION_TRUNCATE)) || lock_ != EsLockMode::Exclusive)
    return 0;
  EsError why;
  const EsStatus status= es_check_copied(table_, &why);
  return status == EsStatus::Ok ? 0 : fail(status, why.text);
}

/* What was read ahead is what another statement sees: HANDLER's table stays open over many. */
void ha_esker::begin_statement()
{
  if (unlikely(scan_cursor_ != nullptr))
  {
    es_cursor_close(scan_cursor_);
    scan_cursor_= nullptr;
    scan_behind_= row_id_;
    batch_.clear();
  }
  if (!index_cursor_)
    return;
  other_statement_= true;
  batch_.fast_end= batch_.next;
}

/*
  At READ COMMITTED alone. Not on a replica: a transaction that is applied while the one before it commits has to wait for
  that one's rows.
*/
void ha_esker::try_semi_consistent_read(bool yes)
{
  THD *thd= ha_thd();
  try_semi_= yes && !thd->slave_thread && thd_tx_isolation(thd) <= ISO_READ_COMMITTED;
}

/*
  Instead of external_lock: under LOCK TABLES, in stored routines, for temporary tables made in between. What store_lock
  was told before is the strongest of all statements of the routine, or LOCK TABLES's own: only lock_type is this one's.
*/
int ha_esker::start_stmt(THD *thd, thr_lock_type lock_type)
{
  ESKER_CALLED();
  begin_statement();
  lock_= lock_of(lock_type);
  skip_locked_= skips_locked(lock_type);
  int error= 0;
  Connection *connection= Connection::enter(thd, &error);
  connection_= is_sequence() ? nullptr : connection;
  return error ? error : check_partition(thd);
}

/* Where neither was called (a temporary table under LOCK TABLES), or the statement ended in between (HANDLER). */
EsSession *ha_esker::enter(int *error)
{
  if (is_sequence())
    return enter_sequence(error);
  connection_= Connection::of_statement(ha_thd(), error);
  return connection_ ? connection_->session() : nullptr;
}

/* INSERT IGNORE passes over a duplicate, whatever becomes of it; REPLACE and ON DUPLICATE KEY UPDATE change it. */
int ha_esker::extra(enum ha_extra_function operation)
{
  ESKER_CALLED();
  switch (operation) {
  case HA_EXTRA_IGNORE_DUP_KEY:
  {
    const THD *thd= ha_thd();
    lock_duplicate_= thd->slave_thread || !thd->lex->ignore || thd->lex->duplicates != DUP_ERROR;
    break;
  }
  case HA_EXTRA_WRITE_CAN_REPLACE:
  case HA_EXTRA_INSERT_WITH_UPDATE:
    lock_duplicate_= true;
    break;
  case HA_EXTRA_NO_IGNORE_DUP_KEY:
    lock_duplicate_= false;
    break;
  default:
    break;
  }
  return 0;
}

/*
  A sort of UPDATE or DELETE that cannot write its file does not end the scan that it read: whoever gets the table next would go on
  with it, by an index that was never begun.
*/
int ha_esker::reset()
{
  ESKER_CALLED();
  (void) table->file->ha_index_or_rnd_end();
  close_cursors();
  ds_mrr_.dsmrr_close();
  /* The server has let go of it. */
  made_second_= false;
  try_semi_= skip_locked_= lock_duplicate_= false;
  full_delete_= Full_delete::none;
  numbers_= Numbers();
  detail_status_= EsStatus::Ok;
  return 0;
}
