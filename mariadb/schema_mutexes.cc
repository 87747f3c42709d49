/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  INFORMATION_SCHEMA.ESKER_MUTEXES and ESKER_MUTEX_STACKS: the engine's own locks, by name, and what code had to do with them when
  somebody waited. Without PROCESS they are empty.
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
  Show::Column("SPINS", number(), NOT_NULL),
  Show::Column("WAIT_US", number(), NOT_NULL),
  Show::Column("WAIT_MAX_US", number(), NOT_NULL),
  Show::Column("HOLD_US", number(), NOT_NULL),
  Show::Column("HOLD_MAX_US", number(), NOT_NULL),
  Show::Column("UNLOCK_US", number(), NOT_NULL),
  Show::Column("REWAKE_US", number(), NULLABLE),
  Show::Column("SAMPLED_1_IN", number(), NULLABLE),
  Show::CEnd()
};

/* Short, so that what is kept of stacks at most is a table in memory. */
constexpr uint frame_chars= 160;

ST_FIELD_INFO frame_fields[]=
{
  Show::Column("NAME", Show::Varchar(NAME_CHAR_LEN), NOT_NULL),
  Show::Column("ROLE", Show::Varchar(8), NOT_NULL),
  Show::Column("STACK_ID", number(), NOT_NULL),
  Show::Column("SAMPLES", number(), NOT_NULL),
  Show::Column("SUM_US", number(), NOT_NULL),
  Show::Column("FRAME_NO", number(), NOT_NULL),
  Show::Column("FRAME", Show::Varchar(frame_chars), NOT_NULL),
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
  row.number(mutex->spins);
  row.microseconds(mutex->wait_ns);
  row.microseconds(mutex->wait_max_ns);
  row.microseconds(mutex->hold_ns);
  row.microseconds(mutex->hold_max_ns);
  row.microseconds(mutex->unlock_ns);
  if (mutex->has_rewake)
    row.microseconds(mutex->rewake_ns);
  else
    row.null();
  row.number_or_null(mutex->sampled_one_in);
  return reader->store();
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

extern "C" bool add_frame(void *context, const EsMutexFrame *frame)
try
{
  const Reader *reader= static_cast<const Reader *>(context);
  Row row(reader->table);
  row.text(frame->name);
  row.text(frame->role);
  row.number(frame->stack_id);
  row.number(frame->samples);
  row.microseconds(frame->sum_ns);
  row.number(frame->frame_no);
  row.text(std::string(frame->frame).substr(0, frame_chars));
  return reader->store();
}
catch (const std::bad_alloc &)
{
  return true;
}

int fill_stacks(THD *thd, TABLE_LIST *tables, COND *)
{
  Reader reader(thd, tables->table);
  if (reader.sees_all)
    es_mutex_stacks(add_frame, &reader);
  return thd->is_error();
}

/* FLUSH ESKER_MUTEX_STACKS. */
int forget_stacks()
{
  keep_from_binlog();
  es_forget_mutex_stacks();
  return 0;
}

/* FLUSH ESKER_MUTEXES. */
int forget_mutexes()
{
  keep_from_binlog();
  es_forget_mutexes();
  return 0;
}
}

int init_mutexes_table(void *schema)
{
  return init_table(schema, mutex_fields, fill_mutexes, forget_mutexes);
}

int init_mutex_stacks_table(void *schema)
{
  return init_table(schema, frame_fields, fill_stacks, forget_stacks);
}
}
