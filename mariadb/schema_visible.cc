/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  INFORMATION_SCHEMA.ESKER_FILES, ESKER_MEMORY, ESKER_WAITS and ESKER_WAIT_HIST: what was done to which file, whose memory it
  is, and what was waited for.

  The engine tells all of it from memory. Without PROCESS a session sees its own rows of sessions, and nothing of tables and
  files, of which it need not know that they are there.
*/
#include "information_schema.h"
#include "schema_rows.h"

namespace shim
{
namespace
{
/* Rows are as long as their columns may be: short ones keep the list of many files in memory. */
constexpr uint path_chars= 200;

ST_FIELD_INFO file_fields[]=
{
  Show::Column("PATH", Show::Varchar(path_chars), NOT_NULL),
  Show::Column("KIND", Show::Varchar(16), NOT_NULL),
  Show::Column("TABLE_NAME", Show::Varchar(full_name_chars), NULLABLE),
  Show::Column("INDEX_NAME", Show::Varchar(NAME_CHAR_LEN), NULLABLE),
  Show::Column("SIZE_B", number(), NOT_NULL),
  Show::Column("READS", number(), NOT_NULL),
  Show::Column("READ_B", number(), NOT_NULL),
  Show::Column("READ_US", number(), NOT_NULL),
  Show::Column("WRITES", number(), NOT_NULL),
  Show::Column("WRITE_B", number(), NOT_NULL),
  Show::Column("WRITE_US", number(), NOT_NULL),
  Show::Column("SYNCS", number(), NOT_NULL),
  Show::Column("SYNC_US", number(), NOT_NULL),
  Show::CEnd()
};

ST_FIELD_INFO memory_fields[]=
{
  Show::Column("OWNER", Show::Varchar(16), NOT_NULL),
  Show::Column("OWNER_ID", Show::Varchar(full_name_chars), NULLABLE),
  Show::Column("KIND", Show::Varchar(16), NOT_NULL),
  Show::Column("BYTES", number(), NOT_NULL),
  Show::Column("PEAK_B", number(), NULLABLE),
  Show::Column("OBJECTS", number(), NOT_NULL),
  Show::CEnd()
};

ST_FIELD_INFO wait_fields[]=
{
  Show::Column("SCOPE", Show::Varchar(8), NOT_NULL),
  Show::Column("CONNECTION_ID", number(), NULLABLE),
  Show::Column("CLASS", Show::Varchar(16), NOT_NULL),
  Show::Column("NAME", Show::Varchar(NAME_CHAR_LEN), NOT_NULL),
  Show::Column("COUNT", number(), NOT_NULL),
  Show::Column("SUM_US", number(), NOT_NULL),
  Show::Column("MAX_US", number(), NOT_NULL),
  Show::Column("P50_US", number(), NULLABLE),
  Show::Column("P99_US", number(), NULLABLE),
  Show::CEnd()
};

ST_FIELD_INFO bucket_fields[]=
{
  Show::Column("NAME", Show::Varchar(NAME_CHAR_LEN), NOT_NULL),
  Show::Column("BUCKET_FROM_NS", number(), NOT_NULL),
  Show::Column("BUCKET_TO_NS", number(), NULLABLE),
  Show::Column("COUNT", number(), NOT_NULL),
  Show::CEnd()
};

extern "C" bool add_file(void *context, const EsFile *file)
try
{
  const Reader *reader= static_cast<const Reader *>(context);
  Row row(reader->table);
  /* Of a long one, its end. */
  const std::string path= file->path;
  row.text(path.size() > path_chars ? path.substr(path.size() - path_chars) : path, system_charset_info);
  row.text(file->kind);
  if (file->table)
    row.text(full_name(file->table));
  else
    row.null();
  row.text_or_null(file->index);
  row.number(file->size_bytes);
  row.number(file->reads);
  row.number(file->read_bytes);
  row.microseconds(file->read_ns);
  row.number(file->writes);
  row.number(file->write_bytes);
  row.microseconds(file->write_ns);
  row.number(file->syncs);
  row.microseconds(file->sync_ns);
  return reader->store();
}
catch (const std::bad_alloc &)
{
  return true;
}

extern "C" bool add_memory(void *context, const EsMemory *memory)
try
{
  const Reader *reader= static_cast<const Reader *>(context);
  if (memory->of_session ? !reader->sees(memory->connection) : memory->table && !reader->sees_all)
    return false;
  Row row(reader->table);
  row.text(memory->owner);
  if (memory->table)
    row.text(full_name(memory->table));
  else if (memory->connection)
    row.text(std::to_string(memory->connection));
  else
    row.null();
  row.text(memory->kind);
  row.number(memory->bytes);
  if (memory->has_peak)
    row.number(memory->peak_bytes);
  else
    row.null();
  row.number(memory->objects);
  return reader->store();
}
catch (const std::bad_alloc &)
{
  return true;
}

extern "C" bool add_wait(void *context, const EsWait *wait)
try
{
  const Reader *reader= static_cast<const Reader *>(context);
  if (wait->of_session && !reader->sees(wait->connection))
    return false;
  Row row(reader->table);
  row.text(wait->of_session ? "session" : "global");
  row.number_or_null(wait->connection);
  row.text(wait->kind);
  row.text(wait->name);
  row.number(wait->count);
  row.microseconds(wait->sum_ns);
  row.microseconds(wait->max_ns);
  if (wait->of_session)
  {
    row.null();
    row.null();
  }
  else
  {
    row.microseconds(wait->p50_ns);
    row.microseconds(wait->p99_ns);
  }
  return reader->store();
}
catch (const std::bad_alloc &)
{
  return true;
}

extern "C" bool add_bucket(void *context, const EsWaitBucket *bucket)
try
{
  const Reader *reader= static_cast<const Reader *>(context);
  Row row(reader->table);
  row.text(bucket->name);
  row.number(bucket->from_ns);
  row.number_or_null(bucket->to_ns);
  row.number(bucket->count);
  return reader->store();
}
catch (const std::bad_alloc &)
{
  return true;
}

int fill_files(THD *thd, TABLE_LIST *tables, COND *)
{
  Reader reader(thd, tables->table);
  const Engine_use in_use;
  if (in_use && reader.sees_all)
    es_files(in_use, add_file, &reader);
  return thd->is_error();
}

int fill_memory(THD *thd, TABLE_LIST *tables, COND *)
{
  Reader reader(thd, tables->table);
  const Engine_use in_use;
  if (in_use)
    es_memory(in_use, add_memory, &reader);
  return thd->is_error();
}

int fill_waits(THD *thd, TABLE_LIST *tables, COND *)
{
  Reader reader(thd, tables->table);
  const Engine_use in_use;
  if (in_use)
    es_waits(in_use, add_wait, &reader);
  return thd->is_error();
}

int fill_buckets(THD *thd, TABLE_LIST *tables, COND *)
{
  Reader reader(thd, tables->table);
  const Engine_use in_use;
  if (in_use)
    es_wait_buckets(in_use, add_bucket, &reader);
  return thd->is_error();
}

/* FLUSH ESKER_WAITS, and of the other one, whose figures are the same. */
int forget_waits()
{
  keep_from_binlog();
  const Engine_use in_use;
  if (in_use)
    es_forget_waits(in_use);
  return 0;
}
}

int init_files_table(void *schema) { return init_table(schema, file_fields, fill_files); }
int init_memory_table(void *schema) { return init_table(schema, memory_fields, fill_memory); }
int init_waits_table(void *schema) { return init_table(schema, wait_fields, fill_waits, forget_waits); }
int init_wait_hist_table(void *schema) { return init_table(schema, bucket_fields, fill_buckets, forget_waits); }
}
