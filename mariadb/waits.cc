/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  Statements of connections, and the stages of their waits.
*/
#include "waits.h"
#include "sql_show.h"
#include <new>

namespace shim
{
Statement statement_of(uint64_t connection)
{
  Statement statement;
  /* Nothing fails while it is locked. */
  statement.text.reserve(text_chars * MY_CS_MBMAXLEN);
  /* Its LOCK_thd_kill is locked: it cannot go. */
  THD *thd= connection ? find_thread_by_id(static_cast<longlong>(connection)) : nullptr;
  if (!thd)
    return statement;
  statement.id= thd->query_id;
  mysql_mutex_lock(&thd->LOCK_thd_data);
  if (thd->query())
  {
    statement.charset= thd->query_charset();
    statement.text.assign(thd->query(), MY_MIN(thd->query_length(), text_chars * statement.charset->mbmaxlen));
  }
  mysql_mutex_unlock(&thd->LOCK_thd_data);
  mysql_mutex_unlock(&thd->LOCK_thd_kill);
  return statement;
}

extern "C" size_t statement_text(uint64_t connection, uint8_t *text, size_t room)
try
{
  const Statement statement= statement_of(connection);
  uint errors;
  return my_convert(reinterpret_cast<char *>(text), static_cast<uint32>(room), &my_charset_utf8mb4_bin,
                    statement.text.data(), static_cast<uint32>(statement.text.size()), statement.charset, &errors);
}
catch (const std::bad_alloc &)
{
  return 0;
}

namespace
{
thread_local PSI_stage_info stage_before;
thread_local bool waits= false;
}

/*
  Waits in threads of nobody's are not seen. In commit_ordered, which runs in another connection's thread, Esker waits for
  nothing.
*/
extern "C" void waiting(const char *what)
{
  THD *thd= current_thd;
  if (!thd)
    return;
  if (what)
  {
    PSI_stage_info stage= {0, what, 0};
    thd->backup_stage(&stage_before);
    thd->enter_stage(&stage, __func__, __FILE__, __LINE__);
    waits= true;
  }
  else if (waits)
  {
    thd->enter_stage(&stage_before, __func__, __FILE__, __LINE__);
    waits= false;
  }
}
}
