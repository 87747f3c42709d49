/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  INFORMATION_SCHEMA.ESKER_TABLE_STATS: what was done to each table, and by each index. Without PROCESS it is empty.
*/
#include "information_schema.h"
#include "schema_rows.h"

namespace shim
{
namespace
{
ST_FIELD_INFO work_fields[]=
{
  Show::Column("SCHEMA", Show::Varchar(NAME_CHAR_LEN), NOT_NULL),
  Show::Column("TABLE", Show::Varchar(table_chars), NOT_NULL),
  Show::Column("INDEX", Show::Varchar(NAME_CHAR_LEN), NULLABLE),
  Show::Column("ROWS_READ", number(), NOT_NULL),
  Show::Column("ROWS_CHANGED", number(), NOT_NULL),
  Show::Column("BLOCKS_CACHE", number(), NOT_NULL),
  Show::Column("BLOCKS_PAGECACHE", number(), NULLABLE),
  Show::Column("BLOCKS_DEVICE", number(), NULLABLE),
  Show::Column("BLOCKS_READ", number(), NOT_NULL),
  Show::Column("BLOCKS_READ_BY_CHANGES", number(), NOT_NULL),
  Show::Column("LOCK_WAITS", number(), NOT_NULL),
  Show::Column("LOCK_WAIT_US", number(), NOT_NULL),
  Show::CEnd()
};

extern "C" bool add_work(void *context, const EsTableWork *work)
try
{
  const Reader *reader= static_cast<const Reader *>(context);
  Row row(reader->table);
  const Table_name name= readable(work->table);
  row.text(name.schema);
  row.text(name.table);
  row.text_or_null(work->index);
  row.number(work->rows_read);
  row.number(work->rows_changed);
  row.number(work->blocks_cached);
  if (work->has_source)
  {
    row.number(work->blocks_pagecache);
    row.number(work->blocks_device);
  }
  else
  {
    row.null();
    row.null();
  }
  row.number(work->blocks_read);
  row.number(work->blocks_read_by_changes);
  row.number(work->lock_waits);
  row.number(work->lock_wait_us);
  return reader->store();
}
catch (const std::bad_alloc &)
{
  return true;
}

int fill_table_stats(THD *thd, TABLE_LIST *tables, COND *)
{
  Reader reader(thd, tables->table);
  const Engine_use in_use;
  if (in_use && reader.sees_all)
    es_table_work(in_use, add_work, &reader);
  return thd->is_error();
}

/* FLUSH ESKER_TABLE_STATS. */
int forget_table_stats()
{
  keep_from_binlog();
  const Engine_use in_use;
  if (in_use)
    es_forget_table_work(in_use);
  return 0;
}
}

int init_table_stats_table(void *schema)
{
  return init_table(schema, work_fields, fill_table_stats, forget_table_stats);
}
}
