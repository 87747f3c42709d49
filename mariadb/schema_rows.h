/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  What the tables of INFORMATION_SCHEMA are filled with.
*/
#ifndef ESKER_SCHEMA_ROWS_INCLUDED
#define ESKER_SCHEMA_ROWS_INCLUDED

#include "shim.h"
#include "waits.h"
#include "sql_i_s.h"
#include "sql_show.h"
#include "sql_acl.h"
#include <string>
#include <unordered_map>

namespace shim
{
/* A table's, its partition's and its subpartition's. */
constexpr uint table_chars= 3 * NAME_CHAR_LEN + 8;
/* With its schema. */
constexpr uint full_name_chars= NAME_CHAR_LEN + 1 + table_chars;

inline Show::ULonglong number() { return Show::ULonglong(); }

/* Fills a table's row column by column, in the order of its fields. */
class Row
{
public:
  explicit Row(TABLE *table) : next_(table->field) { restore_record(table, s->default_values); }

  Field *next()
  {
    Field *field= *next_++;
    field->set_notnull();
    return field;
  }
  void null() { (*next_++)->set_null(); }
  void number(uint64_t value) { next()->store(static_cast<longlong>(value), true); }
  /* 0 stands for none. */
  void number_or_null(uint64_t value)
  {
    if (value)
      number(value);
    else
      null();
  }
  /* Given in nanoseconds, told in microseconds. */
  void microseconds(uint64_t ns) { number(ns / 1000); }
  void text(const std::string &value, CHARSET_INFO *charset= system_charset_info)
  {
    next()->store(value.data(), value.size(), charset);
  }

  /* In the engine's character set. */
  void text_or_null(const char *value)
  {
    if (value)
      text(value, &my_charset_utf8mb4_bin);
    else
      null();
  }

private:
  Field **next_;
};

struct Reader
{
  Reader(THD *thd_arg, TABLE *table_arg)
    : thd(thd_arg), table(table_arg), sees_all(!check_global_access(thd, PROCESS_ACL, true)) {}
  bool sees(uint64_t connection) const { return sees_all || connection == thd->thread_id; }
  /* What a connection runs; asked once of each, since that goes over all threads. */
  void query(Row *row, uint64_t connection)
  {
    if (!connection || !sees(connection))
      return row->null();
    auto known= statements_.find(connection);
    if (known == statements_.end())
    {
      Statement statement= statement_of(connection);
      statement.text.shrink_to_fit();
      known= statements_.emplace(connection, std::move(statement)).first;
    }
    const Statement &statement= known->second;
    if (statement.text.empty())
      row->null();
    else
      row->text(statement.text, statement.charset);
  }

  /* The row is complete. True: no more, as it failed or the reader is killed. */
  bool store() const { return thd->check_killed() || schema_table_store_record(thd, table); }

  THD *thd;
  TABLE *table;
  const bool sees_all;

private:
  std::unordered_map<uint64_t, Statement> statements_;
};

/* FLUSH of a table's name is of this server alone: one without the plugin cannot even parse it. */
inline void keep_from_binlog()
{
  if (THD *thd= current_thd)
    thd->lex->no_write_to_binlog= true;
}

/* Makes a plugin's ST_SCHEMA_TABLE of it; `reset` is what FLUSH of its name does, after keep_from_binlog(). */
inline int init_table(void *schema, ST_FIELD_INFO *fields, int (*fill)(THD *, TABLE_LIST *, COND *),
               int (*reset)()= nullptr)
{
  auto *table= static_cast<ST_SCHEMA_TABLE *>(schema);
  table->fields_info= fields;
  table->fill_table= fill;
  table->reset_table= reset;
  return 0;
}

struct Table_name
{
  std::string schema, table;
};

/* "db/table#P#p", in the characters of files, as people know it; of a temporary table's path the name, and no schema. */
Table_name readable(const char *name);

/* The same in one text, with the schema if there is one. */
std::string full_name(const char *name);

/* EsTableForPeopleFn */
extern "C" size_t table_for_people(const char *name, uint8_t *to, size_t room);
}

#endif
