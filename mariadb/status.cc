/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  Status variables and SHOW ENGINE. Nothing here takes a lock that a row operation takes.

  Counters have a global and a session value. Gauges (memory by account, log positions, recovery) are of the engine and
  the same in both, as is the one text: how the log is made durable.
*/
#include "status.h"
#include "schema_rows.h"
#include "transaction.h"
#include <string>

namespace shim
{
namespace
{
/*
  Gives the server an array of names and values that lives as long as the statement. The names of the parts are joined
  to "Esker_" by the server.

  performance_schema.status_by_thread calls it with the THD of each connection there is, which runs its own statements
  meanwhile: memory comes from the caller's, and of another connection nothing is shown, since nothing of it may be read.
*/
int show_all(THD *of, st_mysql_show_var *var, void *, system_status_var *, enum_var_type scope)
{
  static st_mysql_show_var none= {nullptr, nullptr, SHOW_UNDEF};
  var->type= SHOW_ARRAY;
  var->value= &none;
  THD *thd= current_thd;
  if (!engine || !thd || (scope != SHOW_OPT_GLOBAL && of != thd))
    return 0;
  const uint32_t counters= es_counter_count(), gauges= es_gauge_count();
  const size_t count= counters + gauges + 1;
  auto *variables= static_cast<st_mysql_show_var *>(thd_calloc(thd, (count + 1) * sizeof(st_mysql_show_var)));
  auto *values= static_cast<uint64_t *>(thd_calloc(thd, (count + 1) * sizeof(uint64_t)));
  if (!variables || !values)
    return 0;
  const Connection *connection= scope == SHOW_OPT_GLOBAL ? nullptr : Connection::find(thd);
  for (uint32_t i= 0; i < counters; i++)
  {
    if (scope == SHOW_OPT_GLOBAL)
      values[i]= es_counter_global(i);
    else if (connection)
      values[i]= es_counter_session(connection->session(), i);
    variables[i]= {es_counter_name(i), &values[i], SHOW_ULONGLONG};
  }
  es_gauges(engine, values + counters, gauges);
  for (uint32_t i= 0; i < gauges; i++)
    variables[counters + i]= {es_gauge_name(i), &values[counters + i], SHOW_ULONGLONG};
  /* The server reads it, and no more. */
  variables[count - 1]= {"sync_method", const_cast<char *>(es_sync_method(engine)), SHOW_CHAR};
  variables[count]= {nullptr, nullptr, SHOW_UNDEF};
  var->value= variables;
  return 0;
}

extern "C" void append(void *context, const char *text, size_t length)
try
{
  static_cast<std::string *>(context)->append(text, length);
}
catch (const std::bad_alloc &)
{
  /* The text stays as long as it is. */
}

struct Printer
{
  THD *thd;
  stat_print_fn *print;
  bool failed;
};

extern "C" void print_site(void *context, const char *name, const char *figures)
{
  auto *printer= static_cast<Printer *>(context);
  printer->failed|= printer->print(printer->thd, product, sizeof product - 1, name, strlen(name), figures,
                                   strlen(figures));
}
}

st_mysql_show_var status_variables[]=
{
  {product, reinterpret_cast<void *>(show_all), SHOW_FUNC},
  {nullptr, nullptr, SHOW_UNDEF}
};

bool show_status(handlerton *, THD *thd, stat_print_fn *print, enum ha_stat_type type)
{
  switch (type) {
  case HA_ENGINE_STATUS:
  {
    std::string text;
    if (const Engine_use in_use; in_use)
      es_status_text(in_use, table_for_people, append, &text);
    return print(thd, product, sizeof product - 1, "", 0, text.data(), text.size());
  }
  case HA_ENGINE_MUTEX:
  {
    Printer printer= {thd, print, false};
    es_lock_report(print_site, &printer);
    return printer.failed;
  }
  default:
    return false;
  }
}
}
