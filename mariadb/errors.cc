/* This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
   License as published by the Free Software Foundation; version 2 of the License. */

/**
  @file
  Error mapping. Invariant: no status maps to HA_ERR_RECORD_DELETED or HA_ERR_END_OF_FILE, which the server takes for
  "go on" and "done".
*/
#include "errors.h"

namespace shim
{
namespace
{
enum class Rollback { none, statement, transaction };

struct Mapping
{
  es_status status;
  int ha_error;
  /* SQL error that carries the engine's words; 0: the server's message for ha_error says it all. */
  uint sql_error;
  Rollback rollback;
};

constexpr Mapping mappings[]=
{
  {ES_E_IO, HA_ERR_GENERIC, ER_GET_ERRMSG, Rollback::none},
  {ES_E_DISK_FULL, HA_ERR_DISK_FULL, ER_DISK_FULL, Rollback::none},
  {ES_E_DAMAGE, HA_ERR_CRASHED, ER_GET_ERRMSG, Rollback::none},
  {ES_E_NEWER_FORMAT, HA_ERR_NEW_FILE, ER_GET_ERRMSG, Rollback::none},
  {ES_E_LOCKED, HA_ERR_INITIALIZATION, ER_GET_ERRMSG, Rollback::none},
  {ES_E_NO_SUCH_TABLE, HA_ERR_NO_SUCH_TABLE, 0, Rollback::none},
  {ES_E_TABLE_EXISTS, HA_ERR_TABLE_EXIST, 0, Rollback::none},
  {ES_E_TABLE_CHANGED, HA_ERR_TABLE_DEF_CHANGED, 0, Rollback::none},
  {ES_E_LOCK_TIMEOUT, HA_ERR_LOCK_WAIT_TIMEOUT, 0, Rollback::statement},
  {ES_E_WOULD_BLOCK, HA_ERR_LOCK_WAIT_TIMEOUT, 0, Rollback::statement},
  {ES_E_DEADLOCK, HA_ERR_LOCK_DEADLOCK, 0, Rollback::transaction},
  {ES_E_INTERRUPTED, HA_ERR_ABORTED_BY_USER, 0, Rollback::none},
  {ES_E_RECORD_CHANGED, HA_ERR_RECORD_CHANGED, 0, Rollback::transaction},
  {ES_E_ROW_NOT_FOUND, HA_ERR_KEY_NOT_FOUND, 0, Rollback::none},
  {ES_E_ROW_TOO_LONG, HA_ERR_TO_BIG_ROW, ER_TOO_BIG_ROWSIZE, Rollback::none},
  {ES_E_READ_ONLY, HA_ERR_TABLE_READONLY, ER_GET_ERRMSG, Rollback::none},
  {ES_E_POISONED, HA_ERR_GENERIC, ER_GET_ERRMSG, Rollback::none},
  {ES_E_OUT_OF_MEMORY, HA_ERR_OUT_OF_MEM, ER_GET_ERRMSG, Rollback::none},
  {ES_E_UNSUPPORTED, HA_ERR_UNSUPPORTED, ER_GET_ERRMSG, Rollback::none},
  {ES_E_INVALID, HA_ERR_INTERNAL_ERROR, ER_GET_ERRMSG, Rollback::none},
  {ES_E_LAYOUT, HA_ERR_INCOMPATIBLE_DEFINITION, ER_GET_ERRMSG, Rollback::none},
  {ES_E_PANIC, HA_ERR_INTERNAL_ERROR, ER_GET_ERRMSG, Rollback::none},
};

constexpr Mapping unknown= {ES_E_OTHER, HA_ERR_GENERIC, ER_GET_ERRMSG, Rollback::none};

const Mapping &find(es_status status)
{
  for (const Mapping &mapping : mappings)
    if (mapping.status == status)
      return mapping;
  return unknown;
}
}

int ha_error(es_status status)
{
  return status == ES_OK ? 0 : find(status).ha_error;
}

int ha_error(THD *thd, es_status status)
{
  if (status == ES_OK)
    return 0;
  const Mapping &mapping= find(status);
  if (thd && mapping.rollback != Rollback::none)
    thd->mark_transaction_to_rollback(mapping.rollback == Rollback::transaction);
  return mapping.ha_error;
}

bool has_detail(es_status status)
{
  return status != ES_OK && find(status).sql_error != 0;
}

void raise(es_status status, const char *text, myf flags)
{
  const Mapping &mapping= find(status);
  if (mapping.sql_error == 0)
    return;
  if (mapping.sql_error == ER_GET_ERRMSG)
    my_printf_error(ER_GET_ERRMSG, "Got error %d '%s' from %s", flags, mapping.ha_error, text, product);
  else
    my_printf_error(mapping.sql_error, "%s: %s", flags, product, text);
}

int raise_last(THD *thd, const es_session *session)
{
  char text[1024];
  es_status status= es_last_error(session, text, sizeof text);
  if (has_detail(status))
    raise(status, text);
  return ha_error(thd, status);
}
}
