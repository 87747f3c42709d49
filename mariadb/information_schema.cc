/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  INFORMATION_SCHEMA.ESKER_TRX, ESKER_LOCKS and ESKER_LOCK_WAITS: who has a transaction open, what it has locked, and who waits
  for whom.

  The engine gives its list first and is left alone then; query texts come from the server, under the other session's own
  locks. Without PROCESS a session sees its own rows, and of others no text. No column is longer than 512 characters: it
  would become a BLOB, and the result a table on disk.
*/
#include "information_schema.h"
#include "schema_rows.h"
#include "sql_time.h"
#include "tztime.h"

namespace shim
{
namespace
{
ST_FIELD_INFO trx_fields[]=
{
  Show::Column("TRX_ID", number(), NOT_NULL),
  Show::Column("CONNECTION_ID", number(), NULLABLE),
  Show::Column("QUERY_ID", number(), NULLABLE),
  Show::Column("STATE", Show::Varchar(16), NOT_NULL),
  Show::Column("STARTED", Show::Datetime(6), NOT_NULL),
  Show::Column("AGE_US", number(), NOT_NULL),
  Show::Column("ISOLATION", Show::Varchar(16), NOT_NULL),
  Show::Column("ROWS_CHANGED", number(), NOT_NULL),
  Show::Column("LOCKS", number(), NOT_NULL),
  Show::Column("REDO_B", number(), NOT_NULL),
  Show::Column("VIEW_SEQ", number(), NULLABLE),
  Show::Column("XID", Show::Varchar(text_chars), NULLABLE),
  Show::Column("QUERY", Show::Varchar(text_chars), NULLABLE),
  Show::CEnd()
};

ST_FIELD_INFO lock_wait_fields[]=
{
  Show::Column("WAITING_CONNECTION", number(), NOT_NULL),
  Show::Column("BLOCKING_CONNECTION", number(), NULLABLE),
  Show::Column("WAITED_US", number(), NOT_NULL),
  Show::Column("TABLE", Show::Varchar(full_name_chars), NOT_NULL),
  Show::Column("KIND", Show::Varchar(16), NOT_NULL),
  Show::Column("KEY_TEXT", Show::Varchar(text_chars), NULLABLE),
  Show::Column("WAITING_QUERY", Show::Varchar(text_chars), NULLABLE),
  Show::Column("BLOCKING_QUERY", Show::Varchar(text_chars), NULLABLE),
  Show::Column("BLOCKER_IDLE_US", number(), NOT_NULL),
  Show::Column("ROOT_BLOCKER", number(), NULLABLE),
  Show::CEnd()
};

/* Names are short, so that what the engine tells at most stays a table in memory. */
ST_FIELD_INFO lock_fields[]=
{
  Show::Column("TRX_ID", number(), NOT_NULL),
  Show::Column("SCHEMA", Show::Varchar(NAME_CHAR_LEN), NULLABLE),
  Show::Column("TABLE", Show::Varchar(table_chars), NULLABLE),
  Show::Column("KIND", Show::Varchar(16), NOT_NULL),
  Show::Column("KEY_NAME", Show::Varchar(NAME_CHAR_LEN), NULLABLE),
  Show::Column("KEY_TEXT", Show::Varchar(text_chars), NOT_NULL),
  Show::Column("MODE", Show::Varchar(16), NULLABLE),
  Show::Column("STATUS", Show::Varchar(8), NOT_NULL),
  Show::CEnd()
};

/* As XA RECOVER FORMAT='SQL' has it. */
std::string xid_text(const EsXid &xid)
{
  static const char digits[]= "0123456789abcdef";
  const auto hex= [&xid](uint32_t from, uint32_t bytes)
  {
    std::string text= "X'";
    for (uint32_t i= from; i < from + bytes; i++)
    {
      text+= digits[xid.data[i] >> 4];
      text+= digits[xid.data[i] & 15];
    }
    return text + "'";
  };
  return hex(0, xid.gtrid_bytes) + "," + hex(xid.gtrid_bytes, xid.bqual_bytes) + "," + std::to_string(xid.format);
}

/* A key's timestamp is in the time zone of who reads it, as it is wherever SQL shows it. */
extern "C" uint64_t local_time(void *context, int64_t unix_seconds)
{
  MYSQL_TIME time;
  const THD *thd= static_cast<const Reader *>(context)->thd;
  thd->variables.time_zone->gmt_sec_to_TIME(&time, static_cast<my_time_t>(unix_seconds));
  return TIME_to_ulonglong_datetime(&time);
}

extern "C" bool add_transaction(void *context, const EsTransaction *trx)
try
{
  const Reader *reader= static_cast<const Reader *>(context);
  if (!reader->sees(trx->connection))
    return false;
  Row row(reader->table);
  const Statement statement= statement_of(trx->connection);
  row.number(trx->id);
  row.number_or_null(trx->connection);
  row.number_or_null(statement.id);
  row.text(trx->state);
  MYSQL_TIME started;
  reader->thd->variables.time_zone->gmt_sec_to_TIME(&started, static_cast<my_time_t>(trx->started_unix_us / 1000000));
  started.second_part= static_cast<ulong>(trx->started_unix_us % 1000000);
  row.next()->store_time(&started);
  row.number(trx->age_us);
  row.text(trx->isolation);
  row.number(trx->rows_changed);
  row.number(trx->rows_locked);
  row.number(trx->redo_bytes);
  row.number_or_null(trx->view_seq);
  if (trx->has_xid)
    row.text(xid_text(trx->xid));
  else
    row.null();
  if (statement.text.empty())
    row.null();
  else
    row.text(statement.text, statement.charset);
  return reader->store();
}
catch (const std::bad_alloc &)
{
  return true;
}

extern "C" bool add_lock_wait(void *context, const EsLockWait *wait)
try
{
  Reader *reader= static_cast<Reader *>(context);
  if (!reader->sees(wait->waiting_connection) && !reader->sees(wait->blocking_connection))
    return false;
  Row row(reader->table);
  row.number(wait->waiting_connection);
  row.number_or_null(wait->blocking_connection);
  row.number(wait->waited_us);
  row.text(full_name(wait->table));
  row.text(wait->kind);
  row.text_or_null(wait->key_text);
  reader->query(&row, wait->waiting_connection);
  reader->query(&row, wait->blocking_connection);
  row.number(wait->blocker_idle_us);
  row.number_or_null(wait->root_blocker);
  return reader->store();
}
catch (const std::bad_alloc &)
{
  return true;
}

extern "C" bool add_lock(void *context, const EsLock *lock)
try
{
  const Reader *reader= static_cast<const Reader *>(context);
  if (!reader->sees(lock->connection))
    return false;
  Row row(reader->table);
  row.number(lock->txn);
  if (*lock->table)
  {
    const Table_name name= readable(lock->table);
    row.text(name.schema);
    row.text(name.table);
  }
  else
  {
    row.null();
    row.null();
  }
  row.text(lock->kind);
  row.text_or_null(lock->key_name);
  row.text_or_null(lock->key_text);
  row.text_or_null(lock->mode);
  row.text(lock->waiting ? "waiting" : "granted");
  return reader->store();
}
catch (const std::bad_alloc &)
{
  return true;
}

int fill_trx(THD *thd, TABLE_LIST *tables, COND *)
{
  Reader reader(thd, tables->table);
  const Engine_use in_use;
  if (in_use)
    es_transactions(in_use, add_transaction, &reader);
  return thd->is_error();
}

int fill_lock_waits(THD *thd, TABLE_LIST *tables, COND *)
{
  Reader reader(thd, tables->table);
  const Engine_use in_use;
  if (in_use)
    es_lock_waits(in_use, add_lock_wait, local_time, &reader);
  return thd->is_error();
}

int fill_locks(THD *thd, TABLE_LIST *tables, COND *)
{
  Reader reader(thd, tables->table);
  const Engine_use in_use;
  if (in_use)
    es_locks(in_use, add_lock, local_time, &reader);
  return thd->is_error();
}
}

st_mysql_information_schema information_schema= {MYSQL_INFORMATION_SCHEMA_INTERFACE_VERSION};

int init_trx_table(void *schema)
{
  auto *table= static_cast<ST_SCHEMA_TABLE *>(schema);
  table->fields_info= trx_fields;
  table->fill_table= fill_trx;
  return 0;
}

int init_lock_waits_table(void *schema)
{
  auto *table= static_cast<ST_SCHEMA_TABLE *>(schema);
  table->fields_info= lock_wait_fields;
  table->fill_table= fill_lock_waits;
  return 0;
}

int init_locks_table(void *schema)
{
  auto *table= static_cast<ST_SCHEMA_TABLE *>(schema);
  table->fields_info= lock_fields;
  table->fill_table= fill_locks;
  return 0;
}
}
