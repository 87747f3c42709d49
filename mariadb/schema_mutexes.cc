/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  INFORMATION_SCHEMA.ESKER_MUTEXES: the engine's own locks, by name. Without PROCESS it is empty.
*/
#include "information_schema.h"
#include "schema_rows.h"

namespace shim
{
namespace
{
ST_FIELD_INFO mutex_fields[]=
{
  Show::Column("NAME", Show::Varchar(NAME_CHAR_LEN), NOT_NULL),
  Show::Column("RANK", number(), NOT_NULL),
  Show::Column("ACQUIRED", number(), NOT_NULL),
  Show::Column("CONTENDED", number(), NOT_NULL),
  Show::Column("SPINS", number(), NULLABLE),
  Show::Column("WAIT_US", number(), NOT_NULL),
  Show::Column("WAIT_MAX_US", number(), NOT_NULL),
  Show::Column("HOLD_US", number(), NOT_NULL),
  Show::Column("HOLD_MAX_US", number(), NOT_NULL),
  Show::Column("UNLOCK_US", number(), NOT_NULL),
  Show::Column("REWAKE_US", number(), NULLABLE),
  Show::Column("SAMPLED_1_IN", number(), NULLABLE),
  Show::CEnd()
};

extern "C" bool add_mutex(void *context, const EsMutex *mutex)
try
{
  const Reader *reader= static_cast<const Reader *>(context);
  Row row(reader->table);
  row.text(mutex->name);
  row.number(mutex->rank);
  row.number(mutex->acquired);
  row.number(mutex->contended);
  /* The lock underneath keeps it to itself, as what a thread does from its waking on. */
  row.null();
  row.microseconds(mutex->wait_ns);
  row.microseconds(mutex->wait_max_ns);
  row.microseconds(mutex->hold_ns);
  row.microseconds(mutex->hold_max_ns);
  row.microseconds(mutex->unlock_ns);
  row.null();
  row.number_or_null(mutex->sampled_one_in);
  return schema_table_store_record(reader->thd, reader->table);
}
catch (const std::bad_alloc &)
{
  return true;
}

int fill_mutexes(THD *thd, TABLE_LIST *tables, COND *)
{
  Reader reader(thd, tables->table);
  if (reader.sees_all)
    es_mutexes(add_mutex, &reader);
  return thd->is_error();
}

/* FLUSH ESKER_MUTEXES. */
int forget_mutexes()
{
  es_forget_mutexes();
  return 0;
}
}

int init_mutexes_table(void *schema)
{
  return init_table(schema, mutex_fields, fill_mutexes, forget_mutexes);
}
}
