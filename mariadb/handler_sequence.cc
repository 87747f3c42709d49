/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  SEQUENCE objects: tables of one row that the server reads and writes for NEXT VALUE.

  Their values are used up even if the transaction rolls back, so each write is a transaction of its own, in a session
  of the handler's own, and each read sees the latest. The server serializes all access to a sequence.

  Order: what is written is durable before anybody ends who uses a value of it, in whatever engine. Values that are written one by
  one are this connection's alone: its transaction waits for the log once for all of them, before another engine or the binlog has
  decided it (await_log in transaction.cc). Values that are written many at a time the server gives to others, too, of whom
  nothing is known here: these are durable at once.
*/
#include "ha_esker.h"
#include "errors.h"

using namespace shim;

EsSession *ha_esker::enter_sequence(int *error)
{
  EsError why;
  if (!sequence_session_)
  {
    EsStatus status= es_session_open(engine, nullptr, &sequence_session_, &why);
    if (status != EsStatus::Ok)
    {
      sequence_session_= nullptr;
      *error= fail(status, why.text);
      return nullptr;
    }
  }
  es_set_connection(sequence_session_, thd_get_thread_id(ha_thd()));
  if (es_in_transaction(sequence_session_))
    return sequence_session_;
  EsStatus status= es_begin(sequence_session_, EsIsolation::ReadCommitted, false);
  if (status == EsStatus::Ok)
    status= es_begin_statement(sequence_session_);
  if (!(*error= fail(sequence_session_, status)))
    return sequence_session_;
  (void) es_rollback(sequence_session_);
  return nullptr;
}

/*
  Commits what the sequence's session did, or undoes it after an error, also of the commit: nobody else would let go of its lock.
  The scan in which the server writes ends after that: then there is nothing left to do, and the error keeps its words.
*/
int ha_esker::end_sequence(int error)
{
  if (!sequence_session_ || !es_in_transaction(sequence_session_))
    return error;
  if (!error && !(error= commit_sequence()))
    return 0;
  (void) es_rollback(sequence_session_);
  return error;
}

int ha_esker::commit_sequence()
{
  Connection *connection= Connection::find(ha_thd());
  const SEQUENCE *sequence= table->s->sequence;
  if (!connection || !sequence || sequence->cache > 1)
    return fail(sequence_session_, es_commit(sequence_session_));
  uint64_t end= 0;
  EsStatus status= es_commit_unsynced(sequence_session_, &end);
  if (status != EsStatus::Ok || !end)
    return fail(sequence_session_, status);
  connection->note_log_end(end);
  /* Who has written takes part in the decision: the server marks that for ha_sequence, and not for what that stands upon. */
  Ha_trx_info *info= ha_thd()->ha_data[ht->slot].ha_info;
  if (info->is_started() && table_share->tmp_table == NO_TMP_TABLE)
    info->set_trx_read_write();
  return 0;
}
