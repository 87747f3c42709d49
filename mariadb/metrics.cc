/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  INFORMATION_SCHEMA.ESKER_METRICS: every numeric status variable with its unit, its scope and its meaning. Takes no lock that
  a row operation takes, and reads no file.
*/
#include "information_schema.h"
#include "schema_rows.h"

namespace shim
{
namespace
{
ST_FIELD_INFO fields[]=
{
  Show::Column("NAME", Show::Varchar(NAME_CHAR_LEN), NOT_NULL),
  Show::Column("VALUE", number(), NOT_NULL),
  Show::Column("UNIT", Show::Varchar(16), NOT_NULL),
  Show::Column("SCOPE", Show::Varchar(16), NOT_NULL),
  Show::Column("MEANING", Show::Varchar(512), NOT_NULL),
  Show::CEnd()
};

struct Table
{
  THD *thd;
  TABLE *table;
  bool failed;
};

extern "C" bool add_metric(void *context, const EsMetric *metric)
try
{
  auto *to= static_cast<Table *>(context);
  Row row(to->table);
  row.text(std::string(product) + "_" + metric->name);
  row.number(metric->value);
  row.text(metric->unit);
  row.text(metric->per_session ? "global, session" : "global");
  row.text(metric->meaning);
  to->failed= to->thd->check_killed() || schema_table_store_record(to->thd, to->table);
  return to->failed;
}
catch (const std::bad_alloc &)
{
  static_cast<Table *>(context)->failed= true;
  return true;
}

int fill(THD *thd, TABLE_LIST *tables, COND *)
{
  Table to= {thd, tables->table, false};
  const Engine_use in_use;
  if (in_use)
    es_metrics(in_use, add_metric, &to);
  return to.failed;
}
}

int init_metrics_table(void *schema)
{
  auto *table= static_cast<ST_SCHEMA_TABLE *>(schema);
  table->fields_info= fields;
  table->fill_table= fill;
  return 0;
}
}
